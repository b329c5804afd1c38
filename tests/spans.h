/* spans.h - spans that carry a key, and a look at all books of the span layer. Whoever includes this has no_purger.h,
 * too. */
#ifndef HAK_TESTS_SPANS_H
#define HAK_TESTS_SPANS_H

#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "no_purger.h"
#include "os/os.h"
#include "os_counts.h"
#include "span/span.h"

CHECK_UNUSED static void configure(uint64_t half_life_ms, uint64_t huge_from_pages) {
    span_configure(
        &(struct span_settings){.decay_half_life_ms = half_life_ms, .huge_from_pages = huge_from_pages});
}

CHECK_UNUSED static struct span_counts counts_now(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts;
}

/* From here on the program is one that touches what it takes, so that it gets huge pages. */
CHECK_UNUSED static void touch_memory(void) {
    configure(ACE_NEVER, UINT64_MAX);
    uint32_t pages = (uint32_t)counts_now().fresh_pages + 8 * CHUNK_PAGES, touched = span_take(pages, 1, ACE_DENSE);
    CHECK(touched != 0);
    memset(page_address(touched), 1, pages * PAGE_BYTES);
    configure(ACE_NEVER, 1);
    struct span_counts before = counts_now();
    uint32_t fresh = span_take(before.fresh_pages + 1, 1, ACE_DENSE);
    CHECK(fresh != 0 && counts_now().huge_pages > before.huge_pages);
    span_give(fresh);
    span_give(touched);
    configure(ACE_NEVER, UINT64_MAX);
}

/* A free span lies in one zone, and between two of the same zone nothing is missing. */
static void check_free_span(uint32_t first, uint32_t touched) {
    const struct span *span = span_at(first), *last = span_at(first + span->pages - 1);
    CHECK_AT(span->dirty == touched, first);
    if (span->pages > 1) CHECK_AT(last->kind == SPAN_FREE_LAST && last->head == first, first);
    for (uint32_t page = first; page < first + span->pages; page++)
        CHECK_AT(page_chunk(page)->zone == page_chunk(first)->zone, page);
}

/* Where memory is unmapped and comes again it is counted anew. */
CHECK_UNUSED static bool has_gaps;

/* Looks at every page that this layer was ever given, in one piece. Nobody else works on it. */
CHECK_UNUSED static void check_books(void) {
    struct span_counts counts = counts_now();
    uint64_t used = 0, used_spans = 0, lost = 0, dirty = 0, huge = 0;
    bool free_before = false;
    uint32_t at = CHUNK_PAGES, end = (uint32_t)span_end_page();
    while (at < end) {
        const struct span *span = span_at(at);
        CHECK_AT(span->pages > 0 && span->pages <= end - at, at);
        bool is_free = span->kind == SPAN_FREE;
        CHECK_AT(is_free || span->kind != SPAN_NONE, at);
        if (is_free && free_before) CHECK_AT(page_chunk(at)->zone != page_chunk(at - 1)->zone, at); /* or they would be one */
        uint32_t touched = 0;
        for (uint32_t page = at; page < at + span->pages; page++) {
            struct chunk bits = *page_chunk(page);
            unsigned shift = page % CHUNK_PAGES;
            CHECK_AT((bits.used >> shift & 1) == !is_free, page);
            CHECK_AT(!(bits.returned >> shift & 1) || !((bits.touched | bits.used) >> shift & 1), page);
            touched += (bits.touched & ~bits.refused) >> shift & 1;
            huge += bits.zone == ZONE_HUGE && !bits.witness;
        }
        if (is_free) check_free_span(at, touched);
        used += span->kind == SPAN_USED ? span->pages : 0;
        used_spans += span->kind == SPAN_USED;
        lost += span->kind == SPAN_LOST ? span->pages : 0;
        dirty += is_free ? touched : 0;
        free_before = is_free;
        at += span->pages;
    }
    CHECK(has_gaps ? end - CHUNK_PAGES <= counts.fresh_pages : end - CHUNK_PAGES == counts.fresh_pages);
    CHECK_EQ(used, counts.used_pages);
    CHECK_EQ(used_spans, counts.taken - counts.given);
    CHECK_EQ(lost, counts.lost_pages);
    CHECK_EQ(dirty, counts.dirty_pages);
    CHECK(has_gaps ? huge <= counts.huge_pages : huge == counts.huge_pages);
}

/* A span in use: both ends of each of its pages carry its key, wherever it is moved. */
struct mine {
    uint32_t first, pages;
    uint64_t key;
};

static uint64_t *words_of(uint32_t page) { return page_address(page); }
enum { LAST_WORD = PAGE_BYTES / sizeof(uint64_t) - 1 };

CHECK_UNUSED static void write_pages(const struct mine *mine, uint32_t from) {
    for (uint32_t i = from; i < mine->pages; i++)
        words_of(mine->first + i)[0] = words_of(mine->first + i)[LAST_WORD] = mine->key ^ i;
}

/* Of the first PAGES pages. */
CHECK_UNUSED static void check_pages(const struct mine *mine, uint32_t pages) {
    for (uint32_t i = 0; i < pages; i++) {
        CHECK_AT(words_of(mine->first + i)[0] == (mine->key ^ i), i);
        CHECK_AT(words_of(mine->first + i)[LAST_WORD] == (mine->key ^ i), i);
    }
}

CHECK_UNUSED static void check_zero(uint32_t first, uint32_t pages) {
    for (uint32_t page = first; page < first + pages; page++)
        CHECK_AT(words_of(page)[0] == 0 && words_of(page)[LAST_WORD] == 0, page);
}

CHECK_UNUSED static struct mine take_keyed(size_t pages, bool dense, uint64_t key) {
    struct mine mine = {span_take(pages, 1, dense ? ACE_DENSE : ACE_SPARSE), (uint32_t)pages, key};
    CHECK(mine.first != 0);
    CHECK_EQ(span_at(mine.first)->pages, pages);
    write_pages(&mine, 0);
    return mine;
}

/* The same, dense, AT pages behind the start of a chunk. */
CHECK_UNUSED static struct mine take_keyed_at(uint32_t at, uint32_t pages, uint64_t key) {
    struct mine mine = {span_take_at(pages, (struct span_start){CHUNK_PAGES, at}, ACE_DENSE), pages, key};
    CHECK(mine.first != 0 && mine.first % CHUNK_PAGES == at);
    CHECK_EQ(span_at(mine.first)->pages, pages);
    write_pages(&mine, 0);
    return mine;
}

CHECK_UNUSED static void purge_all(void) {
    span_purging_lock();
    span_purge(UINT64_MAX);
    span_purging_unlock();
}

#endif
