/* collapse.c - huge pages for what a program took first, before there were any, and for witnesses that were looked at: chunks of small
 * pages that are all in use and at least half resident are brought into one page each, and are of the huge zone from then on. That
 * brings in what was never touched of them, so that the emptiest wait until much more is in use (ace_huge_collapses).
 *
 * One chunk is looked at for each thirty-second part that is in use beyond the last time. To collapse it takes as long as the kernel needs
 * for a huge page (0088). Under the purging lock: what is being returned or unmapped counts as in use, and nothing is broken meanwhile. */
#include "ace/huge.h"
#include "base/bits.h"
#include "span/pages.h"
#include "span/state.h"

static _Atomic uint64_t again_pages; /* in use, from which on the next is looked at. relaxed: looked at again under the span lock */

static uint64_t brought_bytes; /* that were never touched, by all collapses. Guarded by the purging lock */

/* Guarded by the span lock. */
static size_t first_chunk, next_chunk; /* the first that may be, and that is looked at */

void huge_note_child(void) { first_chunk = counter_read(&spans.end_page) / CHUNK_PAGES; }

/* Whether the chunk at PAGE has small pages, for no reason that still holds, all of it is in use, and it lies in one mapping: the kernel
 * collapses no other. Span lock held. */
static bool is_small_and_used(size_t page) {
    const struct chunk *chunk = page_chunk(page);
    const bool is_small = chunk->zone == ZONE_PLAIN || (chunk->witness && huge_was_seen(page));
    if (!chunk->given || !is_small || chunk->used != UINT32_MAX) return false;
    const uint32_t first = (uint32_t)page, end = first + CHUNK_PAGES;
    return pages_next_edge(first, end) == end;
}

/* The first page of the next chunk that may be collapsed; 0 where none of the next few may. Span lock held. */
static size_t next_to_look_at(void) {
    enum { LOOKED_AT = 64 };
    const size_t end = counter_read(&spans.end_page) / CHUNK_PAGES;
    for (int i = 0; i < LOOKED_AT; i++) {
        if (next_chunk < first_chunk || next_chunk >= end) next_chunk = first_chunk;
        const size_t page = next_chunk++ * CHUNK_PAGES;
        if (page < end * CHUNK_PAGES && is_small_and_used(page)) return page;
    }
    return 0;
}

/* Whether the setting allows it. Where addresses were lost, somebody else's memory may be there. Span lock held. */
static bool is_allowed(void) { return spans.settings.huge_from_pages != UINT64_MAX && counter_read(&spans.counts.lost_pages) == 0; }

static bool is_due(void) {
    return counter_read(&spans.counts.used_pages) >= atomic_load_explicit(&again_pages, memory_order_relaxed);
}

/* As next_to_look_at, if that is due. */
static size_t next_if_due(void) {
    size_t page = 0;
    span_lock();
    if (is_due()) {
        const uint64_t used_pages = counter_read(&spans.counts.used_pages);
        atomic_store_explicit(&again_pages, used_pages + used_pages / 32 + 1, memory_order_relaxed);
        if (is_allowed()) page = next_to_look_at();
    }
    span_unlock();
    return page;
}

/* Of the chunk at PAGE MISSING_BYTES are not resident. Whether it is of the huge zone now. Purging lock held. */
static bool settle(size_t page, size_t missing_bytes) {
    span_lock();
    const struct ace_collapse_input input = {
        .used_bytes = counter_read(&spans.counts.used_pages) * PAGE_BYTES,
        .brought_bytes = brought_bytes,
        .missing_bytes = missing_bytes,
        .bytes = CHUNK_PAGES * PAGE_BYTES,
        .objective = spans.settings.objective,
    };
    const bool settled = is_allowed() && is_small_and_used(page) && ace_huge_collapses(input);
    if (settled) {
        const uint64_t before = counter_read(&spans.counts.huge_pages);
        struct chunk *chunk = page_chunk(page);
        chunk->zone = ZONE_HUGE;
        chunk->no_huge = chunk->broken = chunk->witness = false;
        chunk->collapsed = true;
        counter_add(&spans.counts.huge_pages, CHUNK_PAGES);
        span_tell(&(struct ace_decision){
            .reason = ACE_REASON_RESIDENT, .from = before, .to = before + CHUNK_PAGES,
            .inputs = {missing_bytes, brought_bytes + missing_bytes}});
    }
    span_unlock();
    return settled;
}

/* Purging lock held. */
static void collapse_one(void) {
    const size_t page = next_if_due(), bytes = CHUNK_PAGES * PAGE_BYTES;
    size_t resident_bytes;
    if (page == 0 || !os_collapses() || !os_tells_resident(page_address(page), bytes, &resident_bytes)) return;
    if (!settle(page, bytes - resident_bytes)) return;
    const bool advised = os_prefer_huge(page_address(page), bytes), collapsed = os_collapse(page_address(page), bytes);
    if (advised || collapsed) brought_bytes += bytes - resident_bytes; /* what is only advised khugepaged collapses later */
}

void huge_collapse_next(void) {
    if (counter_read(&spans.counts.huge_pages) == 0 || !is_due() || !span_purging_try()) return;
    collapse_one();
    span_purging_unlock();
}
