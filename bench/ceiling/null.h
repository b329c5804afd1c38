/* null.h - below the ceiling: a thread's one block of each class, handed out again and again, and a free that does
 * nothing. The time that a workload takes with it is the workload's own. All blocks of a class are the same, so what is read from
 * one is not what was written into it: WORKLOAD_SHARED_BLOCKS=1 tells the workload. */
#ifndef BENCH_CEILING_NULL_H
#define BENCH_CEILING_NULL_H

#include "prepare.h"

HAK_INLINE void *block_take(unsigned class) {
    return front_block(atomic_load_explicit(slot_of(class), memory_order_relaxed) - 1); /* it never moves */
}

HAK_INLINE void block_give(void *block) { (void)block; }

#endif
