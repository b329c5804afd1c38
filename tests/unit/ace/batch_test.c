/* batch_test.c - how many blocks one miss moves.
 *
 * Planted defects it was seen to catch:
 *   an empty stack of one is filled with none     a_miss_moves_half
 *   a full stack keeps all but half rounded down  a_miss_moves_half
 *   no more is kept than a refill brings          more_is_kept_than_a_refill_brings
 */
#include "ace/batch.h"
#include "blocks.h"

/* Always something, never more than fits; and after it the stack is as far from one end as from the other. */
TEST(a_miss_moves_half) {
    CHECK(ace_refill(1) == 1 && ace_refill(2) == 1 && ace_refill(3) == 1);
    CHECK(ace_refill(4) == 2 && ace_refill(128) == 64);
    CHECK(ace_spill(1) == 1 && ace_spill(2) == 1 && ace_spill(3) == 2 && ace_spill(4) == 2 && ace_spill(128) == 64);
    for (uint32_t depth = 1; depth <= 8192; depth++) {
        CHECK_AT(ace_refill(depth) >= 1 && ace_refill(depth) <= depth, depth);
        CHECK_AT(ace_spill(depth) >= 1 && ace_spill(depth) <= depth, depth);
        CHECK_AT(ace_refill(depth) >= ace_refill(depth - 1), depth);
        CHECK_AT(ace_spill(depth) - ace_refill(depth) <= 1, depth);
    }
    CHECK_EQ(ace_spill(0), 0);
}

/* After a refill there is room for others' blocks, and when they may be kept no longer there still is for the thread's own. */
TEST(more_is_kept_than_a_refill_brings) {
    CHECK(ace_kept(1) == 1 && ace_kept(2) == 2 && ace_kept(4) == 3 && ace_kept(128) == 96);
    for (uint32_t depth = 2; depth <= 8192; depth++) {
        CHECK_AT(ace_kept(depth) > ace_refill(depth), depth);
        CHECK_AT(depth < 4 || ace_kept(depth) < depth, depth);
    }
}
