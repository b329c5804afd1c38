/* buffer.h - blocks of other heaps, kept until there are enough to give back together: see buffer.c. Its owner fills it by front_buffer.
 * Internal to the heap floor. */
#ifndef HAK_HEAP_BUFFER_H
#define HAK_HEAP_BUFFER_H

#include "heap/heap.h"

/* The heap's lock held, all of these. */

/* The empty buffer of a heap that nobody has yet; with room for REMOTE_BLOCKS at START. */
void buffer_begin(struct heap *heap, void **start);

/* Gives back all that is in it, and BLOCK, which may be NULL. The owner, or anybody when there is none. */
void buffer_give_all(struct heap *heap, void *block);

/* Gives back what is in it, while the owner goes on. */
void buffer_take(struct heap *heap);

/* The same, whoever has HEAP; false when there is nothing. No lock held; call remote_settle afterwards. */
bool buffer_take_unlocked(struct heap *heap);

/* What waits in it: relaxed, a hint to whoever does not hold the lock. */
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
