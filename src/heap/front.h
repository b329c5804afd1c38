/* front.h - the fast paths: a thread's own stacks of free blocks, one per size class, and the buffer of what it frees of other heaps'.
 *
 * top[c] points above the uppermost block of class c; between lo[c] and hi[c] it may be moved without
 * asking anyone. Only the owner thread moves top and writes to the stack. lo and hi are written under the
 * heap's lock, by the owner or by another thread that wants the owner's next operation to take the slow
 * path: so the bounds are compared with <= and >=, and read atomically. What lies below lo may be taken by whoever
 * raised it: see reclaim.c. The bounds of a stack that a slow path changes let nothing pass: a signal handler finds it closed.
 *
 * A front without bounds (all zero) sends every operation the slow way. Threads start with such a one. */
#ifndef HAK_HEAP_FRONT_H
#define HAK_HEAP_FRONT_H

#include "base/attributes.h"
#include "base/size_classes.h"
#include "heap/enter.h"
#include "region/window.h"
#include "slab/slab.h"

#include <stddef.h>

/* What a thread's buffer holds at most of other heaps' blocks; so many fill it, or have that many bytes. */
enum { REMOTE_BLOCKS = 256, REMOTE_BYTES = 256 * 1024 };

struct front {
    _Atomic(void **) top[SIZE_CLASSES + 1]; /* and one that is always empty, like the next: see medium.h */
    _Atomic(void **) lo[SIZE_CLASSES + 1];
    _Atomic(void **) hi[SIZE_CLASSES];
    void **keep[SIZE_CLASSES]; /* of other heaps' blocks, below it: see free.c. NULL: they are sent home */
    uint32_t stream_left[SIZE_CLASSES]; /* of these that are freed, before streams changes: see stack.c. The owner's own */
    _Atomic(void **) buffer_top; /* those on their way home: see buffer.c */
    void **buffer_end;
    _Atomic uint32_t buffer_bytes; /* that were pushed since it was begun */
    _Atomic bool popping;          /* the owner is about to pop a medium block */
    bool wanted[SIZE_CLASSES - SMALL_CLASSES]; /* medium blocks, since stack_give_idle last looked. The owner's own */
};

extern HAK_HIDDEN const struct front_constants {
    struct front none; /* of a thread that has no heap yet: without bounds nothing is ever stored in it */
    unsigned char classes[SMALL_MAX_BYTES / SMALLEST_BLOCK_BYTES + 1]; /* by size, in smallest blocks */
    struct front gone; /* of a thread after its last operation, without bounds as well */
    unsigned char medium_classes[MEDIUM_MAX_BYTES / PAGE_BYTES + 1]; /* by size, in pages */
    unsigned char aligned_classes[SMALL_MAX_BYTES / ALIGNED_LEAST_BYTES + 1]; /* by size, in the least of their blocks */
} front_constants;

HAK_INLINE struct front *thread_front(void) {
    return (struct front *)((uintptr_t)&front_constants.none + thread_state.front_distance);
}

/* Whether this thread has one of its own: else its front is one of the constants. */
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

/* The same of N bytes, at most SMALL_MAX_BYTES and a multiple of ALIGNMENT, of whose plain class the blocks have PLAIN_BYTES bytes: that
 * class, if all its blocks are so aligned. No branch, since none could be foretold. */
HAK_INLINE unsigned aligned_class_of(size_t n, size_t alignment, size_t plain_bytes) {
    const unsigned plain = size_class_of(n), misfit = (plain_bytes & (alignment - 1)) != 0;
    const unsigned aligned = front_constants.aligned_classes[(n + ALIGNED_LEAST_BYTES - 1) / ALIGNED_LEAST_BYTES];
    return plain + ((aligned - plain) & -misfit);
}

/* Medium blocks, which are slabs by themselves. */
HAK_INLINE bool class_is_medium(unsigned class) { return class >= SMALL_CLASSES; }

typedef _Atomic(void **) front_slot;

