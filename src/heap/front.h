/* front.h - the fast paths: a thread's own stacks of free blocks, one per size class, and its buffer of freed blocks
 * of other heaps.
 *
 * top[c] points above the uppermost block of class c; between lo[c] and hi[c] the owner moves it without
 * synchronisation. Only the owner thread moves top and writes to the stack. lo and hi are written under the heap's
 * lock, by the owner or by another thread that wants the owner's next operation to take the slow path: so the bounds
 * are compared with <= and >=, and read atomically. The thread that raised lo may take what lies below it: see
 * reclaim.c. While a slow path changes a stack, its bounds let nothing pass: a signal handler finds it closed.
 *
 * A front without bounds (all zero) sends every operation to the slow path. Threads start with one of these. */
#ifndef HAK_HEAP_FRONT_H
#define HAK_HEAP_FRONT_H

#include "base/attributes.h"
#include "base/size_classes.h"
#include "heap/enter.h"
#include "region/window.h"
#include "slab/slab.h"

#include <stddef.h>

/* Capacity of a thread's buffer of other heaps' blocks: it is full at this many blocks or bytes. */
enum { REMOTE_BLOCKS = 256, REMOTE_BYTES = 256 * 1024 };

struct front {
    _Atomic(void **) top[SIZE_CLASSES + 1]; /* one more, always empty, as in lo: see medium.h */
    _Atomic(void **) lo[SIZE_CLASSES + 1];
    _Atomic(void **) hi[SIZE_CLASSES];
    void **keep[SIZE_CLASSES]; /* other heaps' blocks are kept below it: see free.c. NULL: none are */
    uint32_t stream_left[SIZE_CLASSES]; /* of these, yet to be freed before bin.streams changes: see stack.c. Owner only */
    _Atomic(void **) buffer_top; /* of the buffer of blocks to be returned to their owners: see buffer.c */
    void **buffer_end;
    _Atomic uint32_t buffer_bytes; /* pushed since the buffer was begun */
    _Atomic bool popping;          /* the owner is about to pop a medium block */
    bool wanted[SIZE_CLASSES - SMALL_CLASSES]; /* a medium block was wanted since stack_give_idle last looked. Owner only */
};

extern HAK_HIDDEN const struct front_constants {
    struct front none; /* of a thread without a heap yet: it has no bounds, so nothing is ever stored in it */
    unsigned char classes[SMALL_MAX_BYTES / SMALLEST_BLOCK_BYTES + 1]; /* by size, in units of SMALLEST_BLOCK_BYTES */
    struct front gone; /* of a thread whose heap has ended, or that never gets one: without bounds as well */
    unsigned char medium_classes[MEDIUM_MAX_BYTES / PAGE_BYTES + 1]; /* by size, in pages */
    unsigned char aligned_classes[SMALL_MAX_BYTES / ALIGNED_LEAST_BYTES + 1]; /* by size, in units of ALIGNED_LEAST_BYTES */
} front_constants;

HAK_INLINE struct front *thread_front(void) {
    return (struct front *)((uintptr_t)&front_constants.none + thread_state.front_distance);
}

/* Whether this thread has a heap: otherwise its front is one of the constants. */
HAK_INLINE bool thread_has_heap(void) { return thread_state.front_distance > offsetof(struct front_constants, gone); }

/* The word of a page: the low half of its heap's address, whose low 7 bits are 0, and the class. */
#define WORD_NONE 0u    /* no block starts here */
#define WORD_LARGE 127u /* a large block starts here: no class reaches 127 */
#define WORD_CLASS_MASK 127u
_Static_assert(SIZE_CLASSES <= WORD_LARGE, "classes fit below the mark of large blocks");

/* Class of a request of N bytes, at most MEDIUM_MAX_BYTES. */
HAK_INLINE unsigned size_class_of(size_t n) {
    return n <= SMALL_MAX_BYTES ? front_constants.classes[(n + SMALLEST_BLOCK_BYTES - 1) / SMALLEST_BLOCK_BYTES]
                                : front_constants.medium_classes[(n + PAGE_BYTES - 1) / PAGE_BYTES];
}

