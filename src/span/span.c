/* span.c - taking, giving back and merging spans; decay. */
#include "span/span.h"

#include "ace/decay.h"
#include "base/bits.h"
#include "os/assert.h"
#include "os/os.h"
#include "span/bins.h"
#include "span/pages.h"

/* Decay looks at the clock at most so often, and never bothers with less than KEPT_PAGES. */
enum { OPERATIONS_PER_LOOK = 16, LEAST_TICK_MS = 20, KEPT_PAGES = 16, PURGE_PAGES_A_TICK = 512 };

static struct {
    struct os_lock lock; /* guards everything of this floor */
    struct span_settings settings;
    struct span_counts counts;
    uint64_t low_water_pages; /* fewest dirty pages since the last tick */
    uint64_t tick_ms;
    _Atomic uint32_t operations;
} spans = {.settings = {.decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX}};

void span_lock(void) { os_lock_take(&spans.lock); }
void span_unlock(void) { os_lock_drop(&spans.lock); }
void span_lock_reset(void) { os_lock_reset(&spans.lock); }

void span_configure(const struct span_settings *settings) { spans.settings = *settings; }

void span_counts_read(struct span_counts *counts) {
    span_lock();
    *counts = spans.counts;
    span_unlock();
}

/* ---- cutting and merging (lock held) ------------------------------------------------------------ */

/* Inserts a run of free pages, DIRTY of them dirty, merged with the free spans on both sides. */
static uint32_t insert_merged(uint32_t first, uint32_t pages, uint32_t dirty) {
    const struct span *before = span_at(first - 1);
    if (before->kind == SPAN_FREE || before->kind == SPAN_FREE_LAST) {
        uint32_t head = before->kind == SPAN_FREE ? first - 1 : before->head;
        pages += span_at(head)->pages;
        dirty += span_at(head)->dirty;
        bins_remove(head);
        first = head;
    }
    if (page_is_inside(first + pages) && span_at(first + pages)->kind == SPAN_FREE) {
        uint32_t after = first + pages;
        pages += span_at(after)->pages;
        dirty += span_at(after)->dirty;
        bins_remove(after);
    }
    bins_insert(first, pages, dirty);
    return first;
}

static void label_used(uint32_t first, uint32_t pages) {
    struct span *span = span_at(first);
    span->pages = pages;
    span->kind = SPAN_USED;
    span_at(first + pages - 1)->kind = SPAN_USED;
}

static void account_taken(uint32_t dirty, uint32_t pages) {
    spans.counts.used_pages += pages;
    spans.counts.dirty_pages -= dirty;
    if (spans.counts.dirty_pages < spans.low_water_pages) spans.low_water_pages = spans.counts.dirty_pages;
}

/* Cuts PAGES pages at FIRST out of the free span at HEAD, which holds them. */
static void carve(uint32_t head, uint32_t first, uint32_t pages) {
    uint32_t end = head + span_at(head)->pages;
    HAK_ASSERT(head <= first && first + pages <= end);
    uint32_t dirty_left = span_at(head)->dirty;
    bins_remove(head);
    uint32_t dirty = pages_mark_used(first, pages);
    dirty_left -= dirty;
    if (first != head) { /* only for alignments above a page, and for purging */
        uint32_t dirty_before = pages_count_dirty(head, first - head);
        bins_insert(head, first - head, dirty_before);
        dirty_left -= dirty_before;
    }
    if (first + pages != end) bins_insert(first + pages, end - (first + pages), dirty_left);
    label_used(first, pages);
    span_at(first)->zero = dirty == 0;
    account_taken(dirty, pages);
}

static uint32_t take_free(size_t pages, size_t align_pages) {
    uint32_t head = bins_find((uint32_t)(pages + align_pages - 1));
    if (head == 0) return 0;
    /* Aligned as an address: the window's base is aligned to 2 MiB only. */
    uintptr_t address = (uintptr_t)page_address(head);
    uintptr_t aligned = round_up(address, align_pages * PAGE_BYTES);
    uint32_t first = head + (uint32_t)((aligned - address) / PAGE_BYTES);
    carve(head, first, (uint32_t)pages);
    spans.counts.taken++;
    return first;
}

/* Returns the first page of the free span that the pages are now part of. */
static uint32_t give_free(uint32_t first, uint32_t pages, uint32_t dirty) {
    pages_mark_free(first, pages);
    spans.counts.used_pages -= pages;
    spans.counts.dirty_pages += dirty;
    return insert_merged(first, pages, dirty);
}

/* ---- the floor's services ----------------------------------------------------------------------- */

