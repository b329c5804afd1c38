/* depth_test.c - the rule for a bin's depth: a table of cases, and what must hold for all.
 *
 * Planted defects it was seen to catch:
 *   three of one to four of the other are not a swing   decisions
 *   any refill and any spill are a swing         who_takes_little_back_settles_at_a_batch
 *   swings are counted in misses                 short_refills_are_no_more_of_them
 *   batches grow without end                     a_producer_settles_at_a_batch
 *   the doubled depth may pass the bound         decisions, never_beyond_the_bound
 *   medium blocks double and halve               decisions, what_a_bin_gives
 *   the first depth is not bounded below         first_and_most
 *   medium blocks are kept from the first        first_and_most_of_medium_blocks
 *   or once they are only taken or only given    decisions, medium_blocks_are_kept_once_they_swing
 */
#include "ace/depth.h"
#include "base/size_classes.h"
#include "blocks.h"

TEST(first_and_most) {
    uint32_t first_before = UINT32_MAX, most_before = UINT32_MAX;
    for (size_t bytes = 16; bytes <= SMALL_MAX_BYTES; bytes += 16) {
        uint32_t first = ace_depth_first(bytes, ACE_BALANCED), most = ace_depth_most(bytes, ACE_BALANCED);
        CHECK_AT(first >= 4 && first <= 32, bytes);
        CHECK_AT(most >= first && most <= 8192, bytes);
        /* More than the least is only held of what costs little. */
        CHECK_AT(first == 4 || first * bytes <= KIB(16), bytes);
        CHECK_AT(most == 4 || most * bytes <= MIB(2), bytes);
        CHECK_AT(first <= first_before && most <= most_before, bytes);
        first_before = first;
        most_before = most;
    }
    CHECK_EQ(ace_depth_first(16, ACE_BALANCED), 32);
    CHECK_EQ(ace_depth_first(1024, ACE_BALANCED), 16);
    CHECK_EQ(ace_depth_first(65536, ACE_BALANCED), 4);
    CHECK_EQ(ace_depth_most(16, ACE_BALANCED), 8192);
    CHECK_EQ(ace_depth_most(256, ACE_BALANCED), 8192);
    CHECK_EQ(ace_depth_most(1024, ACE_BALANCED), 2048);
    CHECK_EQ(ace_depth_most(1040, ACE_BALANCED), 2016);
    CHECK_EQ(ace_depth_most(65536, ACE_BALANCED), 32);
}

/* 128 blocks, 256 of those below 128 bytes; by the objective half or twice as many. */
TEST(a_batch) {
    CHECK_EQ(ace_depth_batch(16, ACE_BALANCED), 256);
    CHECK_EQ(ace_depth_batch(64, ACE_BALANCED), 256);
    CHECK_EQ(ace_depth_batch(112, ACE_BALANCED), 256);
    CHECK_EQ(ace_depth_batch(128, ACE_BALANCED), 128);
    CHECK_EQ(ace_depth_batch(65536, ACE_BALANCED), 128);
    CHECK_EQ(ace_depth_batch(64, ACE_SPEED), 512);
    CHECK_EQ(ace_depth_batch(1024, ACE_SPEED), 256);
    CHECK_EQ(ace_depth_batch(64, ACE_SMALL), 128);
    CHECK_EQ(ace_depth_batch(1024, ACE_SMALL), 64);
    for (int objective = ACE_SMALL; objective <= ACE_SPEED; objective++)
        CHECK_EQ(ace_depth_batch(SMALL_MAX_BYTES + 1, (enum ace_objective)objective), 0);
}

TEST(first_and_most_of_medium_blocks) {
    for (size_t bytes = SMALL_MAX_BYTES + 1; bytes <= MEDIUM_MAX_BYTES; bytes += 4099) {
        for (int objective = ACE_SMALL; objective <= ACE_SPEED; objective++)
            CHECK_AT(ace_depth_first(bytes, (enum ace_objective)objective) == 0, bytes);
        const uint32_t most = ace_depth_most(bytes, ACE_BALANCED);
        CHECK_AT(most >= 1 && most * bytes <= MIB(8), bytes);
    }
    CHECK_EQ(ace_depth_most(KIB(128), ACE_BALANCED), 64);
    CHECK_EQ(ace_depth_most(KIB(640), ACE_BALANCED), 12);
    CHECK_EQ(ace_depth_most(MIB(1), ACE_BALANCED), 8);
    CHECK_EQ(ace_depth_most(MIB(1), ACE_SPEED), 16);
    CHECK_EQ(ace_depth_most(MIB(1), ACE_SMALL), 1);
}

