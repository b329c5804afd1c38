/* buffer.h - blocks of other heaps, kept until there are enough to give back together: see buffer.c. Internal to the heap
 * floor. */
#ifndef HAK_HEAP_BUFFER_H
#define HAK_HEAP_BUFFER_H

#include "heap/heap.h"

struct buffer_fill {
    uint32_t count, bytes;
};

/* What will be in it with a block more. relaxed: the owner's own, or under the lock. */
HAK_INLINE struct buffer_fill buffer_fill_with(struct heap *heap, uint32_t block_bytes) {
    return (struct buffer_fill){atomic_load_explicit(&heap->remote_count, memory_order_relaxed) + 1,
                                atomic_load_explicit(&heap->remote_bytes, memory_order_relaxed) + block_bytes};
}

/* Then all in it is given back. */
HAK_INLINE bool buffer_is_full(struct buffer_fill fill) {
    return fill.count == REMOTE_BLOCKS || fill.bytes >= REMOTE_BYTES;
}

HAK_INLINE void buffer_add(struct heap *heap, void *block, struct buffer_fill fill) {
    atomic_store_explicit(&heap->remote[fill.count - 1], block, memory_order_relaxed);
    atomic_store_explicit(&heap->remote_bytes, fill.bytes, memory_order_relaxed);
    /* release: the child of a fork in another thread finds the blocks that the count promises. */
    atomic_store_explicit(&heap->remote_count, fill.count, memory_order_release);
}

/* The owner goes in; false when someone else wants the buffer: he leaves, and takes the lock. */
HAK_INLINE bool buffer_enter(struct heap *heap) {
    atomic_store_explicit(&heap->remote_busy, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the cheap half of os_barrier_others */
    /* acquire: whoever let us in again emptied the buffer before. */
    return HAK_LIKELY(!atomic_load_explicit(&heap->remote_wanted, memory_order_acquire));
}
HAK_INLINE void buffer_leave(struct heap *heap) {
    atomic_store_explicit(&heap->remote_busy, false, memory_order_release); /* what we did is seen by buffer_take */
}

/* Keeps a block of another heap, where that is short work; false: nothing was done, and buffer_keep is to. Owner only. */
HAK_INLINE bool buffer_keep_quickly(struct heap *heap, void *block, uint32_t block_bytes) {
    bool kept = false;
    if (HAK_LIKELY(buffer_enter(heap))) {
        const struct buffer_fill fill = buffer_fill_with(heap, block_bytes);
        kept = HAK_LIKELY(!buffer_is_full(fill));
        if (kept) buffer_add(heap, block, fill);
    }
    buffer_leave(heap);
    return kept;
}

/* Keeps one at any time. True when the buffer was full, and all was given back: call remote_settle. Owner only; no lock
 * held. */
bool buffer_keep(struct heap *heap, void *block, uint32_t block_bytes);

/* Gives back what a heap has that nobody uses any more. Whoever holds the heap's lock, or is alone. */
void buffer_give_all(struct heap *heap);

/* Asks the owner to stay out; buffer_take then gives back what the buffer of a sleeping owner holds, after
 * os_barrier_others, and lets it in again. Each takes the heap's lock. */
void buffer_want(struct heap *heap);
void buffer_take(struct heap *heap, bool barrier_passed);

#endif
