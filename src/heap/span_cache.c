/* span_cache.c - keeps freed large blocks for the thread that freed them, where it takes and frees them in turn.
 *
 * Of each length the newest is used first. A length that is only taken, as by a producer, or only freed, or of which few come by,
 * is not kept, and no longer where it is not taken for a while. All lengths of a thread together have a bound; who needs room takes
 * it from others that were not taken lately, one after the other. What is kept counts as free: a heap whose owner sleeps, or ends,
 * gives it back.
 *
 * The owner comes without the heap's lock and without an atomic operation, which would wait for what the program wrote to its
 * blocks: he says that he is there, and looks whether it is closed. Others do no more than to take all of it: under the lock they
 * close it, have all running threads pass a barrier, and look whether he is there. So one of the two sees the other, and whoever
 * does goes without. The owner who holds the lock is alone, too, and so is whoever holds that of a heap without an owner. */
#include "heap/span_cache.h"

#include "ace/span_cache.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "span/span.h"

/* ---- one length ------------------------------------------------------------------------------------- */

/* Gives back what is more than LIMIT. */
static void keep_at_most(struct heap *heap, struct kept_spans *kept, uint32_t limit) {
    while (kept->held > limit) {
        const uint32_t first = span_cache_pop(heap, kept);
        heap->kept_told_pages -= span_at(first)->pages; /* no more in use than before */
        page_word_set(first, WORD_NONE);
        span_give(first);
    }
}

static void halve(struct heap *heap, unsigned which, enum ace_reason reason) {
    struct kept_spans *kept = &heap->kept[which];
    const uint32_t before = kept->limit;
    if (before == 0) return;
    kept->limit = before / 2;
    kept->missed = kept->given = 0;
    decided_spans(heap, reason, which + 1, before, kept->limit, counter_read(&heap->kept_pages) * PAGE_BYTES,
                  heap->kept_budget_pages * PAGE_BYTES);
    keep_at_most(heap, kept, kept->limit);
}

/* One more came than may be kept. */
static void adapt(struct heap *heap, struct kept_spans *kept, uint32_t pages) {
    kept->given++;
    const uint32_t before = kept->limit;
    const struct ace_span_cache_decision next = ace_span_cache_next((struct ace_span_cache_input){
        .limit = before,
        .missed = kept->missed,
        .given = kept->given,
    });
    if (HAK_LIKELY(next.limit == before)) return;
    decided_spans(heap, ACE_REASON_TURNS, pages, before, next.limit, kept->missed, kept->given);
    kept->limit = next.limit;
    kept->missed = kept->given = 0;
}

/* ---- room ------------------------------------------------------------------------------------------- */

static uint64_t budget_pages(void) { return ace_span_cache_budget(stack_budget_input()) / PAGE_BYTES; }

/* Whatever the other lengths give, KEPT's cannot have one of PAGES pages more. */
static bool is_full(const struct heap *heap, const struct kept_spans *kept, uint32_t pages) {
    return ((uint64_t)kept->held + 1) * pages > heap->kept_budget_pages;
}

/* Until PAGES more may be kept; each length is asked twice at most. */
static bool find_room(struct heap *heap, const struct kept_spans *asking, uint32_t pages) {
    for (unsigned asked = 0; !span_cache_has_room(heap, pages); asked++) {
        if (asked == 2 * KEPT_SIZES) return false;
        const unsigned which = heap->kept_hand++ % KEPT_SIZES;
        if (&heap->kept[which] == asking) continue;
        if (!heap->kept[which].taken) halve(heap, which, ACE_REASON_ANOTHER);
        heap->kept[which].taken = false;
    }
    return true;
}

static bool make_room(struct heap *heap, struct kept_spans *kept, uint32_t pages) {
    if (heap_settings.fixed) return false;
    if (kept->held >= kept->limit) adapt(heap, kept, pages);
    if (kept->held >= kept->limit) return false;
    if (HAK_UNLIKELY(heap->kept_budget_pages == 0)) heap->kept_budget_pages = budget_pages(); /* later span_cache_settle sees to it */
    return !is_full(heap, kept, pages) && find_room(heap, kept, pages);
}

