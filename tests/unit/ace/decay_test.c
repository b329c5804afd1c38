/* decay_test.c - how much to give back: bounds, monotony, convergence, and closeness to the exponential.
 *
 * Planted defects it was seen to catch:
 *   rounding up what is kept                     it_converges_to_nothing
 *   no straight line between halvings            it_follows_the_exponential
 *   ACE_NEVER treated as a long half-life        never_and_at_once
 *   the half-life has no upper, or lower, bound  the_half_life_by_rule, it_stays_in_its_bounds
 *   any retaken page is a reason to grow         the_half_life_by_rule
 *   it never shrinks, or at once                 the_half_life_by_rule
 *   what is below the peak counts, or what is small beside the rest   before_a_peak_by_rule
 *   all that the peak rises by is returned       what_is_returned_before_peaks_is_bounded
 */
#include "ace/decay.h"
#include "blocks.h"

#include <math.h>

enum { LONGEST_HALF_LIFE_MS = 3600000 }; /* of the option decay */
static const uint64_t half_lives[] = {1, 7, 20, 100, 500, 2000, LONGEST_HALF_LIFE_MS};
enum { HALF_LIVES = sizeof half_lives / sizeof half_lives[0] };

static const uint64_t amounts[] = {0, 1, 2, 3, 16, 17, 1000, 65536, (uint64_t)1 << 24, (uint64_t)1 << 30};
enum { AMOUNTS = sizeof amounts / sizeof amounts[0] };

TEST(never_and_at_once) {
    for (size_t i = 0; i < AMOUNTS; i++) {
        for (uint64_t elapsed = 0; elapsed < 100000; elapsed = elapsed * 3 + 1) {
            CHECK_EQ(ace_decay_pages(amounts[i], elapsed, ACE_NEVER), 0);
            CHECK_EQ(ace_decay_pages(amounts[i], elapsed, 0), amounts[i]);
        }
        CHECK_EQ(ace_decay_pages(amounts[i], UINT64_MAX, ACE_NEVER), 0);
    }
}

/* Never more than there is, never less for more time or more pages. */
TEST(it_is_bounded_and_monotone) {
    for (size_t h = 0; h < HALF_LIVES; h++) {
        uint64_t half_life = half_lives[h], step = half_life / 37 + 1;
        for (size_t i = 0; i < AMOUNTS; i++) {
            CHECK_EQ(ace_decay_pages(amounts[i], 0, half_life), 0);
            CHECK_EQ(ace_decay_pages(amounts[i], UINT64_MAX, half_life), amounts[i]);
            uint64_t before = 0;
            for (uint64_t elapsed = 0; elapsed < 25 * half_life; elapsed += step) {
                uint64_t due = ace_decay_pages(amounts[i], elapsed, half_life);
                CHECK_AT(due <= amounts[i], elapsed);
                CHECK_AT(due >= before, elapsed);
                if (i > 0) CHECK_AT(due >= ace_decay_pages(amounts[i - 1], elapsed, half_life), elapsed);
                before = due;
            }
        }
    }
}

TEST(half_is_gone_after_a_half_life) {
    for (size_t h = 0; h < HALF_LIVES; h++) {
        CHECK_EQ(ace_decay_pages(4096, half_lives[h], half_lives[h]), 2048);
        CHECK_EQ(ace_decay_pages(4096, 2 * half_lives[h], half_lives[h]), 3072);
        CHECK_EQ(ace_decay_pages(1, half_lives[h], half_lives[h]), 1);
    }
}

TEST(it_follows_the_exponential) {
    const double pages = 1 << 20;
    for (uint64_t elapsed = 0; elapsed < 6000; elapsed++) {
        double kept = pages - (double)ace_decay_pages((uint64_t)pages, elapsed, 500);
        double exact = pages * exp2(-(double)elapsed / 500);
        CHECK_AT(kept >= exact * 0.999 - 2 && kept <= exact * 1.07 + 2, elapsed);
    }
}

