/* medium.h - takes medium blocks from the stacks of a front. They are freed into these as small ones are. But they
 * are worth taking from a sleeping thread down to the last one, so the thread that does so is told that one may be
 * about to be popped. And they come one at a time: if a thread has none of a size but one of the next larger, that
 * serves in place of a new slab. */
#ifndef HAK_HEAP_MEDIUM_H
#define HAK_HEAP_MEDIUM_H

#include "heap/enter.h"
#include "region/colour.h"
#include "slab/slab.h"

/* Takes a block of *CLASS, or of the next, which *CLASS then is; false when there is none. Only for medium_pop.
 * Branch-free: which of two sizes has one is unpredictable. */
HAK_INLINE bool medium_pop_of(struct front *front, size_t *class, void **block) {
    /* relaxed, all: the owner's own, and a thread that raises lo uses the barrier. */
    const uintptr_t lo = (uintptr_t)atomic_load_explicit(&front->lo[*class], memory_order_relaxed);
    *class += 1 - (size_t)(lo < (uintptr_t)atomic_load_explicit(&front->top[*class], memory_order_relaxed));
    front_slot *slot = &front->top[*class];
    void **top = atomic_load_explicit(slot, memory_order_relaxed);
    if (HAK_UNLIKELY(top <= front_bound(slot, offsetof(struct front, lo)))) return false;
    *block = front_block(top - 1);
    atomic_signal_fence(memory_order_seq_cst); /* once top is lower, a signal handler that frees writes over it */
    atomic_store_explicit(slot, top - 1, memory_order_relaxed);
    front->wanted[*class - SMALL_CLASSES] = true;
    return true;
}

/* The address, for a request of BYTES bytes at ALIGNMENT, of the medium block of CLASS in whose first page BLOCK
 * lies. */
HAK_INLINE void *medium_place(void *block, size_t class, size_t bytes, size_t alignment) {
    char *start = page_start(block);
    return start + (colour_suits(alignment) ? colour_offset(start, slab_classes[class].block_bytes - bytes) : 0);
}

/* True when *BLOCK now serves a request of BYTES bytes, of any size, at ALIGNMENT. False: none is at hand, or the
 * caller is a signal handler that interrupted this or a slow path; it must not free what is about to be popped,
 * either. At any time. */
HAK_INLINE bool medium_pop(size_t bytes, size_t alignment, void **block) {
    if (HAK_UNLIKELY(bytes <= SMALL_MAX_BYTES || bytes > MEDIUM_MAX_BYTES || alignment > PAGE_BYTES || !thread_has_heap())) return false;
    if (HAK_UNLIKELY(!slow_enter())) return false;
    struct front *front = thread_front();
    size_t class = size_class_of(bytes);
    atomic_store_explicit(&front->popping, true, memory_order_relaxed); /* seen by a thread that uses the barrier */
    atomic_signal_fence(memory_order_seq_cst);
    const bool popped = medium_pop_of(front, &class, block);
    atomic_store_explicit(&front->popping, false, memory_order_release); /* pairs with stack_take */
    slow_leave();
    if (HAK_LIKELY(popped)) *block = medium_place(*block, class, bytes, alignment);
    return popped;
}

#endif