bool span_cache_put_beyond(struct heap *heap, struct kept_spans *kept, uint32_t first) {
    const bool keeps = make_room(heap, kept, span_at(first)->pages);
    if (keeps) span_cache_push(heap, kept, first);
    span_cache_leave(heap);
    return keeps;
}

/* ---- under the lock --------------------------------------------------------------------------------- */

/* What came or went since it was told the last time. */
static void tell(struct heap *heap) {
    const int64_t pages = (int64_t)counter_read(&heap->kept_pages);
    heap->in_use_change -= (pages - heap->kept_told_pages) * (int64_t)PAGE_BYTES;
    heap->kept_told_pages = pages;
}

void span_cache_empty(struct heap *heap) {
    if (counter_read(&heap->kept_spans) != 0)
        for (unsigned i = 0; i < KEPT_SIZES; i++) keep_at_most(heap, &heap->kept[i], 0);
    tell(heap);
}

/* One length after the other is looked at, at every so many looks of the heap. */
static void give_idle(struct heap *heap) {
    enum { LOOKS = 16 };
    if (heap->kept_looks++ % LOOKS != 0) return;
    const unsigned which = heap->kept_hand++ % KEPT_SIZES;
    if (!heap->kept[which].taken) halve(heap, which, ACE_REASON_IDLE);
    heap->kept[which].taken = false;
}

void span_cache_settle(struct heap *heap) {
    if (HAK_LIKELY(heap->kept_budget_pages == 0)) return; /* it never kept any */
    give_idle(heap);
    heap->kept_budget_pages = budget_pages();
    if (heap->kept_budget_pages == 0)
        span_cache_empty(heap);
    else
        find_room(heap, NULL, 0);
    tell(heap);
}

/* ---- by others -------------------------------------------------------------------------------------- */

/* relaxed: whoever closes is sure of it after a barrier. */
static void close(struct heap *heap) { atomic_store_explicit(&heap->kept_closed, true, memory_order_relaxed); }
static void reopen(struct heap *heap) {
    atomic_store_explicit(&heap->kept_closed, false, memory_order_release); /* pairs with span_cache_enter */
}

/* Once it was closed, and the barrier passed. acquire: pairs with span_cache_leave. */
static bool is_left(struct heap *heap) { return !atomic_load_explicit(&heap->keeping, memory_order_acquire); }

void span_cache_reclaim(struct heap *heap) {
    if (counter_read(&heap->kept_spans) == 0) return; /* a hint */
    os_lock_take(&heap->lock);
    close(heap);
    const bool nobody_comes = heap->parked || heap == thread_heap() || os_barrier_others();
    if (nobody_comes && is_left(heap)) span_cache_empty(heap);
    reopen(heap);
    os_lock_drop(&heap->lock);
}

void span_cache_reopen(void) {
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next)
        if (atomic_load_explicit(&heap->kept_closed, memory_order_relaxed)) reopen(heap); /* relaxed: under the lock */
}

void span_cache_close_others(void) {
    bool closed = false;
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) {
        if (heap == thread_heap() || counter_read(&heap->kept_spans) == 0) continue;
        close(heap);
        closed = true;
    }
    if (closed && !os_barrier_others()) span_cache_reopen();
}

void span_cache_forget(struct heap *heap) {
    /* Only one that its thread left to a fork has any. relaxed: under the lock. */
    if (atomic_load_explicit(&heap->kept_closed, memory_order_relaxed) && is_left(heap)) span_cache_empty(heap);
    for (unsigned i = 0; i < KEPT_SIZES; i++) heap->kept[i] = (struct kept_spans){0};
    counter_set(&heap->kept_spans, 0);
    counter_set(&heap->kept_pages, 0);
    tell(heap);
    atomic_store_explicit(&heap->keeping, false, memory_order_relaxed); /* under the lock */
    reopen(heap);
}
