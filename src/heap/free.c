/* free.c - the slow side of free, and what else starts from a pointer: its size, and resizing in place. */
#include "base/bits.h"
#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/purger.h"
#include "heap/span_cache.h"
#include "heap/thread.h"
#include "region/outside.h"

/* Not inlined, like what else is rare among frees: the way of others' blocks saves no registers for it. */
static HAK_NOINLINE void push_own(struct heap *heap, void *block, unsigned class) {
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    if (!stack_has_room(heap, class)) {
        struct bin *bin = &heap->bins[class];
        bin->recent_spills++;
        bin->asked = 0;
        if (bin->depth != bin->most) stack_adapt(heap, class);
        if (!stack_has_room(heap, class)) stack_spill(heap, class);
    }
    stack_push(heap, class, block);
    os_lock_drop(&heap->lock);
    remote_settle();
}

/* ---- other heaps' blocks ---------------------------------------------------------------------------------- */

/* A thread that allocates what it frees of others' blocks uses those again itself: neither it nor their owners pay for the
 * way home. But then it never has its own instead, which are freed on the fast path: so only a stream of them is kept, and every
 * now and then some of it are sent home, to see whether more come. One whose stack gets to hold ace_kept may only free: the next
 * blocks take the way home, until see_who_allocates or a refill says otherwise. Owner only; no lock held, as in front_push. */
HAK_INLINE bool keep_foreign(struct front *front, void *block, unsigned class) {
    if (HAK_LIKELY(front->keep[class] == NULL)) return false;
    struct heap *heap = (struct heap *)front;
    if (stack_top(heap, class) >= front->keep[class]) {
        front->keep[class] = NULL;
        return false;
    }
    stack_push(heap, class, block);
    if (HAK_UNLIKELY(--heap->bins[class].stream_left == 0)) stack_count_foreign(heap, class, 0);
    return true;
}

/* Of the classes whose blocks are not kept: where the stack still holds as many, nobody allocates, and what it holds would
 * keep slabs from becoming free. Heap's lock held. */
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

