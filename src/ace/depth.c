/* depth.c - the rule for a bin's depth.
 *
 * A miss moves half the depth. Its fixed cost is spread over the blocks it moves, so after a few misses of any kind the depth may
 * grow to BATCH_DEPTH, or twice that for tiny blocks. Beyond that a deeper bin pays only if the program's swing between an empty and
 * a full stack would fit into it. A pure producer or consumer never swings. If a program takes some of its blocks back now and then,
 * a deeper stack would only hold most of them longer. So a bin must take and give about as many. They are counted in blocks, since a
 * refill from a new slab may bring fewer than a spill takes away.
 *
 * A medium block is as large as a whole stack of small ones. So medium blocks are kept only after they are seen to swing, and a miss
 * moves one. Their depths change by a quarter: if the budget is too small for all sizes, each size settles near one depth, and
 * doubling and halving would step over it again and again (decision 0052). */
#include "ace/depth.h"

#include "base/bits.h"
#include "base/size_classes.h"

enum {
    FIRST_BYTES = 16 * 1024,
    FIRST_MOST = 32,
    LEAST = 4,
    BATCH_DEPTH = 128,
    TINY_BYTES = 128, /* bins of smaller blocks get twice as deep */
    MISSES_FOR_BATCH = 3,
    MISSES_FOR_SWING = 8,
    MISSES_FOR_SWING_ONE_BY_ONE = 4,
    MOST_BYTES = 2 * 1024 * 1024,
    MEDIUM_MOST_BYTES = 4 * MOST_BYTES,
    MOST = 8192,
};

static uint32_t clamp(size_t value, uint32_t least, uint32_t most) {
    return value < least ? least : value > most ? most : (uint32_t)value;
}

static bool is_medium(size_t block_bytes) { return block_bytes > SMALL_MAX_BYTES; }

static uint32_t least(enum ace_objective objective) { return (uint32_t)ace_choose(objective, LEAST / 2, LEAST, LEAST); }

uint32_t ace_depth_first(size_t block_bytes, enum ace_objective objective) {
    if (is_medium(block_bytes)) return 0;
    const size_t bytes = ace_choose(objective, FIRST_BYTES / 2, FIRST_BYTES, FIRST_BYTES * 2);
    return clamp(bytes / block_bytes, least(objective),
                 (uint32_t)ace_choose(objective, FIRST_MOST / 2, FIRST_MOST, FIRST_MOST * 2));
}

/* No stack is longer than MOST, whatever the objective: the pool in heap/stack.c has no longer ones. */
uint32_t ace_depth_most(size_t block_bytes, enum ace_objective objective) {
    const bool medium = is_medium(block_bytes);
    const size_t balanced = medium ? MEDIUM_MOST_BYTES : MOST_BYTES, bytes = ace_choose(objective, balanced / 8, balanced, balanced * 2);
    return clamp(bytes / block_bytes, medium ? 0 : least(objective), (uint32_t)ace_choose(objective, MOST / 2, MOST, MOST));
}

uint32_t ace_depth_batch(size_t block_bytes, enum ace_objective objective) {
    if (is_medium(block_bytes)) return 0;
    const uint32_t balanced = block_bytes < TINY_BYTES ? 2 * BATCH_DEPTH : BATCH_DEPTH;
    return (uint32_t)ace_choose(objective, balanced / 2, balanced, balanced * 2);
}

static bool swings(const struct ace_depth_input *input) {
    const uint64_t taken = input->refilled_blocks, given = input->spilled_blocks, fewer = taken < given ? taken : given;
    return (uint64_t)input->refills + input->spills >= (input->one_by_one ? MISSES_FOR_SWING_ONE_BY_ONE : MISSES_FOR_SWING) &&
           fewer != 0 && fewer * 7 >= (taken + given) * 3; /* three of one to four of the other */
}

struct ace_depth_decision ace_depth_next(struct ace_depth_input input) {
    struct ace_depth_decision keep = {input.depth, ACE_DEPTH_KEEP};
    if (input.depth >= input.most) return keep;
    const uint32_t more = input.one_by_one ? input.depth + input.depth / 4 + 1 : 2 * input.depth;
    const uint32_t deeper = min_u32(more, input.most);
    if (swings(&input)) return (struct ace_depth_decision){deeper, ACE_DEPTH_SWING};
    if (input.depth < input.batch && input.refills + input.spills >= MISSES_FOR_BATCH)
        return (struct ace_depth_decision){deeper, ACE_DEPTH_BATCH};
    return keep;
}

uint32_t ace_depth_given(uint32_t depth, uint32_t first, bool one_by_one) {
    return max_u32(one_by_one ? depth - (depth + 3) / 4 : depth / 2, first);
}
