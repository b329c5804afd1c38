/* batch.h - how many blocks one miss moves, and how many of others' are kept. Pure functions; any thread.
 *
 * Half, whatever the objective: who fills or empties a stack by more than half is sooner at the other end of it. How much that
 * is in all, and what it costs, is decided with the depth. */
#ifndef HAK_ACE_BATCH_H
#define HAK_ACE_BATCH_H

#include <stdint.h>

/* Blocks that an empty stack of DEPTH is filled with. */
static inline uint32_t ace_refill(uint32_t depth) { return depth / 2 > 1 ? depth / 2 : 1; }

/* Blocks that a stack of DEPTH may hold for others' to be kept with them: more than a refill brings, or the next one would go
 * home, and fewer than fill it. */
static inline uint32_t ace_kept(uint32_t depth) { return depth - depth / 4; }

/* Blocks that a full stack of HELD gives back, the oldest. */
static inline uint64_t ace_spill(uint64_t held) { return (held + 1) / 2; }

#endif
