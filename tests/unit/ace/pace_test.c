/* pace_test.c - how fast memory goes back.
 *
 * Planted defects it was seen to catch:
 *   a half-life without end wraps            when_holes_are_ripe
 *   the bound of what is counted is passed   when_holes_are_ripe
 */
#include "ace/pace.h"
#include "blocks.h"

TEST(who_sleeps) {
    static const uint64_t asleep_ms[] = {1000, 2000, 4000};
    for (int objective = ACE_SMALL; objective <= ACE_SPEED; objective++) {
        const uint64_t ms = asleep_ms[objective + 1];
        CHECK_EQ(ace_pace(0, (enum ace_objective)objective), ACE_PACE_WORK);
        CHECK_EQ(ace_pace(ms - 1, (enum ace_objective)objective), ACE_PACE_WORK);
        CHECK_EQ(ace_pace(ms, (enum ace_objective)objective), ACE_PACE_ASLEEP);
        CHECK_EQ(ace_pace(UINT64_MAX, (enum ace_objective)objective), ACE_PACE_ASLEEP);
    }
}

TEST(when_holes_are_ripe) {
    static const struct {
        struct ace_holes_input input;
        uint64_t looks;
    } table[] = {
        {{500, 400, 250, ACE_BALANCED}, 5},   {{0, 400, 250, ACE_BALANCED}, 0},    {{99, 400, 250, ACE_BALANCED}, 0},
        {{100, 400, 250, ACE_BALANCED}, 1},   {{32000, 400, 250, ACE_BALANCED}, 250},
        {{UINT64_MAX, 400, 250, ACE_BALANCED}, 250},
        {{UINT64_MAX, 400, UINT64_MAX, ACE_BALANCED}, UINT64_C(4) * UINT32_MAX / 400},
        {{500, 400, 250, ACE_SPEED}, 10},     {{500, 400, 250, ACE_SMALL}, 2},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        CHECK_AT(ace_holes_ripe(table[i].input) == table[i].looks, i);
}

TEST(what_is_kept) {
    CHECK_EQ(ace_kept_pages(ACE_BALANCED), 16);
    CHECK_EQ(ace_kept_pages(ACE_SPEED), 64);
    CHECK_EQ(ace_kept_pages(ACE_SMALL), 4);
}
