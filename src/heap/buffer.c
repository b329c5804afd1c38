/* buffer.c - blocks of other heaps, kept until there are enough to give back together.
 *
 * The buffer is a stack that its owner only pushes to, without the lock, like the stacks of the front. What lies between the
 * bottom and the top is whoever's who holds the heap's lock: he gives it back, and raises the bottom to the top that he saw.
 * The owner begins at the start again, under the lock, when it is full. So nobody else ever moves the top, the owner reads no
 * bottom, and neither has to know whether the other is at it. */
#include "heap/buffer.h"

#include "heap/footprint.h"

/* relaxed, all: under the lock, and the top is moved by the owner, or there is none. */
static void begin_anew(struct heap *heap) {
    atomic_store_explicit(&heap->front.buffer_top, heap->buffer, memory_order_relaxed);
    atomic_store_explicit(&heap->front.buffer_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&heap->buffer_bottom, heap->buffer, memory_order_relaxed);
    atomic_store_explicit(&heap->buffer_given_bytes, 0, memory_order_relaxed);
}

void buffer_begin(struct heap *heap, void **start) {
    heap->buffer = start;
    heap->front.buffer_end = start + REMOTE_BLOCKS - 1; /* the last one is given at once */
    begin_anew(heap);
}

/* Gives back what lies between the bottom and TOP, where nobody writes meanwhile. */
static size_t give_below(struct heap *heap, struct heap *freer, void **top) {
    void **bottom = atomic_load_explicit(&heap->buffer_bottom, memory_order_relaxed); /* under the lock */
    const size_t bytes = remote_give(freer, bottom, (size_t)(top - bottom));
    footprint_add(-(int64_t)bytes);
    return bytes;
}

void buffer_give_all(struct heap *heap, void *block) {
    void **top = atomic_load_explicit(&heap->front.buffer_top, memory_order_acquire); /* where another's thread was the owner */
    if (block != NULL) front_block_set(top++, block);
    give_below(heap, heap, top);
    begin_anew(heap);
}

void buffer_take(struct heap *heap) {
    if (buffer_held(heap) == 0) return;
    void **top = atomic_load_explicit(&heap->front.buffer_top, memory_order_acquire); /* pairs with front_buffer */
    const size_t bytes = give_below(heap, NULL, top);
    const uint32_t given = atomic_load_explicit(&heap->buffer_given_bytes, memory_order_relaxed); /* under the lock */
    atomic_store_explicit(&heap->buffer_bottom, top, memory_order_relaxed);
    atomic_store_explicit(&heap->buffer_given_bytes, given + (uint32_t)bytes, memory_order_relaxed);
}

bool buffer_take_unlocked(struct heap *heap) {
    if (buffer_held(heap) == 0) return false;
    os_lock_take(&heap->lock);
    buffer_take(heap);
    os_lock_drop(&heap->lock);
    return true;
}
