/* ceiling.h - the structural ceiling: hakmem's pop and push without checks. Those of heap/front.h that are missing here: of
 * the largest size, of the bounds of a stack, of the range of the window, of the owner of a page. */
#ifndef BENCH_CEILING_CEILING_H
#define BENCH_CEILING_CEILING_H

#include "prepare.h"

HAK_INLINE void *block_take(unsigned class) {
    front_slot *slot = slot_of(class);
    void **top = atomic_load_explicit(slot, memory_order_relaxed); /* the owner's own, as in front_pop */
    atomic_store_explicit(slot, top - 1, memory_order_relaxed);
    return front_block(top - 1);
}

HAK_INLINE void block_give(void *block) {
    front_slot *slot = (front_slot *)(void *)((char *)thread_state.front + block_class(block) * sizeof *slot);
    void **top = atomic_load_explicit(slot, memory_order_relaxed);
    front_block_set(top, block);
    atomic_store_explicit(slot, top + 1, memory_order_release); /* as in front_push */
}

#endif
