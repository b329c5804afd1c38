/* free.c - the slow path of free, and what else starts from a pointer: its size, and resizing in place. */
#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/large.h"
#include "heap/purger.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "region/outside.h"

/* Not inlined, like the other rare cases of free, so that the path for blocks of other heaps need not save registers
 * for it. */
static HAK_NOINLINE void push_own(struct heap *heap, void *block, unsigned class) {
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    if (HAK_LIKELY(!stack_push(heap, class, block))) stack_push_beyond(heap, class, block);
    os_lock_drop(&heap->lock);
    remote_settle();
}

/* ---- other heaps' blocks ---------------------------------------------------------------------------------- */

/* Keeps a block of another heap that front_keep did not keep. A thread that also allocates the size of such blocks
 * reuses them itself: neither it nor their owners pay for the return. But then it never gets blocks of its own
 * instead, which are freed with fewer instructions. So only a stream of such blocks is kept, and now and then some of
 * it is returned, to see whether more come. A thread whose stack gets to hold ace_kept may only free: further blocks
 * are returned, until see_who_allocates or a refill says otherwise. Owner only, between slow_enter and slow_leave. */
static bool keep_foreign(struct heap *heap, void *block, unsigned class) {
    if (heap->front.keep[class] == NULL) return false;
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    const bool kept = stack_top(heap, class) < heap->front.keep[class] && stack_push(heap, class, block);
    if (kept)
        stack_count_foreign(heap, class, 1);
    else
        heap->front.keep[class] = NULL;
    os_lock_drop(&heap->lock);
    return kept;
}

/* For streams that are not kept now: if the stack still holds ace_kept blocks, the thread does not allocate, and what
 * it holds would keep slabs from becoming free; if it holds fewer, the next are kept again. Heap's lock held. */
static void see_who_allocates(struct heap *heap) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct bin *bin = &heap->bins[class];
        if (!bin->streams || heap->front.keep[class] != NULL) continue;
        if (stack_top(heap, class) >= bin->stack + ace_kept(bin->depth))
            stack_empty(heap, class);
        else if (stack_held(heap, class) != 0)
            stack_set_keeping(heap, class, true);
    }
}

/* Keeps the block or returns it to its owner. Called after slow_enter; calls slow_leave. */
static void keep_or_send_home(struct heap *heap, void *block, unsigned class, const void *caller) {
    /* The buffer may have room: the heap is new to this thread, or a stream ended. */
    if (keep_foreign(heap, block, class) || front_buffer(&heap->front, block, class)) {
        slow_leave();
        return;
    }
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    buffer_give_all(heap, block);
    see_who_allocates(heap);
    os_lock_drop(&heap->lock);
    remote_settle();
    slow_leave();
    purger_tick(caller, false);
}

/* A medium block of another heap is worth more than a bit in its slab: the whole slab becomes HEAP's if that has room
 * for the block, and is free immediately otherwise. HEAP: NULL when the thread has none. */
static void free_medium_of_another(struct heap *heap, void *block, unsigned class) {
    bool has_room = false;
    if (heap != NULL) {
        os_lock_take(&heap->lock);
        if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
        has_room = stack_has_room(heap, class) || stack_make_room(heap, class);
        if (!has_room) heap->bins[class].recent_spilled_blocks++;
        os_lock_drop(&heap->lock);
    }
    const uint32_t first = (uint32_t)page_index(block);
    bin_take_out(block, first, true);
    if (!has_room) {
        slab_release(first);
        footprint_add(-(int64_t)slab_classes[class].block_bytes);
        return;
    }
    slab_take(first, &block + 1, 1);
    os_lock_take(&heap->lock);
    home_place(heap, first, class);
    if (HAK_UNLIKELY(!stack_push(heap, class, block))) stack_push_beyond(heap, class, block); /* a handler took the room */
    os_lock_drop(&heap->lock);
}

/* ---- the slow side of free ------------------------------------------------------------------------------ */

/* Returns BLOCK to its owner. At any time. */
static void give_home(void *block) { footprint_add(-(int64_t)remote_give(NULL, &block, 1)); }

/* By a thread without a heap: puts BLOCK back into its slab; or onto the stack of the heap that waits for a thread, which will then have it.
 * Under the owner's lock, which a fork waits for: a slab that is half on its way to its owner would never arrive in the child. False if it
 * has no owner. No lock held. */
