/* pages.h - which pages are used and which were touched, as bits of their 2 MiB chunk. Every caller holds the span
 * lock. */
#ifndef HAK_SPAN_PAGES_H
#define HAK_SPAN_PAGES_H

#include "base/bits.h"
#include "span/span.h"

/* What a run of pages was before it was marked used. */
struct pages_before {
    uint32_t touched;  /* pages not known to be zero */
    uint32_t dirty;    /* of these, those that the kernel has not refused to take back */
    uint32_t returned; /* pages returned to the kernel after an earlier use */
};

/* Marks PAGES pages from FIRST used, and thereby touched. */
struct pages_before pages_mark_used(uint32_t first, uint32_t pages);

/* Marks them used, but as they were: nobody touches them before they are free again. */
void pages_mark_held(uint32_t first, uint32_t pages);

/* Marks them free. What was touched stays dirty. */
void pages_mark_free(uint32_t first, uint32_t pages);

/* Marks them known to be zero: their contents moved elsewhere. */
void pages_mark_zero(uint32_t first, uint32_t pages);

/* Marks them returned to the kernel: known to be zero, and counted as returned too early if they are used again. */
void pages_mark_returned(uint32_t first, uint32_t pages);

/* Forgets that they were returned: their next use is no early one. */
void pages_forget_returned(uint32_t first, uint32_t pages);

/* Whether some of them were mapped by a move; and marks them as one mapping now, by a move or not. */
bool pages_any_moved(uint32_t first, uint32_t pages);
void pages_mark_moved(uint32_t first, uint32_t pages, bool moved);

/* About how many mappings moves have left. */
uint32_t pages_edges(void);

/* The first page after AT, and at most END, where the advice to the kernel differs. */
uint32_t pages_next_advice(uint32_t at, uint32_t end);

/* The first page after AT, and at most END, where another mapping may begin. */
uint32_t pages_next_edge(uint32_t at, uint32_t end);

/* Marks them refused: not dirty any more, and not known to be zero either. */
void pages_mark_refused(uint32_t first, uint32_t pages);

/* How many of them are dirty. */
uint32_t pages_count_dirty(uint32_t first, uint32_t pages);

/* Used pages in the chunk of PAGE. */
unsigned pages_used_in_chunk(uint32_t page);

/* Shortens a run to whole chunks; PAGES is 0 where there are none. */
HAK_INLINE struct page_run whole_chunks(struct page_run run) {
    const size_t first = round_up(run.first, CHUNK_PAGES), end = round_down(run.first + run.pages, CHUNK_PAGES);
    return (struct page_run){first, first < end ? end - first : 0};
}

/* The first run of dirty pages at or after *FIRST and before END, or the first MOST pages of it: its start in *FIRST, its length
 * as result; 0 when there is none. */
uint32_t pages_next_dirty(uint32_t *first, uint32_t end, uint32_t most);

#endif