/* However short the ticks are that time comes in, in the end nothing is left. */
TEST(it_converges_to_nothing) {
    for (size_t h = 0; h < HALF_LIVES; h++) {
        for (uint64_t part = 1; part <= 8; part++) {
            uint64_t tick = half_lives[h] / part + 1, pages = (uint64_t)1 << 24, ticks = 0;
            while (pages != 0 && ticks < 10000) {
                pages -= ace_decay_pages(pages, tick, half_lives[h]);
                ticks++;
            }
            CHECK_AT(pages == 0, half_lives[h]);
            CHECK_AT(ticks <= 40 * part + 40, half_lives[h]);
        }
    }
}

/* ---- the half-life ---------------------------------------------------------------------------------------- */

/* Input, then what becomes of it. */
static const struct {
    struct ace_half_life_input input;
    struct ace_half_life_decision next;
} rules[] = {
#define RULE(now, configured, quiet, returned, retaken, becomes, why)                                        \
    {{now, configured, quiet, returned, retaken, ACE_BALANCED}, {becomes, ACE_HALF_LIFE_##why}}
    /* Much of what was given back was used again: four times as long. */
    RULE(500, 500, 0, 1000, 500, 2000, RETAKEN),
    RULE(500, 500, 0, 1000, 1000, 2000, RETAKEN),
    RULE(500, 500, 0, 256, 128, 2000, RETAKEN),
    RULE(500, 500, 0, 1, 128, 2000, RETAKEN),
    RULE(2000, 500, 0, 1000, 600, 8000, RETAKEN),
    RULE(1, 1, 0, 1000, 600, 4, RETAKEN),
    /* Even when it was quiet for long before. */
    RULE(2000, 500, 100000, 1000, 600, 8000, RETAKEN),
    /* Less than half of it, or less than 8 MiB: as it is. */
    RULE(500, 500, 0, 1000, 499, 500, KEEP),
    RULE(500, 500, 0, 200, 127, 500, KEEP),
    RULE(500, 500, 0, 0, 0, 500, KEEP),
    /* Of what was returned long ago, or the rest of one rise: as it is. */
    RULE(500, 500, 0, 0, 1000, 500, KEEP),
    RULE(8000, 500, 0, 0, 1000, 8000, KEEP),
    /* To sixty-four times what was configured. */
    RULE(8000, 500, 0, 1000, 600, 32000, RETAKEN),
    RULE(31999, 500, 0, 1000, 600, 32000, RETAKEN),
    RULE(32000, 500, 0, 1000, 600, 32000, KEEP),
    /* Nothing for four half-lives: a quarter, down to what was configured. */
    RULE(2000, 500, 7999, 1000, 100, 2000, KEEP),
    RULE(2000, 500, 8000, 1000, 100, 500, QUIET),
    RULE(32000, 500, 128000, 0, 0, 8000, QUIET),
    RULE(32000, 500, UINT64_MAX, 1000, 1000, 8000, QUIET),
    RULE(1000, 500, 4000, 0, 0, 500, QUIET),
    RULE(500, 500, UINT64_MAX, 0, 0, 500, KEEP),
    /* At once and never are what they are. */
    RULE(0, 0, UINT64_MAX, 1000, 1000, 0, KEEP),
    RULE(0, 0, 0, 1000, 1000, 0, KEEP),
    RULE(ACE_NEVER, ACE_NEVER, 0, 1000, 1000, ACE_NEVER, KEEP),
    RULE(ACE_NEVER, ACE_NEVER, UINT64_MAX, 0, 0, ACE_NEVER, KEEP),
};

TEST(the_half_life_by_rule) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        struct ace_half_life_decision next = ace_half_life_next(rules[i].input);
        CHECK_AT(next.half_life_ms == rules[i].next.half_life_ms, i);
        CHECK_AT(next.reason == rules[i].next.reason, i);
    }
}