TEST(decisions) {
    static const struct {
        struct ace_depth_input in;
        uint32_t depth;
        enum ace_depth_reason reason;
    } cases[] = {
#define CASE(depth, most, refills, spills, next, why)                                                         \
    {{depth, most, 128, refills, spills, refills * 64, spills * 64, false}, next, ACE_DEPTH_##why}
        CASE(32, 8192, 0, 0, 32, KEEP),       CASE(32, 8192, 1, 0, 32, KEEP),
        CASE(32, 8192, 2, 0, 32, KEEP),       CASE(32, 8192, 0, 2, 32, KEEP),
        CASE(32, 8192, 3, 0, 64, BATCH),      CASE(32, 8192, 0, 3, 64, BATCH),
        CASE(32, 8192, 1, 1, 32, KEEP),       CASE(32, 8192, 1, 2, 64, BATCH),
        CASE(127, 8192, 9, 0, 254, BATCH),    CASE(128, 8192, 99, 0, 128, KEEP),
        CASE(128, 8192, 0, 99, 128, KEEP),    CASE(128, 8192, 1, 1, 128, KEEP),
        CASE(128, 8192, 4, 3, 128, KEEP),     CASE(128, 8192, 4, 4, 256, SWING),
        CASE(128, 8192, 5, 3, 128, KEEP),     CASE(128, 8192, 30, 40, 256, SWING),
        CASE(128, 8192, 40, 30, 256, SWING),  CASE(128, 8192, 41, 30, 128, KEEP),
        CASE(128, 8192, 30, 41, 128, KEEP),   CASE(5000, 8192, 4, 4, 8192, SWING),
        CASE(8192, 8192, 50, 50, 8192, KEEP), CASE(4, 6, 3, 0, 6, BATCH),
        CASE(4, 4, 9, 9, 4, KEEP),            CASE(9, 4, 9, 9, 9, KEEP),
#undef CASE
        {{128, 8192, 256, 3, 0, 3, 0, false}, 256, ACE_DEPTH_BATCH},
        {{256, 8192, 256, 99, 0, 99, 0, false}, 256, ACE_DEPTH_KEEP},
        {{63, 8192, 64, 3, 0, 3, 0, false}, 126, ACE_DEPTH_BATCH},
        {{64, 8192, 64, 99, 0, 99, 0, false}, 64, ACE_DEPTH_KEEP},
        {{64, 8192, 64, 4, 4, 4, 4, false}, 128, ACE_DEPTH_SWING},
        {{64, 8192, 64, 9, 1, 30, 40, false}, 128, ACE_DEPTH_SWING},
        {{64, 8192, 64, 5, 5, 30, 41, false}, 64, ACE_DEPTH_KEEP},
        {{64, 8192, 64, 9, 0, 0, 0, false}, 64, ACE_DEPTH_KEEP}, /* no memory */
        /* One by one. */
#define CASE(depth, most, refills, spills, next, why) {{depth, most, 0, refills, spills, refills, spills, true}, next, ACE_DEPTH_##why}
        CASE(0, 64, 0, 0, 0, KEEP),           CASE(0, 64, 1000, 0, 0, KEEP),
        CASE(0, 64, 0, 1000, 0, KEEP),        CASE(0, 64, 1, 1000, 0, KEEP),
        CASE(0, 64, 1000, 1, 0, KEEP),        CASE(0, 64, 1, 2, 0, KEEP),
        CASE(0, 64, 2, 2, 1, SWING),          CASE(1, 64, 2, 2, 2, SWING),
        CASE(1, 64, 2, 3, 1, KEEP),           CASE(1, 64, 3, 4, 2, SWING),
        CASE(12, 64, 9, 9, 16, SWING),        CASE(40, 64, 2, 2, 51, SWING),
        CASE(60, 64, 2, 2, 64, SWING),        CASE(64, 64, 9, 9, 64, KEEP),
        CASE(0, 0, 9, 9, 0, KEEP),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ace_depth_decision next = ace_depth_next(cases[i].in);
        CHECK_AT(next.depth == cases[i].depth, i);
        CHECK_AT(next.reason == cases[i].reason, i);
    }
}

/* From any depth, with any counters: a bin grows to at most twice, a medium one by a quarter and one, never shrinks, has a reason when it
 * grows and none when it does not; and more blocks of the rarer kind never mean a smaller depth. */
TEST(never_beyond_the_bound) {
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < 200000; i++) {
        struct ace_depth_input in = {.most = 1 + (uint32_t)rng_below(&rng, 8192),
                                     .refills = (uint32_t)rng_below(&rng, 12),
                                     .spills = (uint32_t)rng_below(&rng, 12),
                                     .refilled_blocks = (uint32_t)rng_below(&rng, 1000),
                                     .spilled_blocks = (uint32_t)rng_below(&rng, 1000),
                                     .one_by_one = rng_below(&rng, 2)};
        in.batch = in.one_by_one ? 0 : (uint32_t)rng_below(&rng, 1024);
        in.depth = !in.one_by_one + (uint32_t)rng_below(&rng, in.most);
        struct ace_depth_decision next = ace_depth_next(in);
        CHECK_AT(next.depth <= in.most, i);
        const uint32_t most = in.one_by_one ? in.depth + in.depth / 4 + 1 : 2 * in.depth;
        CHECK_AT(next.depth >= in.depth && next.depth <= most, i);
        CHECK_AT((next.depth != in.depth) == (next.reason != ACE_DEPTH_KEEP), i);
        CHECK_AT(in.refills + in.spills != 0 || next.depth == in.depth, i);
        struct ace_depth_input more = in;
        if (in.refilled_blocks < in.spilled_blocks) more.refilled_blocks++;
        if (in.refilled_blocks > in.spilled_blocks) more.spilled_blocks++;
        CHECK_AT(ace_depth_next(more).depth >= next.depth, i);
    }
}