/* The same for N bytes, at most SMALL_MAX_BYTES and a multiple of ALIGNMENT; blocks of the plain class have
 * PLAIN_BYTES bytes. That class serves the request if all its blocks are so aligned. Branch-free: a branch here would
 * be unpredictable. */
HAK_INLINE unsigned aligned_class_of(size_t n, size_t alignment, size_t plain_bytes) {
    const unsigned plain = size_class_of(n), misfit = (plain_bytes & (alignment - 1)) != 0;
    const unsigned aligned = front_constants.aligned_classes[(n + ALIGNED_LEAST_BYTES - 1) / ALIGNED_LEAST_BYTES];
    return plain + ((aligned - plain) & -misfit);
}

/* Class of small blocks for BYTES bytes, a multiple of ALIGNMENT unless that is at most SMALLEST_BLOCK_BYTES. */
HAK_INLINE unsigned small_class_of(size_t bytes, size_t alignment) {
    return aligned_class_of(bytes, alignment, slab_classes[size_class_of(bytes)].block_bytes);
}

/* A medium block is a slab by itself. */
HAK_INLINE bool class_is_medium(unsigned class) { return class >= SMALL_CLASSES; }

typedef _Atomic(void **) front_slot;

/* The bound of the bin whose top is *SLOT, from the array at offset BOUNDS in the front: addressed from the slot,
 * which saves an instruction. relaxed: a bound that another thread stores is only a request to take the slow path. */
HAK_INLINE void **front_bound(front_slot *slot, size_t bounds) {
    return atomic_load_explicit((front_slot *)(void *)((char *)slot + bounds), memory_order_relaxed);
}

/* The block at PLACE in a stack. relaxed: published by top. */
HAK_INLINE void *front_block(void **place) {
    return atomic_load_explicit((_Atomic(void *) *)(void *)place, memory_order_relaxed);
}
HAK_INLINE void front_block_set(void **place, void *block) {
    atomic_store_explicit((_Atomic(void *) *)(void *)place, block, memory_order_relaxed);
}

/* Bytes of BLOCK if it is a small block of this heap or another; 0 if it is anything else, or NULL. */
HAK_INLINE size_t front_bytes_of(const void *block) {
    const size_t page = page_index(block);
    if (HAK_UNLIKELY(!page_is_inside(page))) return 0;
    const uint32_t word = page_word(page), class = word & WORD_CLASS_MASK;
    return word == WORD_NONE || class >= SMALL_CLASSES ? 0 : slab_classes[class].block_bytes;
}

/* Whether a block of USABLE bytes, small or not hakmem's, suits BYTES. If less than half of it would be in use, a smaller one is
 * worth the copy. */
HAK_INLINE bool front_suits(size_t usable, size_t bytes) {
    return bytes <= usable && (bytes >= usable / 2 || usable <= SMALLEST_BLOCK_BYTES);
}

/* front_pop of a block of CLASS. The class and the front are both found from BASE, &front_constants, which saves an
 * instruction. */
HAK_INLINE bool front_pop_of(const struct front_constants *base, unsigned class, void **block) {
    front_slot *slot = (front_slot *)((uintptr_t)&base->none.top[class] + thread_state.front_distance);
    void **top = atomic_load_explicit(slot, memory_order_relaxed); /* the owner's own */
    if (HAK_UNLIKELY(top <= front_bound(slot, offsetof(struct front, lo)))) return false;
    atomic_store_explicit(slot, top - 1, memory_order_relaxed); /* a pop publishes nothing */
    *block = front_block(top - 1);
    return true;
}

/* True when *BLOCK now serves a request of N bytes. False: take the slow path. */
HAK_INLINE bool front_pop(size_t n, void **block) {
    if (HAK_UNLIKELY(n > SMALL_MAX_BYTES)) return false;
    const struct front_constants *base = &front_constants;
    return front_pop_of(base, base->classes[(n + SMALLEST_BLOCK_BYTES - 1) / SMALLEST_BLOCK_BYTES], block);
}

