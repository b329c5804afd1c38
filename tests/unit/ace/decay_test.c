/* decay_test.c - how much to give back: bounds, monotony, convergence, and closeness to the exponential.
 *
 * Planted defects it was seen to catch:
 *   rounding up what is kept                     it_converges_to_nothing
 *   no straight line between halvings            it_follows_the_exponential
 *   ACE_NEVER treated as a long half-life        never_and_at_once
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
