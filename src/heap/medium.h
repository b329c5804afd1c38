/* medium.h - takes medium blocks from the stacks of a front. They are freed into them as small ones are; but they are worth taking from a
 * sleeper to the last, so whoever does is told that one may be about to be popped. And they come one by one: a size that the thread has
 * none of is not worth a slab as long as it has the next larger one. */
#ifndef HAK_HEAP_MEDIUM_H
#define HAK_HEAP_MEDIUM_H

#include "heap/enter.h"
#include "region/colour.h"
#include "slab/slab.h"

/* Takes a block of *CLASS, or of the next, which *CLASS then is; false where there is none. Between here and medium_pop. No branch
 * chooses: which of two sizes has one could not be foretold. */
HAK_INLINE bool medium_pop_of(struct front *front, size_t *class, void **block) {
    /* relaxed, all: the owner's own, and whoever raises lo has the barrier. */
    const uintptr_t lo = (uintptr_t)atomic_load_explicit(&front->lo[*class], memory_order_relaxed);
    *class += 1 - (size_t)(lo < (uintptr_t)atomic_load_explicit(&front->top[*class], memory_order_relaxed));
    front_slot *slot = &front->top[*class];
    void **top = atomic_load_explicit(slot, memory_order_relaxed);
    if (HAK_UNLIKELY(top <= front_bound(slot, offsetof(struct front, lo)))) return false;
    *block = front_block(top - 1);
    atomic_signal_fence(memory_order_seq_cst); /* a handler that frees meanwhile writes over it once top is lower */
    atomic_store_explicit(slot, top - 1, memory_order_relaxed);
    front->wanted[*class - SMALL_CLASSES] = true;
    return true;
}

/* Where the medium block of CLASS whose first page BLOCK lies in begins for a request of BYTES bytes at ALIGNMENT. */
HAK_INLINE void *medium_place(void *block, size_t class, size_t bytes, size_t alignment) {
    char *start = page_start(block);
    return start + (colour_suits(alignment) ? colour_offset(start, slab_classes[class].block_bytes - bytes) : 0);
}

/* True when *BLOCK now serves a request of BYTES bytes, of any size, at ALIGNMENT. False: there is none at hand, or a signal handler
 * interrupted this or a slow path, and must not give back what is about to be popped, either. At any time. */
HAK_INLINE bool medium_pop(size_t bytes, size_t alignment, void **block) {
    if (HAK_UNLIKELY(bytes <= SMALL_MAX_BYTES || bytes > MEDIUM_MAX_BYTES || alignment > PAGE_BYTES || !thread_has_heap())) return false;
    if (HAK_UNLIKELY(!slow_enter())) return false;
    struct front *front = thread_front();
    size_t class = size_class_of(bytes);
    atomic_store_explicit(&front->popping, true, memory_order_relaxed); /* seen by whoever has the barrier */
    atomic_signal_fence(memory_order_seq_cst);
    const bool popped = medium_pop_of(front, &class, block);
    atomic_store_explicit(&front->popping, false, memory_order_release); /* pairs with stack_take */
    slow_leave();
    if (HAK_LIKELY(popped)) *block = medium_place(*block, class, bytes, alignment);
    return popped;
}

#endif
