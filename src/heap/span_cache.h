/* span_cache.h - large blocks that a thread freed and keeps, by their length. The record of such a span says so, and its
 * page's word is as it was. No heap's lock is held, unless said otherwise. */
#ifndef HAK_HEAP_SPAN_CACHE_H
#define HAK_HEAP_SPAN_CACHE_H

#include "heap/enter.h"
#include "heap/heap.h"
#include "heap/large.h"

/* ---- who is at it: see span_cache.c ------------------------------------------------------------------- */

HAK_INLINE void span_cache_leave(struct heap *heap) {
    atomic_store_explicit(&heap->keeping, false, memory_order_release); /* pairs with is_left */
    slow_leave();
}

/* False when someone else is, or the owner himself, whom a signal handler interrupted. By the owner. */
HAK_INLINE bool span_cache_enter(struct heap *heap) {
    if (HAK_UNLIKELY(!slow_enter())) return false;
    atomic_store_explicit(&heap->keeping, true, memory_order_relaxed); /* whoever shuts it has the barrier */
    atomic_signal_fence(memory_order_seq_cst);
    /* acquire: pairs with reopen. */
    if (HAK_LIKELY(!atomic_load_explicit(&heap->kept_shut, memory_order_acquire))) return true;
    span_cache_leave(heap);
    return false;
}

/* ---- by the owner, without the lock ------------------------------------------------------------------- */

HAK_INLINE bool span_cache_has_room(const struct heap *heap, uint32_t pages) {
    return counter_read(&heap->kept_pages) + pages <= heap->kept_budget_pages;
}

/* MORE blocks of PAGES pages are kept. */
HAK_INLINE void span_cache_hold(struct heap *heap, struct kept_spans *kept, uint32_t pages, int32_t more) {
    kept->held += (uint32_t)more;
    counter_add(&heap->kept_spans, (uint64_t)more);
    counter_add(&heap->kept_pages, (uint64_t)(more * (int64_t)pages));
}

HAK_INLINE uint32_t span_cache_pop(struct heap *heap, struct kept_spans *kept) {
    const uint32_t first = kept->first;
    const struct span *span = span_at(first);
    kept->first = span->next;
    large_set_kept(first, false);
    span_cache_hold(heap, kept, span->pages, -1);
    return first;
}

/* A block that HEAP kept, of BYTES bytes at least, more than SMALL_MAX_BYTES, and of unknown contents; aligned to a page. NULL: it has
 * none. At any time. */
HAK_INLINE void *span_cache_take(struct heap *heap, size_t bytes) {
    if (HAK_UNLIKELY(bytes > KEPT_SIZES * PAGE_BYTES || !span_cache_enter(heap))) return NULL;
    struct kept_spans *kept = &heap->kept[(bytes - 1) / PAGE_BYTES];
    void *block = NULL;
    kept->taken = true;
    if (HAK_LIKELY(kept->held != 0)) {
        const uint32_t first = span_cache_pop(heap, kept);
        ((struct large *)page_span(first))->moved = false;
        block = page_address(first);
    } else {
        kept->missed++;
    }
    span_cache_leave(heap);
    return block;
}

HAK_INLINE void span_cache_push(struct heap *heap, struct kept_spans *kept, uint32_t first) {
    struct span *span = span_at(first);
    span->next = kept->first;
    kept->first = first;
    large_set_kept(first, true);
    span_cache_hold(heap, kept, span->pages, 1);
    counter_add(&heap->kept_turns, 1);
}

/* Whether the large block that starts at PAGE is of a length that may be kept: it has no reserve, and no growing buffer, to which
 * it would be no use, left it behind. And it is none that is kept already. */
HAK_INLINE bool span_cache_suits(size_t page) {
    const struct large *large = page_span(page);
    return HAK_LIKELY(large->pages == large->span.pages && large->pages <= KEPT_SIZES && !large->outgrown && !large_is_kept(page));
}

/* Frees the block that starts at PAGE, and suits, by keeping it; false when there is no room for it, and it is as it was. That another
 * thread frees it in the same moment it does not see. At any time. */
HAK_INLINE bool span_cache_put(struct heap *heap, size_t page) {
    const uint32_t pages = span_at(page)->pages;
    struct kept_spans *kept = &heap->kept[pages - 1];
    if (HAK_UNLIKELY(!span_cache_enter(heap))) return false;
    const bool has_room = kept->held < kept->limit && span_cache_has_room(heap, pages);
    if (HAK_LIKELY(has_room)) span_cache_push(heap, kept, (uint32_t)page);
    span_cache_leave(heap);
    return has_room;
}

/* The same where there was no room: makes some, if the length is worth it. */
bool span_cache_put_beyond(struct heap *heap, size_t page);

/* ---- under the lock ------------------------------------------------------------------------------------ */

/* Gives back what was not wanted for a while, and what is more than the heap may keep. Its lock is held, by its owner. */
void span_cache_settle(struct heap *heap);

/* Gives all back that HEAP keeps. Its lock is held, by its owner or because it has none. */
void span_cache_empty(struct heap *heap);

/* The same, and forgets what was learned. Of a heap that nobody owns. */
void span_cache_forget(struct heap *heap);

/* ---- by anyone, no heap's lock held --------------------------------------------------------------------- */

/* Gives all back that the heaps keep of which OF says so, but for what an owner is just at. Cheap when there is nothing; else two system
 * calls, however many heaps there are. */
void span_cache_reclaim(bool (*of)(const struct heap *heap));

/* Around a fork: what other threads keep stays as it is meanwhile. What one of them was just at, or began to keep since, is lost to the
 * child, and all where the kernel has no barrier. Before the heaps' locks are taken, and after they were dropped or reset. */
void span_cache_fork_prepare(void);
void span_cache_fork_parent(void);
void span_cache_fork_child(void);

#endif
