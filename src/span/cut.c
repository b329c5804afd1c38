/* cut.c - cutting spans out of free ones, and merging what is freed with the free spans around it. Span lock held. */
#include "os/assert.h"
#include "span/bins.h"
#include "span/pages.h"
#include "span/state.h"

static bool same_zone(uint32_t a, uint32_t b) { return page_chunk(a)->zone == page_chunk(b)->zone; }

/* The first page of the free span of the same zone that ends before FIRST; 0 when there is none. */
static uint32_t free_before(uint32_t first) {
    const struct span *before = span_at(first - 1);
    if ((before->kind != SPAN_FREE && before->kind != SPAN_FREE_LAST) || !same_zone(first - 1, first))
        return 0;
    return before->kind == SPAN_FREE ? first - 1 : before->head;
}

/* The free span of the same zone that starts at AFTER; 0 when there is none. */
static uint32_t free_after(uint32_t after) {
    return page_is_inside(after) && span_at(after)->kind == SPAN_FREE && same_zone(after - 1, after) ? after
                                                                                                     : 0;
}

void span_insert(uint32_t first, uint32_t pages, uint32_t dirty) {
    uint32_t before = free_before(first), after = free_after(first + pages);
    if (after != 0) {
        pages += span_at(after)->pages;
        dirty += span_at(after)->dirty;
        if (before != 0) bins_remove(after);
    }
    if (before != 0) {
        pages += span_at(before)->pages;
        dirty += span_at(before)->dirty;
        first = before;
    }
    if (before == 0 && after == 0)
        bins_insert(first, pages, dirty);
    else
        bins_change(before != 0 ? before : after, first, pages, dirty);
}

static void label(uint32_t first, uint32_t pages, enum span_kind kind) {
    struct span *span = span_at(first);
    span->pages = pages;
    span->kind = (uint8_t)kind;
    span_at(first + pages - 1)->kind = (uint8_t)kind;
}

static void label_used(uint32_t first, uint32_t pages) { label(first, pages, SPAN_USED); }

void span_set_length(uint32_t first, uint32_t pages) {
    counter_sub(&span_counts_of(span_at(first)->pages)->live, 1);
    counter_add(&span_counts_of(pages)->live, 1);
    label_used(first, pages);
}

void span_split(uint32_t first, uint32_t pages) {
    const uint32_t behind = span_at(first)->pages - pages;
    span_set_length(first, pages);
    label_used(first + pages, behind);
}

/* Cuts PAGES pages at FIRST, DIRTY of them dirty, out of the free span at HEAD, which holds them. */
HAK_INLINE void cut(uint32_t head, uint32_t first, uint32_t pages, uint32_t dirty) {
    uint32_t end = head + span_at(head)->pages;
    HAK_ASSERT(head <= first && first + pages <= end);
    uint32_t rest = end - (first + pages), dirty_left = span_at(head)->dirty - dirty;
    if (first != head) { /* only for alignments above a page, and for purging */
        uint32_t dirty_before = pages_count_dirty(head, first - head);
        bins_change(head, head, first - head, dirty_before);
        if (rest != 0) bins_insert(first + pages, rest, dirty_left - dirty_before);
    } else if (rest != 0) {
        bins_change(head, first + pages, rest, dirty_left);
    } else {
        bins_remove(head);
    }
    label_used(first, pages);
    counter_sub(&spans.counts.dirty_pages, dirty);
}

void span_carve(uint32_t head, uint32_t first, uint32_t pages) {
    struct pages_before before = pages_mark_used(first, pages);
    cut(head, first, pages, before.dirty);
    span_at(first)->zero = before.touched == 0;
    counter_add(&spans.counts.used_pages, pages);
    purge_note_taken(before.returned);
}

void span_hold(uint32_t head, struct page_run run) {
    const uint32_t first = (uint32_t)run.first, pages = (uint32_t)run.pages;
    pages_mark_held(first, pages);
    cut(head, first, pages, pages_count_dirty(first, pages));
}

/* How many pages from FIRST on are of one zone. */
static uint32_t pages_of_zone(uint32_t first, uint32_t pages) {
    uint32_t end = first + pages, at = first;
    while (at < end && same_zone(first, at)) at = at - at % CHUNK_PAGES + CHUNK_PAGES;
    return min_u32(at, end) - first;
}

void span_free(uint32_t first, uint32_t pages) {
    pages_mark_free(first, pages);
    while (pages != 0) { /* a span that was lengthened may reach into the other zone */
        uint32_t run = pages_of_zone(first, pages), dirty = pages_count_dirty(first, run);
        counter_sub(&spans.counts.used_pages, run);
        counter_add(&spans.counts.dirty_pages, dirty);
        span_insert(first, run, dirty);
        first += run;
        pages -= run;
    }
}

void span_lose(uint32_t first, uint32_t pages) {
    counter_sub(&spans.counts.used_pages, pages);
    counter_add(&spans.counts.lost_pages, pages);
    label(first, pages, SPAN_LOST);
}
