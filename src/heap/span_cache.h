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
    atomic_store_explicit(&heap->keeping, true, memory_order_relaxed); /* whoever closes has the barrier */
    atomic_signal_fence(memory_order_seq_cst);
    /* acquire: pairs with reopen. */
    if (HAK_LIKELY(!atomic_load_explicit(&heap->kept_closed, memory_order_acquire))) return true;
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

/* Both at any time. */

/* The first page of a span of PAGES pages, at most KEPT_SIZES, that HEAP kept; 0 when it has none. */
HAK_INLINE uint32_t span_cache_take(struct heap *heap, size_t pages) {
    struct kept_spans *kept = &heap->kept[pages - 1];
    uint32_t first = 0;
    if (HAK_UNLIKELY(!span_cache_enter(heap))) return 0;
    kept->taken = true;
    if (HAK_LIKELY(kept->held != 0))
        first = span_cache_pop(heap, kept);
    else
        kept->missed++;
    span_cache_leave(heap);
    return first;
}

HAK_INLINE void span_cache_push(struct heap *heap, struct kept_spans *kept, uint32_t first) {
    struct span *span = span_at(first);
    span->next = kept->first;
    kept->first = first;
    large_set_kept(first, true);
    span_cache_hold(heap, kept, span->pages, 1);
    counter_add(&heap->kept_turns, 1);
}

/* The same as the next, between enter and its leave, where there is no room. */
bool span_cache_put_beyond(struct heap *heap, struct kept_spans *kept, uint32_t first);

/* Keeps the used span at FIRST, which nobody knows any more; false when HEAP wants no more of its length. */
HAK_INLINE bool span_cache_put(struct heap *heap, uint32_t first) {
    const uint32_t pages = span_at(first)->pages;
    if (HAK_UNLIKELY(pages > KEPT_SIZES || !span_cache_enter(heap))) return false;
    struct kept_spans *kept = &heap->kept[pages - 1];
    if (HAK_UNLIKELY(kept->held >= kept->limit || !span_cache_has_room(heap, pages)))
        return span_cache_put_beyond(heap, kept, first);
    span_cache_push(heap, kept, first);
    span_cache_leave(heap);
    return true;
}

/* ---- under the lock ------------------------------------------------------------------------------------ */

/* Gives back what was not wanted for a while, and what is more than the heap may keep. Its lock is held, by its owner. */
void span_cache_settle(struct heap *heap);

/* Gives all back that HEAP keeps. Its lock is held, by its owner or because it has none. */
void span_cache_empty(struct heap *heap);

/* The same of any heap, whose lock is taken; but for what its owner is just at. Cheap when there is nothing; else a system call. */
void span_cache_reclaim(struct heap *heap);

/* Around a fork, all heaps' locks held: what other threads keep stays as it is until it is reopened. */
void span_cache_close_others(void);
void span_cache_reopen(void);

/* Gives all back, and forgets what was learned: of a heap that nobody owns. In the child of a fork what its thread was just at is
 * lost. Its lock is held. */
void span_cache_forget(struct heap *heap);

#endif