TEST(it_stays_in_its_bounds) {
    struct rng rng = {check_now.seed};
    for (size_t h = 0; h < HALF_LIVES; h++) {
        struct ace_half_life_input input = {.half_life_ms = half_lives[h], .configured_ms = half_lives[h]};
        size_t grown = 0, shrunk = 0;
        for (size_t i = 0; i < check_count(20000); i++) {
            input.quiet_ms = rng_below(&rng, 2) ? rng_below(&rng, 20) * input.half_life_ms : rng_next(&rng);
            input.returned = rng_below(&rng, 2000);
            input.retaken = rng_below(&rng, 2) ? rng_below(&rng, 2000) : 0;
            struct ace_half_life_decision next = ace_half_life_next(input);
            CHECK(next.half_life_ms >= half_lives[h] && next.half_life_ms <= half_lives[h] * ACE_HALF_LIFE_GROWTH);
            CHECK((next.reason == ACE_HALF_LIFE_KEEP) == (next.half_life_ms == input.half_life_ms));
            CHECK((next.reason == ACE_HALF_LIFE_RETAKEN) == (next.half_life_ms > input.half_life_ms));
            grown += next.half_life_ms > input.half_life_ms;
            shrunk += next.half_life_ms < input.half_life_ms;
            input.half_life_ms = next.half_life_ms;
        }
        CHECK(grown > 10 && shrunk > 10);
    }
}

/* ---- before a peak ----------------------------------------------------------------------------------------- */

static const struct {
    struct ace_peak_input input;
    uint64_t pages;
} peaks[] = {
#define PEAK(held, peak, growth, half_life, objective, pages) {{held, peak, growth, half_life, objective}, pages}
    /* Three quarters of what the peak rises by. */
    PEAK(1000, 1000, 400, 500, ACE_BALANCED, 300),
    PEAK(1000, 1200, 400, 500, ACE_BALANCED, 150),
    PEAK(1000, 1000, 400, 500, ACE_SMALL, 350),
    PEAK(1000, 1000, 400, 500, ACE_SPEED, 200),
    PEAK(0, 0, 17, 0, ACE_BALANCED, 12),
    /* Another thread has grown meanwhile: what this one adds. */
    PEAK(2000, 1000, 400, 500, ACE_BALANCED, 300),
    /* The peak does not rise. */
    PEAK(1000, 1400, 400, 500, ACE_BALANCED, 0),
    PEAK(1000, 9000, 400, 500, ACE_SMALL, 0),
    /* Small beside what is held. */
    PEAK(1000, 1000, 125, 500, ACE_BALANCED, 93),
    PEAK(1000, 1000, 124, 500, ACE_BALANCED, 0),
    /* Nothing decays. */
    PEAK(1000, 1000, 400, ACE_NEVER, ACE_SMALL, 0),
};

TEST(before_a_peak_by_rule) {
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++) CHECK_AT(ace_decay_before_peak(peaks[i].input) == peaks[i].pages, i);
}

/* What comes of blocks of any length: all that was returned is at most a multiple of what the peak rose by. */
TEST(what_is_returned_before_peaks_is_bounded) {
    struct rng rng = {check_now.seed};
    struct ace_peak_input input = {.half_life_ms = 500, .objective = ACE_BALANCED};
    uint64_t returned = 0, times = 0;
    for (size_t i = 0; i < check_count(20000); i++) {
        input.growth = 1 + rng_below(&rng, 1000);
        const uint64_t pages = ace_decay_before_peak(input);
        CHECK(pages <= input.growth);
        returned += pages;
        times += pages != 0;
        input.held += input.growth - (pages < input.held ? pages : input.held);
        if (input.held > input.peak) input.peak = input.held;
        CHECK(returned <= 3 * input.peak);
        input.held -= rng_below(&rng, 2) ? rng_below(&rng, input.held + 1) : 0;
    }
    CHECK(times > 3);
}
