/* budget_test.c - what the stacks of one thread may be sized for: a table of cases, and what must hold for all.
 *
 * Planted defects it was seen to catch:
 *   the option does not bound what a thread may have   by_the_table, it_is_bounded_and_monotone
 *   threads are not counted                            by_the_table, of_medium_blocks_by_the_table
 *   medium blocks may have all that the small ones may  of_medium_blocks_by_the_table
 *   several threads keep as many as one alone    of_medium_blocks_by_the_table
 *   a share is kept to by the byte                     a_share_may_be_exceeded_by_a_quarter
 */
#include "ace/budget.h"
#include "blocks.h"

static const struct {
    struct ace_budget_input input;
    struct ace_budget_decision budget;
} table[] = {
#define ROW(in_use, most, threads, objective, bytes, why)                                                     \
    ROW_TIMES(in_use, most, threads, objective, 1, bytes, why)
#define ROW_TIMES(in_use, most, threads, objective, times, bytes, why)                                       \
    {{in_use, most, threads, ACE_##objective, times, (threads) <= 1}, {bytes, ACE_BUDGET_##why}}
    /* Of 32 MiB, or a sixteenth of what is in use. */
    ROW(0, GIB(1), 1, BALANCED, MIB(32), SHARE),
    ROW(MIB(512), GIB(1), 1, BALANCED, MIB(32), SHARE),
    ROW(GIB(1), GIB(1), 1, BALANCED, MIB(64), SHARE),
    ROW(GIB(1), GIB(1), 0, BALANCED, MIB(64), SHARE),
    ROW(0, GIB(1), 16, BALANCED, MIB(2), SHARE),
    /* No thread more than the option says. */
    ROW(0, MIB(8), 1, BALANCED, MIB(8), MOST),
    ROW(GIB(64), MIB(8), 4, BALANCED, MIB(8), MOST),
    ROW(0, KIB(64), 1, BALANCED, KIB(64), MOST),
    /* And none less than some, however many there are. */
    ROW(0, MIB(8), 1000, BALANCED, KIB(64), LEAST),
    ROW(0, MIB(8), UINT32_MAX, BALANCED, KIB(64), LEAST),
    ROW(0, GIB(1), 1, SPEED, MIB(64), SHARE),
    ROW(GIB(1), GIB(1), 1, SPEED, MIB(128), SHARE),
    ROW(0, MIB(8), 1000, SPEED, KIB(128), LEAST),
    ROW(0, KIB(64), 1000, SPEED, KIB(64), MOST),
    ROW(0, GIB(1), 1, SMALL, MIB(4), SHARE),
    ROW(GIB(1), GIB(1), 1, SMALL, MIB(32), SHARE),
    ROW(0, MIB(8), 1000, SMALL, KIB(32), LEAST),
};

TEST(by_the_table) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ace_budget_decision budget = ace_budget(table[i].input);
        CHECK_AT(budget.bytes == table[i].budget.bytes, i);
        CHECK_AT(budget.reason == table[i].budget.reason, i);
    }
}

typedef struct ace_budget_decision budget_rule(struct ace_budget_input input);

/* At most TIMES the option; with several threads, and blocks that are touched, a SHARE of it. At least LEAST. */
static void check_rule(budget_rule *rule, uint64_t times, uint64_t share, uint64_t least) {
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < check_count(100000); i++) {
        struct ace_budget_input input = {
            .in_use_bytes = rng_next(&rng) >> rng_below(&rng, 64),
            .most_bytes = KIB(64) + (rng_next(&rng) >> (34 + rng_below(&rng, 20))),
            .threads = (uint32_t)(rng_next(&rng) >> (32 + rng_below(&rng, 32))),
            .objective = (enum ace_objective)((int)rng_below(&rng, 3) - 1),
            .times = 1u << rng_below(&rng, 5),
            .alone = rng_below(&rng, 4) == 0,
        };
        const uint64_t bytes = rule(input).bytes;
        const bool cheap = input.alone || input.times > 1;
        CHECK_AT(bytes <= (cheap ? input.most_bytes * times : input.most_bytes / share) && bytes >= least, i);
        struct ace_budget_input more = input;
        more.times *= 2;
        CHECK_AT(rule(more).bytes >= bytes, i);
        more = input;
        more.in_use_bytes |= more.in_use_bytes >> 1; /* no less */
        CHECK_AT(rule(more).bytes >= bytes, i);
        more = input;
        more.most_bytes *= 2;
        CHECK_AT(rule(more).bytes >= bytes, i);
        more = input;
        if (more.threads < UINT32_MAX) more.threads++;
        CHECK_AT(rule(more).bytes <= bytes, i);
    }
}