static bool put_to_owner(void *block, unsigned class) {
    const uint32_t first = slab_head(page_index(block));
    struct heap *owner = bin_lock_owner(first);
    if (owner == NULL) return false;
    const int64_t bytes = slab_classes[class].block_bytes;
    if (owner->parked && !heap_is_shared(owner) && stack_push(owner, class, block)) {
        owner->in_use_change += bytes; /* the thread that takes it out reports it again */
    } else {
        slab_put(first, &block, 1);
        bin_note_returned(&owner->bins[class], 1);
        counter_sub(&owner->bins[class].taken_blocks, 1);
        bin_settle(owner, first);
    }
    os_lock_drop(&owner->lock);
    footprint_add(-bytes);
    return true;
}

static HAK_NOINLINE void free_without_heap(void *block, unsigned class) {
    if (HAK_UNLIKELY(!put_to_owner(block, class))) give_home(block); /* it was free already, and is reported */
}

/* A thread that only ever frees gets a heap for its remote buffer, but not for what libc frees, nor for its first few blocks: libc frees
 * the memory of other dead threads in threads whose destructors have run, and a heap begun then would never end. In a static program
 * only their number tells. WORD is that of the block's page. */
static void ensure_heap_for_free(uint32_t word, const void *caller) {
    enum { FREES_WITHOUT_HEAP = 8 };
    if (HAK_LIKELY(thread_state.front_distance != 0)) return;
    if (thread_state.known_word == 0) thread_state.known_word = word & ~WORD_CLASS_MASK;
    if (thread_state.heapless_frees++ < FREES_WITHOUT_HEAP || (caller != NULL && os_is_libc_alone(caller))) return;
    thread_ensure_heap();
}

static void free_quietly(void *block, size_t page, uint32_t word) {
    if (word != WORD_LARGE)
        give_home(block);
    else if (large_claim(page))
        large_free_later(page);
    else
        heap_foreign(block, HEAP_FOREIGN_FREE);
}

/* The word of the page that BLOCK starts in; WORD_NONE unless a block of the window may start there. */
HAK_INLINE uint32_t word_of(const void *block, size_t page) {
    if (!page_is_inside(page)) return WORD_NONE;
    uint32_t word = page_word(page);
    return word == WORD_LARGE && block != large_start(page) ? WORD_NONE : word;
}

static HAK_NOINLINE void free_elsewhere(void *block) {
    if (block != NULL && !outside_unmap(block)) heap_foreign(block, HEAP_FOREIGN_FREE);
}

/* Frees BLOCK, which lies in the window. Not inlined, so that free(NULL) need not save registers. */
static HAK_NOINLINE void free_inside(void *block, const void *caller) {
    size_t page = page_index(block);
    uint32_t word = word_of(block, page);
    if (word == WORD_NONE) {
        free_elsewhere(block);
        return;
    }
    ensure_heap_for_free(word, caller);
    if (HAK_UNLIKELY(!slow_enter())) {
        free_quietly(block, page, word);
        return;
    }
    bool heavy = false;
    unsigned class = word & WORD_CLASS_MASK;
    struct heap *heap = thread_heap();
    if (word == WORD_LARGE && HAK_LIKELY(large_claim(page))) {
        heavy = large_usable_bytes(page) >= PURGER_HEAVY_BYTES;
        large_free(page);
    } else if (word == WORD_LARGE) {
        heap_foreign(block, HEAP_FOREIGN_FREE); /* another thread freed it at the same time */
    } else if (heap != NULL && (word ^ class) == thread_state.own_word) {
        heavy = slab_classes[class].block_bytes >= PURGER_HEAVY_BYTES;
        push_own(heap, block, class);
    } else if (class_is_medium(class)) {
        heavy = slab_classes[class].block_bytes >= PURGER_HEAVY_BYTES;
        free_medium_of_another(heap, block, class);
    } else if (heap == NULL) {
        free_without_heap(block, class);
    } else {
        keep_or_send_home(heap, block, class, caller);
        return;
    }
    slow_leave();
    purger_tick(caller, heavy);
}

HAK_NOINLINE void heap_free(void *block, const void *caller) {
    if (HAK_LIKELY(page_is_inside(page_index(block))))
        free_inside(block, caller);
    else
        free_elsewhere(block);
}

