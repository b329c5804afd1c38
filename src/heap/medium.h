/* medium.h - takes medium blocks from the stacks of a front. They are freed into them as small ones are; but they are worth taking from a
 * sleeper to the last, so whoever does is told that one may be about to be popped. */
#ifndef HAK_HEAP_MEDIUM_H
#define HAK_HEAP_MEDIUM_H

#include "heap/enter.h"

/* A block of CLASS; NULL when there is none, or a signal handler interrupted this or a slow path: it must not give back what is about
 * to be popped, either. By FRONT's owner, which it has. */
HAK_INLINE void *medium_pop(struct front *front, unsigned class) {
    void *block = NULL;
    if (HAK_UNLIKELY(!slow_enter())) return NULL;
    /* relaxed, but for the last: the owner's own, and whoever raises lo has the barrier. */
    atomic_store_explicit(&front->popping, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    void **top = atomic_load_explicit(&front->top[class], memory_order_relaxed);
    if (HAK_LIKELY(top > atomic_load_explicit(&front->lo[class], memory_order_relaxed))) {
        block = front_block(top - 1);
        atomic_signal_fence(memory_order_seq_cst); /* a handler that frees meanwhile writes over it once top is lower */
        atomic_store_explicit(&front->top[class], top - 1, memory_order_relaxed);
        front->wanted[class - SMALL_CLASSES] = true;
    }
    atomic_store_explicit(&front->popping, false, memory_order_release); /* pairs with stack_take */
    slow_leave();
    return block;
}

#endif