TEST(it_is_bounded_and_monotone) {
    check_rule(ace_budget, 1, 1, KIB(32));
    check_rule(ace_medium_budget, 2, 2, 0);
}

TEST(of_medium_blocks_by_the_table) {
    static const struct {
        struct ace_budget_input input;
        struct ace_budget_decision budget;
    } rows[] = {
        /* One thread: 32 MiB, or an eighth of what is in use, and at most twice what the option says. */
        ROW(0, MIB(16), 1, BALANCED, MIB(32), SHARE),
        ROW(0, MIB(64), 0, BALANCED, MIB(32), SHARE),
        ROW(MIB(512), MIB(64), 1, BALANCED, MIB(64), SHARE),
        ROW(MIB(512), MIB(16), 1, BALANCED, MIB(32), MOST),
        ROW(0, MIB(1), 1, BALANCED, MIB(2), MOST),
        ROW(GIB(1), 0, 1, BALANCED, 0, MOST),
        ROW(0, MIB(32), 1, SPEED, MIB(64), SHARE),
        ROW(0, MIB(16), 1, SMALL, KIB(256), SHARE),
        ROW(MIB(64), MIB(16), 1, SMALL, MIB(4), SHARE),
        /* Several: of 4 MiB, or an eighth of what is in use; nothing is promised. */
        ROW(0, MIB(16), 2, BALANCED, MIB(2), SHARE),
        ROW(MIB(16), MIB(16), 4, BALANCED, MIB(1), SHARE),
        ROW(MIB(64), MIB(16), 8, BALANCED, MIB(1), SHARE),
        ROW(0, MIB(16), 1000000, BALANCED, 4, SHARE),
        ROW(0, MIB(16), UINT32_MAX, BALANCED, 0, SHARE),
        ROW(0, MIB(32), 2, SPEED, MIB(4), SHARE),
        ROW(MIB(40), MIB(32), 2, SPEED, MIB(5), SHARE),
        ROW(0, MIB(16), 2, SMALL, KIB(128), SHARE),
        /* At most half of what the option says. */
        ROW(GIB(1), MIB(16), 2, BALANCED, MIB(8), MOST),
        ROW(0, MIB(1), 2, BALANCED, KIB(512), MOST),
        /* As many times as much as what they cost allows, or a quarter of what is in use, but no more than one that is alone. */
        ROW_TIMES(0, MIB(16), 2, BALANCED, 2, MIB(4), SHARE),
        ROW_TIMES(0, MIB(16), 2, BALANCED, 16, MIB(32), SHARE),
        ROW_TIMES(0, MIB(16), 3, BALANCED, 16, MIB(64) / 3, SHARE),
        ROW_TIMES(0, MIB(16), 8, BALANCED, 16, MIB(8), SHARE),
        ROW_TIMES(MIB(512), MIB(64), 2, BALANCED, 16, MIB(64), SHARE),
        ROW_TIMES(MIB(512), MIB(64), 2, BALANCED, 2, MIB(64), SHARE),
        ROW_TIMES(MIB(512), MIB(16), 2, BALANCED, 16, MIB(32), MOST),
        ROW_TIMES(GIB(1), MIB(16), 64, BALANCED, 16, MIB(4), SHARE),
        ROW_TIMES(GIB(1), MIB(64), 64, SPEED, 16, MIB(8), SHARE),
        ROW_TIMES(0, MIB(1), 2, BALANCED, 16, MIB(2), MOST),
        ROW_TIMES(0, MIB(16), 1, BALANCED, 16, MIB(32), SHARE),
        ROW_TIMES(0, MIB(16), 1, SMALL, 16, KIB(256), SHARE),
        ROW_TIMES(0, MIB(16), 32, SMALL, 16, KIB(128), SHARE),
        ROW_TIMES(0, MIB(16), UINT32_MAX, BALANCED, 16, 0, SHARE),
    };
    /* The others sleep: all of the 4 MiB. */
    const struct ace_budget_input awake = {0, MIB(16), 1, ACE_BALANCED, 1, false};
    CHECK_EQ(ace_medium_budget(awake).bytes, MIB(4));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ace_budget_decision budget = ace_medium_budget(rows[i].input);
        CHECK_AT(budget.bytes == rows[i].budget.bytes, i);
        CHECK_AT(budget.reason == rows[i].budget.reason, i);
    }
}

