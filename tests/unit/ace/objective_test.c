/* objective_test.c - what holds of all decisions, for any counters: with a greater objective no less is kept and nothing
 * goes back sooner; and a decision that is fed back, while the counters stay as they are, ends in a setting that stays,
 * after a few steps.
 *
 * Planted defects it was seen to catch:
 *   speed keeps less than balanced of medium blocks  a_greater_objective_keeps_no_less
 *   small waits longer before memory is short        a_greater_objective_keeps_no_less
 *   a depth beyond its bound comes back              steady_counters_end_in_a_fixed_point
 */
#include "ace/budget.h"
#include "ace/decay.h"
#include "ace/depth.h"
#include "ace/huge.h"
#include "ace/pace.h"
#include "ace/pressure.h"
#include "ace/supply.h"
#include "base/size_classes.h"
#include "blocks.h"

enum { DEPTH_STEPS = 14, DEPTH_STEPS_ONE_BY_ONE = 22, HALF_LIFE_STEPS = 4 };

static const enum ace_objective objectives[] = {ACE_SMALL, ACE_BALANCED, ACE_SPEED};

/* A number of any size. */
static uint64_t any(struct rng *rng) { return rng_next(rng) >> rng_below(rng, 64); }

/* Bytes of a block, small or medium. */
static size_t any_block(struct rng *rng) {
    return 16 + 16 * rng_below(rng, (rng_below(rng, 2) ? SMALL_MAX_BYTES : MEDIUM_MAX_BYTES) / 16);
}

/* What each decision keeps, in numbers that grow with what is kept. */
enum { KEPT = 18 };
static void keep(uint64_t kept[KEPT], struct rng rng, enum ace_objective objective) {
    const size_t bytes = any_block(&rng);
    const uint64_t half_life_ms = any(&rng) % 3600000, idle_ms = any(&rng), most_bytes = any(&rng);
    struct ace_depth_input depth = {.most = 8192, .one_by_one = rng_below(&rng, 2)};
    depth.depth = !depth.one_by_one + (uint32_t)rng_below(&rng, 8192);
    depth.batch = depth.one_by_one ? 0 : ace_depth_batch(bytes, objective);
    depth.refills = (uint32_t)rng_below(&rng, 6);
    depth.spills = (uint32_t)rng_below(&rng, 6);
    depth.refilled_blocks = (uint32_t)rng_below(&rng, 99);
    depth.spilled_blocks = (uint32_t)rng_below(&rng, 99);
    struct ace_half_life_input half_life = {.configured_ms = half_life_ms, .objective = objective};
    half_life.half_life_ms = half_life_ms * (1 + rng_below(&rng, 16));
    half_life.quiet_ms = any(&rng);
    half_life.returned = any(&rng) >> 8;
    half_life.retaken = any(&rng) >> 8;
    struct ace_pressure_input pressure = {any(&rng), any(&rng), any(&rng), any(&rng), objective};
    struct ace_budget_input budget = {any(&rng), any(&rng), (uint32_t)any(&rng), objective, 1u << rng_below(&rng, 5), rng_below(&rng, 2) == 0};
    struct ace_supply_input supply = {(uint32_t)rng_below(&rng, 12), (uint32_t)rng_below(&rng, 9000), 4096, objective};
    const uint64_t all[KEPT] = {
        ace_depth_first(bytes, objective),
        ace_depth_most(bytes, objective),
        ace_depth_batch(bytes, objective),
        ace_depth_next(depth).depth,
        ace_half_life_next(half_life).half_life_ms,
        ace_half_life_ms(half_life_ms, objective),
        ace_pressure(pressure) == ACE_PRESSURE_NONE,
        ace_pressure_mark_bytes(pressure),
        ace_budget(budget).bytes,
        ace_thread_cache_bytes(most_bytes / 2, objective),
        ace_medium_budget(budget).bytes,
        ace_medium_spared_bytes(objective),
        ace_supply(supply).populate_pages,
        ace_supply(supply).fill != ACE_SPARSE,
        UINT64_MAX - ace_huge_from_bytes(objective),
        UINT64_MAX - ace_huge_touched_least(most_bytes, objective),
        ace_pace(idle_ms, objective) == ACE_PACE_WORK,
        ace_holes_ripe((struct ace_holes_input){half_life_ms, 400, 250, objective}) + ace_kept_pages(objective),
    };
    memcpy(kept, all, sizeof all);
}

TEST(a_greater_objective_keeps_no_less) {
    struct rng rng = {check_now.seed};
    uint64_t differences[KEPT] = {0};
    for (size_t i = 0; i < check_count(200000); i++) {
        uint64_t kept[3][KEPT];
        for (int o = 0; o < 3; o++) keep(kept[o], rng, objectives[o]); /* the same draws */
        rng_next(&rng);
        for (size_t k = 0; k < KEPT; k++) {
            CHECK_AT(kept[0][k] <= kept[1][k] && kept[1][k] <= kept[2][k], k);
            differences[k] += kept[0][k] != kept[2][k];
        }
    }
    for (size_t k = 0; k < KEPT; k++) CHECK_AT(differences[k] > 0, k); /* each of them listens to the objective */
}

