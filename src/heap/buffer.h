/* buffer.h - blocks of other heaps, collected until there are enough to return together: see buffer.c. The owner
 * fills the buffer by front_buffer. Internal to the heap layer. */
#ifndef HAK_HEAP_BUFFER_H
#define HAK_HEAP_BUFFER_H

#include "heap/heap.h"

/* The heap's lock is held, unless said otherwise. */

/* Sets up the empty buffer of a new heap that no other thread knows yet, with room for REMOTE_BLOCKS at START. */
void buffer_begin(struct heap *heap, void **start);

/* Returns all that is in it, and BLOCK unless NULL. By the owner, or by any thread when there is none. */
void buffer_give_all(struct heap *heap, void *block);

/* Returns what is in it while the owner goes on pushing. */
void buffer_take(struct heap *heap);

/* The same, whichever thread has HEAP; false when there is nothing. No lock held; call remote_settle afterwards. */
bool buffer_take_unlocked(struct heap *heap);

/* How many blocks and bytes wait in it. relaxed: a hint to a caller that does not hold the lock. */
HAK_INLINE size_t buffer_held(const struct heap *heap) {
    void **bottom = atomic_load_explicit(&heap->buffer_bottom, memory_order_relaxed);
    void **top = atomic_load_explicit(&heap->front.buffer_top, memory_order_relaxed);
    return top > bottom ? (size_t)(top - bottom) : 0;
}
HAK_INLINE size_t buffer_held_bytes(const struct heap *heap) {
    const uint32_t given = atomic_load_explicit(&heap->buffer_given_bytes, memory_order_relaxed);
    const uint32_t bytes = atomic_load_explicit(&heap->front.buffer_bytes, memory_order_relaxed);
    return bytes > given ? bytes - given : 0;
}

#endif