TEST(what_a_look_stands_for) {
    CHECK_EQ(ace_medium_looked_bytes(MIB(3), MIB(3), ACE_BALANCED), MIB(8));
    CHECK_EQ(ace_medium_looked_bytes(MIB(3), MIB(2), ACE_BALANCED), MIB(8));
    CHECK_EQ(ace_medium_looked_bytes(MIB(3), MIB(2) - 1, ACE_BALANCED), MIB(1) + 1);
    CHECK_EQ(ace_medium_looked_bytes(MIB(30), KIB(4), ACE_BALANCED), MIB(8));
    CHECK_EQ(ace_medium_looked_bytes(MIB(30), MIB(3), ACE_SPEED), MIB(16));
    CHECK_EQ(ace_medium_looked_bytes(MIB(2), MIB(2), ACE_BALANCED), MIB(8));
}

TEST(who_gives_depth) {
    CHECK(!ace_budget_may_take(15, 16, 200, 100) && ace_budget_may_take(16, 16, 200, 100));
    CHECK(ace_budget_may_take(0, 16, 202, 100) && !ace_budget_may_take(0, 16, 0, 0));
}

TEST(how_long_a_bin_in_use_waits) {
    CHECK_EQ(ace_budget_patience(false, 0), 16);
    CHECK_EQ(ace_budget_patience(false, 10), 96);
    CHECK_EQ(ace_budget_patience(false, 29), 248);
    CHECK_EQ(ace_budget_patience(false, 30), 255);
    CHECK_EQ(ace_budget_patience(false, 255), 255);
    CHECK_EQ(ace_budget_patience(true, 0), 128);
    CHECK_EQ(ace_budget_patience(true, 255), 128);
}

/* It follows in both directions, to within one. */
TEST(how_often_others_ask_usually) {
    uint32_t usually = 0;
    for (int i = 0; i < 10; i++) usually = ace_budget_asked_usually(usually, 40);
    CHECK(usually == 39 || usually == 40);
    for (int i = 0; i < 20; i++) usually = ace_budget_asked_usually(usually, 255);
    CHECK(usually == 254 || usually == 255);
    for (int i = 0; i < 20; i++) usually = ace_budget_asked_usually(usually, 0);
    CHECK_EQ(usually, 0); /* then it is asked 16 times, as it was at first */
}

