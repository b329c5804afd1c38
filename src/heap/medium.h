/* medium.h - takes medium blocks from the stacks of a front. They are freed into them as small ones are; but they are worth taking from a
 * sleeper to the last, so whoever does is told that one may be about to be popped. And they come one by one: a size that the thread has
 * none of is not worth a slab as long as it has the next larger one. */
#ifndef HAK_HEAP_MEDIUM_H
#define HAK_HEAP_MEDIUM_H

#include "heap/enter.h"
#include "region/colour.h"
#include "slab/slab.h"

/* A block of CLASS; NULL when there is none. Between here and medium_pop. */
HAK_INLINE void *medium_pop_of(struct front *front, unsigned class) {
    /* relaxed, all: the owner's own, and whoever raises lo has the barrier. */
    void **top = atomic_load_explicit(&front->top[class], memory_order_relaxed);
    if (HAK_UNLIKELY(top <= atomic_load_explicit(&front->lo[class], memory_order_relaxed))) return NULL;
    void *block = front_block(top - 1);
    atomic_signal_fence(memory_order_seq_cst); /* a handler that frees meanwhile writes over it once top is lower */
    atomic_store_explicit(&front->top[class], top - 1, memory_order_relaxed);
    front->wanted[class - SMALL_CLASSES] = true;
    return block;
}

/* Where the medium block of CLASS whose first page BLOCK lies in begins for a request of BYTES bytes at ALIGNMENT. */
HAK_INLINE void *medium_place(void *block, unsigned class, size_t bytes, size_t alignment) {
    const size_t page = page_index(block), slack = slab_classes[class].block_bytes - bytes;
    return (char *)page_address(page) + (colour_suits(alignment) ? colour_offset(page, slack) : 0);
}

/* A block of CLASS, or of the next; NULL when there is none, or a signal handler interrupted this or a slow path: it must not give back
 * what is about to be popped, either. By FRONT's owner, which it has. */
HAK_INLINE void *medium_pop(struct front *front, unsigned class, size_t bytes, size_t alignment) {
    if (HAK_UNLIKELY(!slow_enter())) return NULL;
    atomic_store_explicit(&front->popping, true, memory_order_relaxed); /* seen by whoever has the barrier */
    atomic_signal_fence(memory_order_seq_cst);
    void *block = medium_pop_of(front, class);
    if (HAK_UNLIKELY(block == NULL) && class + 1 < SIZE_CLASSES) block = medium_pop_of(front, ++class);
    atomic_store_explicit(&front->popping, false, memory_order_release); /* pairs with stack_take */
    slow_leave();
    return block == NULL ? NULL : medium_place(block, class, bytes, alignment);
}

#endif