/* Brings fresh memory from the window; false when there is none. No lock held. */
static bool add_fresh(size_t pages) {
    struct page_run run = window_extend(pages);
    if (run.pages == 0) return false;
    span_lock();
    bool huge = spans.counts.used_pages + pages >= spans.settings.huge_from_pages;
    span_unlock();
    if (huge) os_prefer_huge(page_address(run.first), run.pages * PAGE_BYTES);
    span_lock();
    spans.counts.fresh_pages += run.pages;
    insert_merged((uint32_t)run.first, (uint32_t)run.pages, 0);
    span_unlock();
    return true;
}

uint32_t span_take(size_t pages, size_t align_pages) {
    if (pages > window.pages || align_pages > window.pages) return 0;
    for (;;) {
        span_lock();
        uint32_t first = take_free(pages, align_pages);
        span_unlock();
        /* Someone else may take what was brought: then bring more. */
        if (first != 0 || !add_fresh(pages + align_pages - 1)) return first;
    }
}

void span_give(uint32_t first) {
    span_lock();
    HAK_ASSERT(span_at(first)->kind == SPAN_USED);
    spans.counts.given++;
    give_free(first, span_at(first)->pages, span_at(first)->pages);
    span_unlock();
}

bool span_extend(uint32_t first, size_t pages) {
    struct span *span = span_at(first);
    if (pages > window.pages) return false;
    bool done = false;
    span_lock();
    uint32_t after = first + span->pages;
    uint32_t more = (uint32_t)pages - span->pages;
    if (page_is_inside(after) && span_at(after)->kind == SPAN_FREE && span_at(after)->pages >= more) {
        carve(after, after, more);
        label_used(first, (uint32_t)pages);
        done = true;
    }
    span_unlock();
    return done;
}

void span_trim(uint32_t first, size_t pages) {
    struct span *span = span_at(first);
    span_lock();
    uint32_t surplus = span->pages - (uint32_t)pages;
    if (surplus != 0) {
        label_used(first, (uint32_t)pages);
        give_free(first + (uint32_t)pages, surplus, surplus);
    }
    span_unlock();
}

/* ---- decay -------------------------------------------------------------------------------------- */

/* Gives one run of at most LIMIT dirty free pages back. The run is a used span while the kernel works on it, so nobody
 * takes or merges it. Returns its length; 0 when there is none, or the kernel refused. */
static uint32_t purge_one(uint32_t limit) {
    span_lock();
    uint32_t head = bins_find_dirty(), first = head, run = 0;
    if (head != 0) run = min_u32(pages_next_dirty(&first, head + span_at(head)->pages), limit);
    if (run != 0) carve(head, first, run);
    span_unlock();
    if (run == 0) return 0;

    bool zeroed = os_purge(page_address(first), run * PAGE_BYTES);

    span_lock();
    if (zeroed) pages_mark_zero(first, run);
    uint32_t free_span = give_free(first, run, zeroed ? 0 : run);
    if (!zeroed) bins_set_refused(free_span);
    span_unlock();
    return zeroed ? run : 0;
}

/* How many pages are due now. Starts the next period. */
static uint64_t pages_due(void) {
    uint64_t due = 0;
    uint64_t now_ms = os_clock_ms();
    span_lock();
    uint64_t elapsed_ms = now_ms - spans.tick_ms;
    if (spans.tick_ms == 0 || now_ms < spans.tick_ms) {
        spans.tick_ms = now_ms;
    } else if (elapsed_ms >= LEAST_TICK_MS && elapsed_ms >= spans.settings.decay_half_life_ms / 8) {
        due = ace_decay_pages(spans.low_water_pages, elapsed_ms, spans.settings.decay_half_life_ms);
        spans.tick_ms = now_ms;
        spans.low_water_pages = spans.counts.dirty_pages;
        if (spans.counts.dirty_pages <= KEPT_PAGES) due = 0;
    }
    span_unlock();
    return due;
}

void span_decay(void) {
    if (spans.settings.decay_half_life_ms == ACE_NEVER) return;
    /* relaxed: only paces the looks at the clock. */
    uint32_t operations = atomic_fetch_add_explicit(&spans.operations, 1, memory_order_relaxed);
    if (operations % OPERATIONS_PER_LOOK != 0) return;
    uint64_t due = pages_due();
    due = min_size(due, PURGE_PAGES_A_TICK);
    while (due != 0) {
        uint32_t purged = purge_one((uint32_t)due);
        if (purged == 0) return;
        due -= min_size(due, purged);
    }
}
