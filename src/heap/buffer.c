/* buffer.c - blocks of other heaps, collected until there are enough to return together.
 *
 * The buffer is a stack that its owner only pushes to, without the lock, like the stacks of the front. The blocks
 * between the bottom and the top belong to the holder of the heap's lock, which returns them and raises the bottom to
 * the top that it saw. When the buffer is full, the owner starts again at its beginning, under the lock. So no other
 * thread ever moves the top, a push reads no bottom, and neither side has to know whether the other is active. */
#include "heap/buffer.h"

#include "heap/footprint.h"

/* relaxed, all: the lock is held, and the caller is the owner, which moves the top, or there is no owner. */
static void begin_anew(struct heap *heap) {
    atomic_store_explicit(&heap->front.buffer_top, heap->buffer, memory_order_relaxed);
    atomic_store_explicit(&heap->front.buffer_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&heap->buffer_bottom, heap->buffer, memory_order_relaxed);
    atomic_store_explicit(&heap->buffer_given_bytes, 0, memory_order_relaxed);
}

void buffer_begin(struct heap *heap, void **start) {
    heap->buffer = start;
    heap->front.buffer_end = start + REMOTE_BLOCKS - 1; /* buffer_give_all stores the last one */
    begin_anew(heap);
}

/* Returns the blocks between the bottom and TOP, where no thread writes meanwhile. */
static size_t give_below(struct heap *heap, struct heap *freer, void **top) {
    void **bottom = atomic_load_explicit(&heap->buffer_bottom, memory_order_relaxed); /* under the lock */
    const size_t bytes = remote_give(freer, bottom, (size_t)(top - bottom));
    footprint_add(-(int64_t)bytes);
    return bytes;
}

void buffer_give_all(struct heap *heap, void *block) {
    void **top = atomic_load_explicit(&heap->front.buffer_top, memory_order_acquire); /* the owner may have been another thread */
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