/* The same for a block that is aligned to ALIGNMENT, a power of two. A slab begins at a page boundary, so its blocks are aligned to any
 * power of two that divides their size: there are no interior pointers. N is not 0, or the slow path has it. */
HAK_INLINE bool front_pop_aligned(size_t n, size_t alignment, void **block) {
    const size_t last = (alignment - 1) | (SMALLEST_BLOCK_BYTES - 1) | (n - 1); /* one less than the length, rounded up */
    if (HAK_UNLIKELY(last >= SMALL_MAX_BYTES)) return false;
    return front_pop_of(&front_constants, small_class_of(last + 1, alignment), block);
}

/* Keeps a block of CLASS of another heap in the stack. False, and nothing was done, if that holds enough of them or
 * the stream is due for a check. Owner only, between slow_enter and slow_leave; no lock held. */
HAK_INLINE bool front_keep(struct front *front, void *block, unsigned class) {
    void **top = atomic_load_explicit(&front->top[class], memory_order_relaxed); /* the owner's own */
    if (HAK_UNLIKELY(top >= front->keep[class] || front->stream_left[class] <= 1)) return false;
    front->stream_left[class]--;
    front_block_set(top, block);
    atomic_store_explicit(&front->top[class], top + 1, memory_order_release); /* as in front_push */
    return true;
}

/* Puts a block of CLASS of another heap into the buffer. False, and nothing was done, if it would take the last room,
 * or there is no heap. Owner only, between slow_enter and slow_leave; no lock held. */
HAK_INLINE bool front_buffer(struct front *front, void *block, unsigned class) {
    /* relaxed, both: the owner's own. */
    void **top = atomic_load_explicit(&front->buffer_top, memory_order_relaxed);
    const uint32_t bytes = atomic_load_explicit(&front->buffer_bytes, memory_order_relaxed) + slab_classes[class].block_bytes;
    if (HAK_UNLIKELY(top == front->buffer_end || bytes >= REMOTE_BYTES)) return false;
    front_block_set(top, block);
    atomic_store_explicit(&front->buffer_bytes, bytes, memory_order_relaxed);
    /* release: what the thread did with the block came before; pairs with the thread that takes it from the buffer. */
    atomic_store_explicit(&front->buffer_top, top + 1, memory_order_release);
    return true;
}

/* Keeps or buffers a block that is not this thread's, whatever it is. DIFFERENCE is its page's word xor this
 * thread's: the low 7 bits are the class. False: nothing was done. The busy mark makes a signal handler that frees
 * such blocks meanwhile take another path; one that uses the class's stack meanwhile is not kept out, as in
 * front_push. */
HAK_INLINE bool front_send(struct front *front, void *block, uint32_t difference) {
    const unsigned class = difference & WORD_CLASS_MASK;
    atomic_signal_fence(memory_order_seq_cst); /* so that own_word is read again: otherwise front_push would keep it in a
                                                * register for this path */
    if (HAK_UNLIKELY(front == NULL || difference - class == thread_state.own_word)) return false; /* the page's word names no heap */
    if (HAK_UNLIKELY(class_is_medium(class) || !slow_enter())) return false;
    const bool taken = HAK_UNLIKELY(front->keep[class] != NULL) ? front_keep(front, block, class) : front_buffer(front, block, class);
    slow_leave();
    return taken;
}

/* True when BLOCK is now in this thread's stack or buffer. False: take the slow path. */
HAK_INLINE bool front_push(void *block) {
    size_t page = page_index(block);
    if (HAK_UNLIKELY(!page_is_inside(page))) return false;
    struct front *front = thread_state.front;
    uint32_t class = page_word(page) ^ thread_state.own_word;
    if (HAK_UNLIKELY(class >= SIZE_CLASSES)) return front_send(front, block, class);
    front_slot *slot = &front->top[class];
    void **top = atomic_load_explicit(slot, memory_order_relaxed); /* the owner's own */
    if (HAK_UNLIKELY(top >= front_bound(slot, offsetof(struct front, hi)))) return false;
    front_block_set(top, block);
    /* release: what the thread did with the block came before; pairs with stack_take. */
    atomic_store_explicit(slot, top + 1, memory_order_release);
    return true;
}

#endif