bool heap_owns(const void *block) {
    return word_of(block, page_index(block)) != WORD_NONE || outside_bytes(block) != 0;
}

/* Of BLOCK, which starts in PAGE, whose word is WORD. */
static size_t usable_bytes_of(const void *block, size_t page, uint32_t word) {
    if (word == WORD_LARGE) return large_usable_bytes(page);
    if (word != WORD_NONE) {
        const unsigned class = word & WORD_CLASS_MASK;
        return slab_classes[class].block_bytes - (HAK_UNLIKELY(class_is_medium(class)) ? (uintptr_t)block % PAGE_BYTES : 0);
    }
    size_t bytes = outside_bytes(block);
    return bytes != 0 ? bytes : heap_foreign((void *)(uintptr_t)block, HEAP_FOREIGN_SIZE);
}

size_t heap_usable_bytes(const void *block) {
    if (block == NULL) return 0;
    const size_t page = page_index(block);
    return usable_bytes_of(block, page, word_of(block, page));
}

/* Whether a block of USABLE bytes that is not small suits BYTES: hardly any would be trimmed, or it is a medium block
 * that malloc itself would give when it has none of the next smaller size. */
static bool is_as_good(size_t usable, uint32_t word, size_t bytes) {
    if (word == WORD_LARGE) return heap_good_bytes(bytes) >= usable - usable / 8;
    return size_class_of(bytes) + 1 >= (word & WORD_CLASS_MASK);
}

/* Makes BLOCK, whose page has WORD, a large block, whose length can be changed, if it is medium. False if it is
 * neither. Between slow_enter and slow_leave. */
static bool become_large(void *block, uint32_t word) {
    if (word == WORD_LARGE) return true;
    if (!class_is_medium(word & WORD_CLASS_MASK)) return false; /* WORD_NONE is that of a small class */
    large_make_of_medium(block);
    return true;
}

/* Resizes BLOCK, a medium or a large one of USABLE bytes, whose page has WORD, to BYTES bytes. After slow_enter, and leaves. */
HAK_INLINE void *resize_pages(void *block, uint32_t word, size_t usable, size_t bytes) {
    become_large(block, word);
    void *resized = large_resize(page_index(block), bytes);
    slow_leave();
    bytes > usable ? purger_tick_for_alloc(NULL) : purger_tick(NULL, usable >= PURGER_HEAVY_BYTES);
    return resized;
}

void *heap_resize(void *block, size_t bytes) {
    const size_t page = page_index(block);
    const uint32_t word = word_of(block, page);
    const size_t usable = usable_bytes_of(block, page, word);
    if (usable <= SMALL_MAX_BYTES || word == WORD_NONE) return front_suits(usable, bytes) ? block : NULL;
    if (bytes <= SMALL_MAX_BYTES || bytes > PTRDIFF_MAX) return NULL; /* a small block takes less memory */
    if (bytes <= usable && is_as_good(usable, word, bytes)) return block;
    if (!slow_enter()) return bytes <= usable ? block : NULL;
    return resize_pages(block, word, usable, bytes);
}

void heap_trim(void *block, size_t bytes) {
    const size_t page = page_index(block);
    const uint32_t word = word_of(block, page);
    const size_t usable = usable_bytes_of(block, page, word);
    if (usable > SMALL_MAX_BYTES && word != WORD_NONE && slow_enter()) resize_pages(block, word, usable, bytes);
}

size_t heap_extend(void *block, size_t bytes) {
    const size_t page = page_index(block);
    const uint32_t word = word_of(block, page);
    const size_t usable = usable_bytes_of(block, page, word);
    if (bytes <= usable) return usable;
    if (bytes > PTRDIFF_MAX || !slow_enter()) return 0;
    const size_t extended = become_large(block, word) && large_extend(page, bytes) ? large_usable_bytes(page) : 0;
    slow_leave();
    purger_tick_for_alloc(NULL);
    return extended;
}

size_t heap_good_bytes(size_t bytes) {
    if (bytes > PTRDIFF_MAX) return 0;
    if (bytes <= MEDIUM_MAX_BYTES) {
        const size_t held = slab_classes[size_class_of(bytes)].block_bytes;
        return bytes <= SMALL_MAX_BYTES ? held : colour_least(held, bytes);
    }
    size_t good = large_good_bytes(bytes);
    return good <= PTRDIFF_MAX ? good : 0; /* no block of that size was ever made */
}
