/* buffer.c - blocks of other heaps, kept until there are enough to give back together.
 *
 * The owner goes in and out without the lock: it says that it is busy, and then looks whether someone else wants the
 * buffer; if so it takes the lock after all. Whoever empties the buffers of sleepers says so first, lets every running
 * thread pass a barrier, and then looks whether the owner is busy; if so it leaves it alone. After the barrier one of
 * the two has seen the other: the owner pays for no barrier, the one who comes once in a while pays for all. */
#include "heap/footprint.h"
#include "heap/heap.h"

HAK_INLINE bool enter(struct heap *heap) {
    atomic_store_explicit(&heap->remote_busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the cheap half of os_barrier_others */
    /* acquire: whoever let us in again emptied the buffer before. */
    if (HAK_LIKELY(!atomic_load_explicit(&heap->remote_wanted, memory_order_acquire))) return false;
    atomic_store_explicit(&heap->remote_busy, false, memory_order_release);
    os_lock_take(&heap->lock);
    return true;
}

HAK_INLINE void leave(struct heap *heap, bool locked) {
    if (HAK_UNLIKELY(locked))
        os_lock_drop(&heap->lock);
    else
        atomic_store_explicit(&heap->remote_busy, false, memory_order_release); /* what we did is seen by buffer_take */
}

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
    bool locked = enter(heap);
    /* relaxed: the owner's own, or under the lock. */
    uint32_t count = atomic_load_explicit(&heap->remote_count, memory_order_relaxed);
    uint32_t bytes = atomic_load_explicit(&heap->remote_bytes, memory_order_relaxed) + block_bytes;
    atomic_store_explicit(&heap->remote[count], block, memory_order_relaxed);
    atomic_store_explicit(&heap->remote_bytes, bytes, memory_order_relaxed);
    /* release: the child of a fork in another thread finds the blocks that the count promises. */
    atomic_store_explicit(&heap->remote_count, ++count, memory_order_release);
    bool full = count == REMOTE_BLOCKS || bytes >= REMOTE_BYTES;
    if (HAK_UNLIKELY(full)) buffer_give_all(heap);
    leave(heap, locked);
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
