/* null.h - below the ceiling: a thread's one block of each class, handed out again and again, and a free that does
 * nothing. What a workload takes on it is its own time. Blocks are one and the same, so that what is written into one is not
 * what is read from it: WORKLOAD_SHARED_BLOCKS=1 tells the workload. */
#ifndef BENCH_CEILING_NULL_H
#define BENCH_CEILING_NULL_H

#include "prepare.h"

HAK_INLINE void *block_take(unsigned class) {
    return front_block(atomic_load_explicit(slot_of(class), memory_order_relaxed) - 1); /* it never moves */
}

HAK_INLINE void block_give(void *block) { (void)block; }

#endif