/* Twice as much or more, half or less, where nothing bounds it. */
TEST(by_factors_of_two) {
    for (size_t bytes = 256; bytes <= 8192; bytes *= 2) {
        const uint32_t first = ace_depth_first(bytes, ACE_BALANCED);
        CHECK_AT(ace_depth_first(bytes, ACE_SPEED) >= 2 * first || bytes > 4096, bytes);
        CHECK_AT(2 * ace_depth_first(bytes, ACE_SMALL) <= first, bytes);
        CHECK_AT(ace_depth_most(bytes, ACE_SPEED) >= 2 * ace_depth_most(bytes, ACE_BALANCED) || bytes < 512, bytes);
        CHECK_AT(2 * ace_depth_most(bytes, ACE_SMALL) <= ace_depth_most(bytes, ACE_BALANCED), bytes);
    }
    struct ace_budget_decision (*const rules[])(struct ace_budget_input) = {ace_budget, ace_medium_budget};
    for (size_t rule = 0; rule < 2; rule++)
        for (uint64_t in_use = 0; in_use <= GIB(64); in_use = 2 * in_use + MIB(1)) {
            struct ace_budget_input input = {in_use, UINT64_MAX, 1, ACE_BALANCED, 1, true};
            const uint64_t balanced = rules[rule](input).bytes;
            input.objective = ACE_SPEED;
            CHECK_AT(rules[rule](input).bytes >= 2 * balanced, in_use);
            input.objective = ACE_SMALL;
            CHECK_AT(2 * rules[rule](input).bytes <= balanced, in_use);
        }
    CHECK(ace_half_life_ms(500, ACE_SPEED) >= 1000 && ace_half_life_ms(500, ACE_SMALL) <= 250);
}

/* The program misses in the same way all the time. */
static void settle_depth(struct ace_depth_input input, size_t i) {
    const unsigned most = input.one_by_one ? DEPTH_STEPS_ONE_BY_ONE : DEPTH_STEPS;
    unsigned steps = 0;
    for (struct ace_depth_decision next; (next = ace_depth_next(input)).reason != ACE_DEPTH_KEEP; steps++) {
        CHECK_AT(steps < most && next.depth > input.depth, i);
        input.depth = next.depth;
    }
    CHECK_AT(ace_depth_next(input).depth == input.depth, i);
}

/* Pages are used again, or nothing was for a while: never both, since whoever uses pages again is not quiet. */
static void settle_half_life(struct ace_half_life_input input, size_t i) {
    unsigned steps = 0;
    const bool quiet = input.retaken == 0;
    struct ace_half_life_decision next;
    for (; (next = ace_half_life_next(input)).reason != ACE_HALF_LIFE_KEEP; steps++) {
        CHECK_AT(steps < HALF_LIFE_STEPS && (next.half_life_ms < input.half_life_ms) == quiet, i);
        input.half_life_ms = next.half_life_ms;
    }
    CHECK_AT(ace_half_life_next(input).half_life_ms == input.half_life_ms, i);
}

TEST(steady_counters_end_in_a_fixed_point) {
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < check_count(200000); i++) {
        const enum ace_objective objective = objectives[i % 3];
        const size_t bytes = any_block(&rng);
        const uint32_t most = ace_depth_most(bytes, objective);
        struct ace_depth_input depth = {.most = most, .one_by_one = bytes > SMALL_MAX_BYTES};
        depth.depth = !depth.one_by_one + (uint32_t)rng_below(&rng, most);
        depth.refills = (uint32_t)any(&rng);
        depth.spills = (uint32_t)any(&rng);
        depth.refilled_blocks = (uint32_t)any(&rng);
        depth.spilled_blocks = (uint32_t)any(&rng);
        settle_depth(depth, i);
        const bool quiet = rng_below(&rng, 2);
        struct ace_half_life_input half_life = {.configured_ms = any(&rng) % 3600001, .objective = objective};
        half_life.half_life_ms = half_life.configured_ms * (1 + rng_below(&rng, ACE_HALF_LIFE_GROWTH));
        half_life.quiet_ms = quiet ? any(&rng) : 0;
        half_life.returned = any(&rng) >> 8;
        half_life.retaken = quiet ? 0 : any(&rng) >> 8;
        settle_half_life(half_life, i);
    }
}

/* A program whose pages come back keeps the half-life that it got, whatever the objective. */
TEST(the_longest_half_life_stays) {
    for (int o = 0; o < 3; o++) {
        struct ace_half_life_input input = {500, 500, 0, 1000, 1000, objectives[o]};
        for (int i = 0; i < 100; i++) input.half_life_ms = ace_half_life_next(input).half_life_ms;
        CHECK_EQ(input.half_life_ms, 500 * ACE_HALF_LIFE_GROWTH / (objectives[o] == ACE_SMALL ? 4 : 1));
    }
}