/* Takes the way home. Between slow_enter and here. */
static void send_home(struct heap *heap, void *block, unsigned class, const void *caller) {
    if (buffer_push(&heap->front, block, slab_classes[class].block_bytes)) { /* of a heap that was just begun */
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

/* ---- the slow side of free ------------------------------------------------------------------------------ */

/* At any time. */
static void give_home(void *block) { footprint_add(-(int64_t)remote_give(NULL, &block, 1)); }

static HAK_NOINLINE void free_without_heap(void *block) {
    give_home(block);
    remote_settle();
}

/* A thread that only ever frees gets a heap for its remote buffer, but not for its first few blocks: libc frees a
 * dead thread's memory in threads whose destructors have run, and a heap begun then would never end. */
static void ensure_heap_for_free(void) {
    enum { FREES_WITHOUT_HEAP = 8 };
    if (HAK_LIKELY(thread_state.front_distance != 0)) return;
    if (thread_state.heapless_frees++ >= FREES_WITHOUT_HEAP) thread_ensure_heap();
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
    return word == WORD_LARGE && (block != page_address(page) || large_is_kept(page)) ? WORD_NONE : word;
}

static HAK_NOINLINE void free_elsewhere(void *block) {
    if (block != NULL && !outside_unmap(block)) heap_foreign(block, HEAP_FOREIGN_FREE);
}

/* Of all that is not another heap's small block, and of threads that have no heap or are inside a slow path. */
static HAK_NOINLINE void free_otherwise(void *block, const void *caller) {
    size_t page = page_index(block);
    uint32_t word = word_of(block, page);
    if (word == WORD_NONE) {
        free_elsewhere(block);
        return;
    }
    ensure_heap_for_free();
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
    } else if (heap == NULL) {
        free_without_heap(block);
    } else if ((word ^ class) == heap_word(heap, 0)) {
        push_own(heap, block, class);
    } else {
        send_home(heap, block, class, caller);
        return;
    }
    slow_leave();
    purger_tick(caller, heavy);
}

static HAK_NOINLINE void free_large_slowly(void *block, size_t page, const void *caller) {
    struct heap *heap = thread_heap();
    if (heap != NULL && block == page_address(page) && span_cache_suits(page) && span_cache_put_beyond(heap, page))
        purger_turn(heap, caller);
    else
        free_otherwise(block, caller);
}

/* Without an atomic operation, which would wait for what the program wrote to its blocks. */
static HAK_NOINLINE void free_large(void *block, size_t page, const void *caller) {
    struct heap *heap = thread_heap();
    if (HAK_LIKELY(heap != NULL && block == page_address(page) && span_cache_suits(page) && span_cache_put(heap, page)))
        purger_turn(heap, caller);
    else
        free_large_slowly(block, page, caller);
}

/* The most frequent of the slow ways, both of another heap's block, are short: what else there is to do ends them by a call, so
 * that they save no registers. A front without a heap keeps nothing, and has no room in its buffer. */
HAK_NOINLINE void heap_free(void *block, const void *caller) {
    size_t page = page_index(block);
    if (HAK_UNLIKELY(!page_is_inside(page))) {
        free_elsewhere(block);
        return;
    }
    const uint32_t word = page_word(page);
    struct front *front = thread_front();
    const unsigned class = word & WORD_CLASS_MASK;
    const bool is_own = (word ^ class) == (uint32_t)(uintptr_t)front;
    if (HAK_UNLIKELY(word <= WORD_LARGE || is_own || thread_state.busy)) {
        if (word == WORD_LARGE)
            free_large(block, page, caller);
        else
            free_otherwise(block, caller);
        return;
    }
    if (keep_foreign(front, block, class)) return;
    slow_enter(); /* a signal handler that frees meanwhile takes another way: it must neither push here nor give all home */
    const bool pushed = buffer_push(front, block, slab_classes[class].block_bytes);
    slow_leave();
    if (HAK_UNLIKELY(!pushed)) free_otherwise(block, caller);
}

bool heap_owns(const void *block) {
    return word_of(block, page_index(block)) != WORD_NONE || outside_bytes(block) != 0;
}

size_t heap_usable_bytes(const void *block) {
    if (block == NULL) return 0;
    size_t page = page_index(block);
    uint32_t word = word_of(block, page);
    if (word == WORD_LARGE) return large_usable_bytes(page);
    if (word != WORD_NONE) return slab_classes[word & WORD_CLASS_MASK].block_bytes;
    size_t bytes = outside_bytes(block);
    return bytes != 0 ? bytes : heap_foreign((void *)(uintptr_t)block, HEAP_FOREIGN_SIZE);
}

void *heap_resize(void *block, size_t bytes) {
    size_t page = page_index(block);
    uint32_t word = word_of(block, page);
    if (word == WORD_LARGE) {
        if (!slow_enter()) return bytes <= large_usable_bytes(page) ? block : NULL;
        bool heavy = large_usable_bytes(page) >= PURGER_HEAVY_BYTES;
        block = large_resize(page, bytes);
        slow_leave();
        purger_tick(NULL, heavy);
        return block;
    }
    /* Less than half of it in use: a smaller block is worth the copy. */
    size_t usable = heap_usable_bytes(block);
    return bytes <= usable && (bytes >= usable / 2 || usable <= SMALLEST_BLOCK_BYTES) ? block : NULL;
}

size_t heap_extend(void *block, size_t bytes) {
    size_t page = page_index(block), usable = heap_usable_bytes(block);
    if (bytes <= usable) return usable;
    if (word_of(block, page) != WORD_LARGE || !slow_enter()) return 0;
    bool extended = large_extend(page, bytes);
    slow_leave();
    return extended ? large_usable_bytes(page) : 0;
}

size_t heap_good_bytes(size_t bytes) {
    if (bytes > PTRDIFF_MAX) return 0;
    if (bytes <= SMALL_MAX_BYTES) return slab_classes[size_class_of(bytes)].block_bytes;
    size_t good = large_good_bytes(bytes);
    return good <= PTRDIFF_MAX ? good : 0; /* for so much no block was ever made */
}