/* Small ones halve. Of medium ones a step down gives what a step up took, and hardly more: so a depth that is fought for stays near what its size
 * needs. */
TEST(what_a_bin_gives) {
    CHECK_EQ(ace_depth_given(128, 32, false), 64);
    CHECK_EQ(ace_depth_given(33, 32, false), 32);
    CHECK_EQ(ace_depth_given(64, 0, true), 48);
    CHECK_EQ(ace_depth_given(2, 0, true), 1);
    CHECK_EQ(ace_depth_given(1, 0, true), 0);
    CHECK_EQ(ace_depth_given(5, 4, true), 4);
    for (uint32_t depth = 0; depth < 64; depth++) {
        const struct ace_depth_input in = {depth, 128, 0, 2, 2, 2, 2, true};
        const uint32_t back = ace_depth_given(ace_depth_next(in).depth, 0, true);
        CHECK_AT(back <= depth && back + 1 + depth / 16 >= depth, depth);
    }
}

enum { BYTES = 256 };

/* The depth at which a bin of such blocks ends that takes, and then gives back, PERIOD misses' worth in turn, GIVEN of them by itself. A refill
 * brings BLOCKS_OF_SLAB at most. */
static uint32_t settled_by_slabs(uint32_t period, uint32_t given, uint32_t blocks_of_slab) {
    struct ace_depth_input in = {.depth = ace_depth_first(BYTES, ACE_BALANCED),
                                 .most = ace_depth_most(BYTES, ACE_BALANCED),
                                 .batch = ace_depth_batch(BYTES, ACE_BALANCED)};
    for (uint32_t miss = 0; miss < 10000; miss++) {
        const bool spills = miss % period < given;
        if (spills) in.spills++;
        else in.refills++;
        struct ace_depth_decision next = ace_depth_next(in);
        if (next.depth != in.depth) in.refills = in.spills = in.refilled_blocks = in.spilled_blocks = 0;
        in.depth = next.depth;
        const uint32_t half = in.depth / 2;
        if (spills) in.spilled_blocks += half;
        else in.refilled_blocks += half < blocks_of_slab ? half : blocks_of_slab;
    }
    return in.depth;
}

static uint32_t settled(uint32_t period, uint32_t given) { return settled_by_slabs(period, given, UINT32_MAX); }

/* One that only takes, or only gives, gains nothing from a deep bin. */
TEST(a_producer_settles_at_a_batch) {
    CHECK_EQ(settled(1, 0), 128);
    CHECK_EQ(settled(1, 1), 128);
}

/* As threads do that end and leave most of their blocks to others. */
TEST(who_takes_little_back_settles_at_a_batch) {
    CHECK_EQ(settled(9, 1), 128);
    CHECK_EQ(settled(9, 8), 128);
    CHECK_EQ(settled(4, 1), 128);
}

TEST(who_takes_all_back_gets_as_deep_as_may_be) {
    CHECK_EQ(settled(2, 1), ace_depth_most(BYTES, ACE_BALANCED));
    CHECK_EQ(settled(60, 30), ace_depth_most(BYTES, ACE_BALANCED));
}

/* Two refills bring what one spill takes away. */
TEST(short_refills_are_no_more_of_them) {
    CHECK_EQ(settled_by_slabs(3, 1, 32), 512); /* there they bring a quarter */
    CHECK_EQ(settled_by_slabs(3, 1, UINT32_MAX), 128);
}

/* The depth at which a stack of medium blocks ends of which LIVE are taken, and then given back, in turn; TAKEN of them by others. */
static uint32_t settled_one_by_one(uint32_t live, uint32_t taken) {
    struct ace_depth_input in = {.most = ace_depth_most(KIB(128), ACE_BALANCED), .one_by_one = true};
    uint32_t held = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        const bool takes = i % (2 * live) < live;
        if (takes ? held != 0 : held < in.depth) {
            held = takes ? held - 1 : held + 1;
            continue;
        }
        if (!takes && i % live < taken) continue;
        if (takes) in.refills++, in.refilled_blocks++;
        else in.spills++, in.spilled_blocks++;
        struct ace_depth_decision next = ace_depth_next(in);
        if (next.depth != in.depth) in.refills = in.spills = in.refilled_blocks = in.spilled_blocks = 0;
        in.depth = next.depth;
    }
    return in.depth;
}

/* As many as come and go together, and half as many again at most; none where hardly one comes back. */
TEST(medium_blocks_are_kept_once_they_swing) {
    for (uint32_t live = 1; live <= 64; live++) {
        const uint32_t depth = settled_one_by_one(live, 0);
        CHECK_AT(depth >= live && depth < 2 * live, live);
    }
    CHECK_EQ(settled_one_by_one(10, 10), 0);
    CHECK_EQ(settled_one_by_one(10, 8), 0);
}
