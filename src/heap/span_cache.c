/* span_cache.c - keeps freed large blocks for the thread that freed them, where it takes and frees them in turn.
 *
 * Of each length the newest is used first. A length that is only taken, as by a producer, or only freed, or of which few come by,
 * is not kept, and no longer where it is not taken for a while. All lengths of a thread together have a bound; who needs room takes
 * it from others that were not taken lately, one after the other. What to keep only the owner decides, without the heap's lock, which
 * he takes for what is kept alone; others do no more than to take all of it. What is kept counts as free: a heap whose owner sleeps,
 * or ends, gives it back. */
#include "heap/span_cache.h"

#include "ace/span_cache.h"
#include "span/span.h"

/* relaxed, both: whoever needs to be sure holds the lock. */
static uint32_t held(const struct kept_spans *kept) { return atomic_load_explicit(&kept->held, memory_order_relaxed); }

static void hold(struct heap *heap, struct kept_spans *kept, uint32_t pages, int32_t more) {
    atomic_store_explicit(&kept->held, held(kept) + (uint32_t)more, memory_order_relaxed);
    counter_add(&heap->kept_spans, (uint64_t)more);
    counter_add(&heap->kept_pages, (uint64_t)(more * (int64_t)pages));
    heap->in_use_change -= more * (int64_t)(pages * PAGE_BYTES);
}

static uint32_t pop(struct heap *heap, struct kept_spans *kept) {
    const uint32_t first = kept->first;
    kept->first = span_at(first)->next;
    hold(heap, kept, span_at(first)->pages, -1);
    return first;
}

/* Gives back what is more than LIMIT. */
static void keep_at_most(struct heap *heap, struct kept_spans *kept, uint32_t limit) {
    while (held(kept) > limit) {
        const uint32_t first = pop(heap, kept);
        heap->in_use_change -= (int64_t)(span_at(first)->pages * PAGE_BYTES);
        span_give(first);
    }
}

void span_cache_empty(struct heap *heap) {
    if (counter_read(&heap->kept_spans) == 0) return;
    for (unsigned i = 0; i < KEPT_SIZES; i++) keep_at_most(heap, &heap->kept[i], 0);
}

void span_cache_forget(struct heap *heap) {
    span_cache_empty(heap);
    for (unsigned i = 0; i < KEPT_SIZES; i++) heap->kept[i] = (struct kept_spans){0};
}

void span_cache_reclaim(struct heap *heap) {
    if (counter_read(&heap->kept_spans) == 0) return;
    os_lock_take(&heap->lock);
    span_cache_empty(heap);
    os_lock_drop(&heap->lock);
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

static bool has_room(struct heap *heap, uint32_t pages) {
    return counter_read(&heap->kept_pages) + pages <= heap->kept_budget_pages;
}

/* Whatever the other lengths give, KEPT's cannot have one of PAGES pages more. */
static bool is_full(const struct heap *heap, const struct kept_spans *kept, uint32_t pages) {
    return ((uint64_t)held(kept) + 1) * pages > heap->kept_budget_pages;
}

/* Until PAGES more may be kept; each length is asked twice at most. */
static bool find_room(struct heap *heap, const struct kept_spans *asking, uint32_t pages) {
    for (unsigned asked = 0; !has_room(heap, pages); asked++) {
        if (asked == 2 * KEPT_SIZES) return false;
        const unsigned which = heap->kept_hand++ % KEPT_SIZES;
        if (&heap->kept[which] == asking) continue;
        if (!heap->kept[which].taken) halve(heap, which, ACE_REASON_ANOTHER);
        heap->kept[which].taken = false;
    }
    return true;
}

static uint64_t budget_pages(void) { return ace_span_cache_budget(stack_budget_input()) / PAGE_BYTES; }

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
    if (HAK_LIKELY(has_room(heap, 0))) return;
    if (heap->kept_budget_pages == 0)
        span_cache_empty(heap);
    else
        find_room(heap, NULL, 0);
}

/* ---- without the lock ------------------------------------------------------------------------------------- */

uint32_t span_cache_take(struct heap *heap, size_t pages) {
    struct kept_spans *kept = &heap->kept[pages - 1];
    kept->taken = true;
    uint32_t first = 0;
    if (held(kept) != 0) {
        os_lock_take(&heap->lock);
        if (held(kept) != 0) first = pop(heap, kept);
        os_lock_drop(&heap->lock);
    }
    if (first == 0) kept->missed++;
    return first;
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

bool span_cache_put(struct heap *heap, uint32_t first) {
    const uint32_t pages = span_at(first)->pages;
    if (pages > KEPT_SIZES || heap_settings.fixed) return false;
    struct kept_spans *kept = &heap->kept[pages - 1];
    if (held(kept) >= kept->limit) adapt(heap, kept, pages);
    if (held(kept) >= kept->limit) return false;
    if (HAK_UNLIKELY(heap->kept_budget_pages == 0)) heap->kept_budget_pages = budget_pages(); /* later span_cache_settle sees to it */
    if (is_full(heap, kept, pages)) return false;
    os_lock_take(&heap->lock);
    const bool keeps = find_room(heap, kept, pages);
    if (keeps) {
        span_at(first)->next = kept->first;
        kept->first = first;
        hold(heap, kept, pages, 1);
    }
    os_lock_drop(&heap->lock);
    return keeps;
}
