/* span_cache.c - keeps freed large blocks for the thread that freed them, where it takes and frees them in turn.
 *
 * Of each length the newest is used first. A length that is only taken, as by a producer, or only freed, or of which few come by,
 * is not kept, and no longer where it is not taken for a while. All lengths of a thread together have a bound; where it is reached,
 * the length of which there are most makes room. What is kept counts as free: a heap whose owner sleeps, or ends, gives it back.
 *
 * The owner comes without the heap's lock and without an atomic operation, which would wait for what the program wrote to its
 * blocks: he says that he is there, and looks whether it is shut. Others do no more than to take all of it: they shut it, have all
 * running threads pass a barrier, and look, under the lock, whether he is there. So one of the two sees the other, and whoever does
 * goes without. The owner who holds the lock is alone, too, and so is whoever holds that of a heap without an owner. */
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

static void halve(struct heap *heap, unsigned which) {
    struct kept_spans *kept = &heap->kept[which];
    const uint32_t before = kept->limit;
    if (before == 0) return;
    kept->limit = before / 2;
    kept->missed = kept->given = 0;
    decided_spans(heap, ACE_REASON_IDLE, which + 1, before, kept->limit, counter_read(&heap->kept_pages) * PAGE_BYTES,
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

/* Nothing where the kernel has no barrier: nobody could take it away. relaxed: a hint. */
static uint64_t budget_pages(void) {
    if (atomic_load_explicit(&os_counters.refusals[OS_CALL_MEMBARRIER], memory_order_relaxed) != 0) return 0;
    return ace_span_cache_budget(stack_budget_input()) / PAGE_BYTES;
}

/* Whatever the other lengths give, KEPT's cannot have one of PAGES pages more. */
static bool is_full(const struct heap *heap, const struct kept_spans *kept, uint32_t pages) {
    return ((uint64_t)kept->held + 1) * pages > heap->kept_budget_pages;
}

/* Until PAGES more may be kept: the length of which there are most gives, so that of each some are there. Where that is the one
 * that asks, it has enough. */
static bool find_room(struct heap *heap, const struct kept_spans *asking, uint32_t pages) {
    while (!span_cache_has_room(heap, pages)) {
        struct kept_spans *most = heap->kept;
        for (unsigned i = 1; i < KEPT_SIZES; i++)
            if (heap->kept[i].held > most->held) most = &heap->kept[i];
        if (most == asking) return false;
        keep_at_most(heap, most, most->held - 1);
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

bool span_cache_put_beyond(struct heap *heap, size_t page) {
    const uint32_t pages = span_at(page)->pages;
    struct kept_spans *kept = &heap->kept[pages - 1];
    if (!span_cache_enter(heap)) return false;
    const bool keeps = make_room(heap, kept, pages);
    if (keeps) span_cache_push(heap, kept, (uint32_t)page);
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
    if (!heap->kept[which].taken) halve(heap, which);
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

/* Without what was learned. */
static void forget(struct heap *heap) {
    for (unsigned i = 0; i < KEPT_SIZES; i++) heap->kept[i] = (struct kept_spans){0};
    counter_set(&heap->kept_spans, 0);
    counter_set(&heap->kept_pages, 0);
    tell(heap);
}

void span_cache_forget(struct heap *heap) {
    span_cache_empty(heap);
    forget(heap);
}

/* ---- by others -------------------------------------------------------------------------------------- */

static struct os_lock shutting;

/* relaxed: whoever shuts is sure of it after a barrier. */
static void shut(struct heap *heap) { atomic_store_explicit(&heap->kept_shut, true, memory_order_relaxed); }
static void reopen(struct heap *heap) {
    atomic_store_explicit(&heap->kept_shut, false, memory_order_release); /* pairs with span_cache_enter */
}
static bool is_shut(const struct heap *heap) {
    return atomic_load_explicit(&heap->kept_shut, memory_order_relaxed); /* written under the lock above */
}

/* Once it was shut, and the barrier passed. acquire: pairs with span_cache_leave. */
static bool is_left(const struct heap *heap) { return !atomic_load_explicit(&heap->keeping, memory_order_acquire); }

/* False when there is nothing in those heaps. */
static bool shut_all(bool (*of)(const struct heap *heap)) {
    bool some = false;
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) {
        if (counter_read(&heap->kept_spans) == 0 || !of(heap)) continue; /* a hint */
        shut(heap);
        some = true;
    }
    return some;
}

static void reopen_all(void) {
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next)
        if (is_shut(heap)) reopen(heap);
}

void span_cache_reclaim(bool (*of)(const struct heap *heap)) {
    os_lock_take(&shutting);
    if (shut_all(of)) {
        const bool barrier_passed = os_barrier_others();
        for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) {
            if (!is_shut(heap) || !(barrier_passed || heap == thread_heap())) continue;
            os_lock_take(&heap->lock);
            if (is_left(heap)) span_cache_empty(heap);
            os_lock_drop(&heap->lock);
        }
        reopen_all();
    }
    os_lock_drop(&shutting);
}

/* ---- fork ------------------------------------------------------------------------------------------- */

static bool is_others(const struct heap *heap) { return heap != thread_heap(); }

void span_cache_fork_prepare(void) {
    os_lock_take(&shutting);
    if (shut_all(is_others) && !os_barrier_others()) reopen_all();
}

void span_cache_fork_parent(void) {
    reopen_all();
    os_lock_drop(&shutting);
}

static bool is_blank(const struct heap *heap) {
    for (unsigned i = 0; i < KEPT_SIZES; i++)
        if (heap->kept[i].first != 0 || heap->kept[i].held != 0) return false;
    return counter_read(&heap->kept_pages) == 0 && is_left(heap);
}

void span_cache_fork_child(void) {
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) {
        if (!is_others(heap) || is_blank(heap)) continue;
        if (!is_shut(heap) || !is_left(heap)) forget(heap);
        atomic_store_explicit(&heap->keeping, false, memory_order_relaxed); /* the only thread there is */
    }
    reopen_all();
    os_lock_reset(&shutting);
}
