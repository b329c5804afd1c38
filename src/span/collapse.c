/* collapse.c - huge pages for what a program took first, before there were any: chunks of the plain zone that are all in use and mostly
 * resident are brought into one page each, and are of the huge zone from then on. That brings in what was never touched of them, so
 * that the emptiest wait until much more is in use (ace_huge_collapses).
 *
 * One chunk is looked at for each thirty-second part that is in use beyond the last time: each costs as much as half a millisecond. */
#include "ace/huge.h"
#include "base/bits.h"
#include "span/pages.h"
#include "span/state.h"

static _Atomic uint64_t again_pages; /* in use, from which on the next is looked at; written under the span lock. relaxed: two may look */
static size_t next_chunk;            /* guarded by the span lock, as is: */
static uint64_t brought_bytes;       /* that were never touched, by all collapses */

static bool is_plain_and_used(size_t page) {
    const struct chunk *chunk = page_chunk(page);
    return chunk->given && chunk->zone == ZONE_PLAIN && chunk->used == UINT32_MAX;
}

/* The next chunk's first page; 0 where none of the next few will do. Span lock held. */
static size_t next_to_look_at(void) {
    enum { LOOKED_AT = 64 };
    const size_t end = counter_read(&spans.end_page) / CHUNK_PAGES;
    for (int i = 0; i < LOOKED_AT; i++) {
        if (next_chunk >= end) next_chunk = 0;
        const size_t page = next_chunk++ * CHUNK_PAGES;
        if (is_plain_and_used(page)) return page;
    }
    return 0;
}

/* Of the chunk at PAGE MISSING_BYTES are not resident. Whether it is of the huge zone now. */
static bool settle(size_t page, size_t missing_bytes) {
    span_lock();
    const struct ace_collapse_input input = {
        .used_bytes = counter_read(&spans.counts.used_pages) * PAGE_BYTES,
        .brought_bytes = brought_bytes,
        .missing_bytes = missing_bytes,
        .bytes = CHUNK_PAGES * PAGE_BYTES,
        .objective = spans.settings.objective,
    };
    const bool settled = is_plain_and_used(page) && ace_huge_collapses(input);
    if (settled) {
        const uint64_t before = counter_read(&spans.counts.huge_pages);
        struct chunk *chunk = page_chunk(page);
        chunk->zone = ZONE_HUGE;
        chunk->no_huge = chunk->broken = chunk->witness = false;
        brought_bytes += missing_bytes;
        counter_add(&spans.counts.huge_pages, CHUNK_PAGES);
        span_tell(&(struct ace_decision){
            .reason = ACE_REASON_RESIDENT, .from = before, .to = before + CHUNK_PAGES, .inputs = {missing_bytes, brought_bytes}});
    }
    span_unlock();
    return settled;
}

void huge_collapse_next(void) {
    const uint64_t used_pages = counter_read(&spans.counts.used_pages);
    const bool due = used_pages >= atomic_load_explicit(&again_pages, memory_order_relaxed);
    if (HAK_LIKELY(!due) || counter_read(&spans.counts.huge_pages) == 0 || !os_collapses()) return;
    span_lock();
    atomic_store_explicit(&again_pages, used_pages + used_pages / 32 + 1, memory_order_relaxed);
    const size_t page = next_to_look_at();
    span_unlock();
    if (page == 0) return;
    const size_t bytes = CHUNK_PAGES * PAGE_BYTES;
    if (!settle(page, bytes - os_resident_bytes(page_address(page), bytes))) return;
    huge_prefer((struct page_run){page, CHUNK_PAGES});
    os_collapse(page_address(page), bytes); /* where it was broken meanwhile the kernel says no */
}
