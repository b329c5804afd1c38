/* pressure_test.c - tests of src/ace/pressure.c.
 *
 * Planted defects it was seen to catch:
 *   unknown use presses   what_presses
 *   an objective leans too far, or not at all   what_presses, what_growth_is_asked_for
 */
#include "ace/pressure.h"

#include "blocks.h"

#define NONE UINT64_MAX

static const struct {
    struct ace_pressure_input input;
    enum ace_pressure_reason reason;
} table[] = {
    {{NONE, NONE, NONE, NONE, ACE_BALANCED}, ACE_PRESSURE_NONE},
    {{NONE, NONE, 1 << 30, 0, ACE_BALANCED}, ACE_PRESSURE_NONE},
    {{1600, NONE, 1499, 0, ACE_BALANCED}, ACE_PRESSURE_NONE},
    {{1600, NONE, 1500, 0, ACE_BALANCED}, ACE_PRESSURE_LIMIT},
    {{1600, NONE, 5000, 0, ACE_BALANCED}, ACE_PRESSURE_LIMIT},
    {{NONE, 1600, 1499, 0, ACE_BALANCED}, ACE_PRESSURE_NONE},
    {{NONE, 1600, 1500, 0, ACE_BALANCED}, ACE_PRESSURE_HIGH},
    {{3200, 1600, 1500, 0, ACE_BALANCED}, ACE_PRESSURE_HIGH},
    {{1600, 1600, 1600, 0, ACE_BALANCED}, ACE_PRESSURE_LIMIT},
    {{1600, NONE, NONE, 0, ACE_BALANCED}, ACE_PRESSURE_NONE},
    {{NONE, NONE, NONE, 999, ACE_BALANCED}, ACE_PRESSURE_NONE},
    {{NONE, NONE, NONE, 1000, ACE_BALANCED}, ACE_PRESSURE_STALLS},
    {{0, NONE, 0, 0, ACE_BALANCED}, ACE_PRESSURE_LIMIT},
    {{1600, NONE, 1399, 0, ACE_SMALL}, ACE_PRESSURE_NONE},
    {{1600, NONE, 1400, 0, ACE_SMALL}, ACE_PRESSURE_LIMIT},
    {{NONE, 1600, 1399, 0, ACE_SMALL}, ACE_PRESSURE_NONE},
    {{NONE, 1600, 1400, 0, ACE_SMALL}, ACE_PRESSURE_HIGH},
    {{NONE, NONE, NONE, 499, ACE_SMALL}, ACE_PRESSURE_NONE},
    {{NONE, NONE, NONE, 500, ACE_SMALL}, ACE_PRESSURE_STALLS},
    {{1600, NONE, 1549, 0, ACE_SPEED}, ACE_PRESSURE_NONE},
    {{1600, NONE, 1550, 0, ACE_SPEED}, ACE_PRESSURE_LIMIT},
    {{NONE, 1600, 1549, 0, ACE_SPEED}, ACE_PRESSURE_NONE},
    {{NONE, 1600, 1550, 0, ACE_SPEED}, ACE_PRESSURE_HIGH},
    {{NONE, NONE, NONE, 1999, ACE_SPEED}, ACE_PRESSURE_NONE},
    {{NONE, NONE, NONE, 2000, ACE_SPEED}, ACE_PRESSURE_STALLS},
};

TEST(what_presses) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        CHECK_AT(ace_pressure(table[i].input) == table[i].reason, i);
}

/* More in use never presses less, for any limits. */
TEST(it_only_rises_with_what_is_used) {
    struct rng rng = {check_now.seed};
    for (int i = 0; i < 10000; i++) {
        struct ace_pressure_input input = {.limit_bytes = rng_next(&rng) >> rng_below(&rng, 64),
                                           .high_bytes = rng_next(&rng) >> rng_below(&rng, 64)};
        bool pressed = false;
        for (uint64_t used = 1; used != 0; used *= 2) {
            input.used_bytes = used - 1;
            bool now = ace_pressure(input) != ACE_PRESSURE_NONE;
            CHECK_AT(now || !pressed, used);
            pressed = now;
        }
    }
}

/* limit, high, used; the mark, and how much unasked. */
static const struct {
    struct ace_pressure_input input;
    uint64_t mark, unasked;
} growths[] = {
    {{NONE, NONE, 0, 0, ACE_BALANCED}, NONE, NONE},
    {{NONE, NONE, NONE, 0, ACE_BALANCED}, NONE, NONE},
    {{6400, NONE, 0, 0, ACE_BALANCED}, 5600, 2800},
    {{NONE, 6400, 0, 0, ACE_BALANCED}, 5600, 2800},
    {{6400, 12800, 5400, 0, ACE_BALANCED}, 5600, 100},
    {{12800, 6400, 5398, 0, ACE_BALANCED}, 5600, 101},
    {{6400, NONE, 5600, 0, ACE_BALANCED}, 5600, 100},
    {{6400, NONE, NONE, 0, ACE_BALANCED}, 5600, 100},
    {{6400, NONE, 0, 0, ACE_SMALL}, 4800, 2400},
    {{6400, NONE, 0, 0, ACE_SPEED}, 6000, 3000},
    {{0, NONE, 0, 0, ACE_BALANCED}, 0, 0},
};

TEST(what_growth_is_asked_for) {
    for (size_t i = 0; i < sizeof growths / sizeof growths[0]; i++) {
        CHECK_AT(ace_pressure_mark_bytes(growths[i].input) == growths[i].mark, i);
        CHECK_AT(ace_pressure_unasked_bytes(growths[i].input) == growths[i].unasked, i);
    }
}
