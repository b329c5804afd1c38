/* batch_test.c - how many blocks one miss moves.
 *
 * Planted defects it was seen to catch:
 *   an empty stack of one is filled with none     a_miss_moves_half
 *   a full stack keeps all but half rounded down  a_miss_moves_half
 *   no more is kept than a refill brings          more_is_kept_than_a_refill_brings
 *   who shares slabs goes on with two             who_shares_begins_with_few
 *   who has slabs begins with few                 a_miss_moves_half
 */
#include "ace/batch.h"
#include "blocks.h"

static uint32_t refill(uint32_t depth) { return ace_refill(depth, false, 1); }

/* Always something, never more than fits; and after it the stack is as far from one end as from the other. */
TEST(a_miss_moves_half) {
    CHECK(refill(1) == 1 && refill(2) == 1 && refill(3) == 1);
    CHECK(refill(4) == 2 && refill(128) == 64);
    CHECK(ace_spill(1) == 1 && ace_spill(2) == 1 && ace_spill(3) == 2 && ace_spill(4) == 2 && ace_spill(128) == 64);
    for (uint32_t depth = 1; depth <= 8192; depth++) {
        CHECK_AT(refill(depth) >= 1 && refill(depth) <= depth, depth);
        CHECK_AT(ace_spill(depth) >= 1 && ace_spill(depth) <= depth, depth);
        CHECK_AT(refill(depth) >= refill(depth - 1), depth);
        CHECK_AT(ace_spill(depth) - refill(depth) <= 1, depth);
    }
    CHECK_EQ(ace_spill(0), 0);
}

/* After a refill there is room for others' blocks, and when they may be kept no longer there still is for the thread's own. */
TEST(more_is_kept_than_a_refill_brings) {
    CHECK(ace_kept(1) == 1 && ace_kept(2) == 2 && ace_kept(4) == 3 && ace_kept(128) == 96);
    for (uint32_t depth = 2; depth <= 8192; depth++) {
        CHECK_AT(ace_kept(depth) > refill(depth), depth);
        CHECK_AT(depth < 4 || ace_kept(depth) < depth, depth);
    }
}

/* Twice as many each time, until it is half the depth as for others; never more than these get. */
TEST(who_shares_begins_with_few) {
    CHECK(ace_refill(32, true, 1) == 2 && ace_refill(32, true, 2) == 4 && ace_refill(32, true, 3) == 8);
    CHECK(ace_refill(32, true, 4) == 16 && ace_refill(32, true, 5) == 16);
    for (uint32_t depth = 1; depth <= 8192; depth++) {
        for (uint64_t nth = 0; nth < 80; nth++) {
            CHECK_AT(ace_refill(depth, true, nth) >= 1 && ace_refill(depth, true, nth) <= refill(depth), depth);
            CHECK_AT(ace_refill(depth, true, nth + 1) <= 2 * ace_refill(depth, true, nth), depth);
            CHECK_AT(ace_refill(depth, false, nth) == refill(depth), depth);
        }
        CHECK_AT(ace_refill(depth, true, 12) == refill(depth) && ace_refill(depth, true, UINT64_MAX) == refill(depth), depth);
    }
}