/* The bound of the bin whose top is *SLOT, from the array at BOUNDS in the front: addressed from the
 * slot, which spares an instruction. relaxed: a bound that another thread stores is only a request to come by. */
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

/* front_pop of a block of CLASS. The class and the front are both found from BASE, &front_constants, which spares an instruction. */
HAK_INLINE bool front_pop_of(const struct front_constants *base, unsigned class, void **block) {
    front_slot *slot = (front_slot *)((uintptr_t)&base->none.top[class] + thread_state.front_distance);
    void **top = atomic_load_explicit(slot, memory_order_relaxed); /* the owner's own */
    if (HAK_UNLIKELY(top <= front_bound(slot, offsetof(struct front, lo)))) return false;
    atomic_store_explicit(slot, top - 1, memory_order_relaxed); /* nothing is given away */
    *block = front_block(top - 1);
    return true;
}

/* True when *BLOCK now serves a request of N bytes. False: take the slow path. */
HAK_INLINE bool front_pop(size_t n, void **block) {
    if (HAK_UNLIKELY(n > SMALL_MAX_BYTES)) return false;
    const struct front_constants *base = &front_constants;
    return front_pop_of(base, base->classes[(n + SMALLEST_BLOCK_BYTES - 1) / SMALLEST_BLOCK_BYTES], block);
}

/* Keeps a block of CLASS that is another heap's in the stack; false where that holds enough of them, or the stream of them is to be looked at:
 * nothing was done. Owner only, between slow_enter and slow_leave; no lock held. */
HAK_INLINE bool front_keep(struct front *front, void *block, unsigned class) {
    void **top = atomic_load_explicit(&front->top[class], memory_order_relaxed); /* the owner's own */
    if (HAK_UNLIKELY(top >= front->keep[class] || front->stream_left[class] <= 1)) return false;
    front->stream_left[class]--;
    front_block_set(top, block);
    atomic_store_explicit(&front->top[class], top + 1, memory_order_release); /* as in front_push */
    return true;
}

/* Puts a block of CLASS that is another heap's into the buffer; false when it would be the last for which there is room, or there is no
 * heap: nothing was done. Owner only, between slow_enter and slow_leave; no lock held. */
HAK_INLINE bool front_buffer(struct front *front, void *block, unsigned class) {
    /* relaxed, both: the owner's own. */
    void **top = atomic_load_explicit(&front->buffer_top, memory_order_relaxed);
    const uint32_t bytes = atomic_load_explicit(&front->buffer_bytes, memory_order_relaxed) + slab_classes[class].block_bytes;
    if (HAK_UNLIKELY(top == front->buffer_end || bytes >= REMOTE_BYTES)) return false;
    front_block_set(top, block);
    atomic_store_explicit(&front->buffer_bytes, bytes, memory_order_relaxed);
    /* release: what the thread did with the block came before; pairs with whoever takes it from there. */
    atomic_store_explicit(&front->buffer_top, top + 1, memory_order_release);
    return true;
}

/* Keeps or buffers a block that is not this thread's, whatever it is: the word of its page differs from this thread's by DIFFERENCE,
 * which is the class where the other's address is taken off. False: nothing was done. The mark has a signal handler that frees such blocks
 * meanwhile take another way; one that uses the class's stack meanwhile is not kept out, as in front_push. */
HAK_INLINE bool front_send(struct front *front, void *block, uint32_t difference) {
    const unsigned class = difference & WORD_CLASS_MASK;
    atomic_signal_fence(memory_order_seq_cst); /* the word is read anew, or front_push would keep it in a register for this */
    if (HAK_UNLIKELY(front == NULL || difference - class == thread_state.own_word)) return false; /* the word is that of no heap */
    if (HAK_UNLIKELY(class_is_medium(class) || !slow_enter())) return false;
    const bool taken = HAK_UNLIKELY(front->keep[class] != NULL) ? front_keep(front, block, class) : front_buffer(front, block, class);
    slow_leave();
    return taken;
}

/* True when BLOCK is now in this thread's stack, or was another's and is in the buffer. False: take the slow path. */
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