TEST(how_many_times_by_the_table) {
    static const struct {
        uint32_t touched, before, times;
    } rows[] = {
        {819, 1, 2},  {820, 1, 1}, {1024, 1, 1}, {409, 2, 4}, {410, 2, 2},   {1024, 2, 1},
        {448, 4, 4},  {449, 4, 2}, {0, 8, 16},   {0, 16, 16}, {1024, 16, 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_AT(ace_medium_times(rows[i].touched, rows[i].before) == rows[i].times, i);
}

TEST(what_was_touched_by_the_table) {
    CHECK_EQ(ace_medium_touched(ACE_TOUCHED_UNKNOWN, MIB(4), MIB(1)), 256); /* the first look is all that is known */
    CHECK_EQ(ace_medium_touched(ACE_TOUCHED_UNKNOWN, MIB(4), MIB(5)), 1024);
    CHECK_EQ(ace_medium_touched(256, MIB(4), MIB(4)), 352);
    CHECK_EQ(ace_medium_touched(256, MIB(4), 0), 224);
    CHECK_EQ(ace_medium_touched(0, MIB(4), 0), 0);
    CHECK_EQ(ace_medium_touched(1024, KIB(64), KIB(64)), 1024);
}

/* What changes is seen within 40 looks. */
TEST(what_was_touched_follows) {
    uint32_t touched = 0, times = 16;
    for (int look = 0; look < 40; look++) {
        touched = ace_medium_touched(touched, MIB(4), MIB(4));
        times = ace_medium_times(touched, times);
    }
    CHECK_EQ(times, 1);
    for (int look = 0; look < 40; look++) {
        touched = ace_medium_touched(touched, MIB(4), 0);
        times = ace_medium_times(touched, times);
    }
    CHECK_EQ(times, 16);
    CHECK(touched < 8); /* as near as rounding lets it come */
}

/* Looks of which each second errs by all of it change nothing once it has settled. */
TEST(what_errs_does_not_swing) {
    uint32_t touched = ACE_TOUCHED_UNKNOWN, times = 1, settled = 0;
    for (int look = 0; look < 1000; look++) {
        touched = ace_medium_touched(touched, MIB(4), look % 2 ? MIB(4) : 0);
        times = ace_medium_times(touched, times);
        if (look == 50) settled = times;
        if (look > 50) CHECK_AT(times == settled, look);
    }
}

/* Wherever it begins it settles in four steps, all in one direction. What may be kept costs no more than seven quarters of the budget then, and more
 * than four fifths of it unless it is as much as ever. */
TEST(how_many_times_settles) {
    enum { MOST = 16, STEPS = 4 };
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < check_count(100000); i++) {
        const uint32_t touched = (uint32_t)rng_below(&rng, ACE_TOUCHED_ALL + 1) >> rng_below(&rng, 8);
        const uint32_t begun = 1u << rng_below(&rng, 5);
        uint32_t times = begun;
        for (int step = 0; step < STEPS; step++) {
            const uint32_t next = ace_medium_times(touched, times);
            CHECK_AT(times == begun || next == times || (next > times) == (times > begun), i);
            times = next;
        }
        CHECK_AT(ace_medium_times(touched, times) == times, i);
        CHECK_AT(times == 1 || touched * times <= ACE_TOUCHED_ALL * 7 / 4, i);
        CHECK_AT(times == MOST || touched * times > ACE_TOUCHED_ALL * 4 / 5, i);
    }
}

/* Of medium blocks by a half: with a third thread the share of two is two thirds. */
TEST(a_share_may_be_exceeded_by_a_quarter) {
    const struct ace_budget_decision share = {MIB(4), ACE_BUDGET_SHARE}, most = {MIB(4), ACE_BUDGET_MOST}, none = {0, ACE_BUDGET_SHARE};
    CHECK(!ace_budget_is_exceeded(share, false, MIB(5)) && ace_budget_is_exceeded(share, false, MIB(5) + 1));
    CHECK(!ace_budget_is_exceeded(share, true, MIB(6)) && ace_budget_is_exceeded(share, true, MIB(6) + 1));
    for (int medium = 0; medium < 2; medium++) {
        CHECK(!ace_budget_is_exceeded(most, medium, MIB(4)) && ace_budget_is_exceeded(most, medium, MIB(4) + 1));
        CHECK(!ace_budget_is_exceeded(none, medium, 0) && ace_budget_is_exceeded(none, medium, 1));
    }
}

TEST(where_nobody_set_it) {
    CHECK_EQ(ace_thread_cache_bytes(MIB(16), ACE_BALANCED), MIB(16));
    CHECK_EQ(ace_thread_cache_bytes(MIB(16), ACE_SPEED), MIB(32));
    CHECK_EQ(ace_thread_cache_bytes(MIB(16), ACE_SMALL), MIB(2));
}
