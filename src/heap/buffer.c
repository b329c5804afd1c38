/* buffer.c - blocks of other heaps, kept until there are enough to give back together.
 *
 * The owner goes in and out without the lock: it says that it is busy, and then looks whether someone else wants the
 * buffer; if so it takes the lock after all. Whoever empties the buffers of sleepers says so first, lets every running
 * thread pass a barrier, and then looks whether the owner is busy; if so it leaves it alone. After the barrier one of
 * the two has seen the other: the owner pays for no barrier, the one who comes once in a while pays for all. */
#include "heap/buffer.h"

#include "heap/footprint.h"

void buffer_give_all(struct heap *heap) {
    void *blocks[REMOTE_BLOCKS];
    /* acquire: pairs with the release in buffer_keep when this is the child of a fork. */
    uint32_t count = atomic_load_explicit(&heap->remote_count, memory_order_acquire);
    for (uint32_t i = 0; i < count; i++) blocks[i] = atomic_load_explicit(&heap->remote[i], memory_order_relaxed);
    footprint_add(-(int64_t)atomic_load_explicit(&heap->remote_bytes, memory_order_relaxed));
    atomic_store_explicit(&heap->remote_bytes, 0, memory_order_relaxed);
    /* release, and before the first bit is set: a fork in another thread never finds blocks in the buffer that are on
     * their way. */
    atomic_store_explicit(&heap->remote_count, 0, memory_order_release);
    remote_give(blocks, count);
}

bool buffer_keep(struct heap *heap, void *block, uint32_t block_bytes) {
    const bool locked = !buffer_enter(heap);
    if (locked) {
        buffer_leave(heap);
        os_lock_take(&heap->lock);
    }
    const struct buffer_fill fill = buffer_fill_with(heap, block_bytes);
    buffer_add(heap, block, fill);
    const bool full = buffer_is_full(fill);
    if (full) buffer_give_all(heap);
    if (locked)
        os_lock_drop(&heap->lock);
    else
        buffer_leave(heap);
    return full;
}

void buffer_want(struct heap *heap) {
    os_lock_take(&heap->lock);
    atomic_store_explicit(&heap->remote_wanted, true, memory_order_relaxed); /* the barrier comes next */
    os_lock_drop(&heap->lock);
}

void buffer_take(struct heap *heap, bool barrier_passed) {
    os_lock_take(&heap->lock);
    /* acquire: pairs with leave. */
    if (barrier_passed && !atomic_load_explicit(&heap->remote_busy, memory_order_acquire)) buffer_give_all(heap);
    atomic_store_explicit(&heap->remote_wanted, false, memory_order_release); /* pairs with enter */
    os_lock_drop(&heap->lock);
}
