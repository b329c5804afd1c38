/* batch.h - how many blocks one miss moves, and how many blocks of other heaps a stack keeps. Pure functions; any thread.
 *
 * A miss moves half the depth at most, whatever the objective: to fill or empty a stack by more only brings the next miss, at its other
 * end, sooner. How many blocks that is, and what they cost, is decided with the depth. */
#ifndef HAK_ACE_BATCH_H
#define HAK_ACE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks that an empty stack of DEPTH is filled with. Where its slabs are SHARED with other threads, the REFILLth of its size, counted
 * from 1, brings at most 2, 4, 8 and so on: with many threads that use few blocks each, those would otherwise lie as far apart as all
 * that the others were given reaches (decision 0080). */
static inline uint32_t ace_refill(uint32_t depth, bool shared, uint64_t refill) {
    const uint32_t half = depth / 2 > 1 ? depth / 2 : 1;
    return shared && refill < 32 && half > UINT32_C(1) << refill ? UINT32_C(1) << refill : half;
}

/* Blocks of other heaps are kept in a stack of DEPTH while it holds fewer blocks than this. It is more than a refill brings, since
 * the next such block would otherwise be returned to its owner, and less than fills the stack. */
static inline uint32_t ace_kept(uint32_t depth) { return depth - depth / 4; }

/* How many of the HELD blocks of a full stack are spilled, the oldest first. */
static inline uint64_t ace_spill(uint64_t held) { return (held + 1) / 2; }

#endif
