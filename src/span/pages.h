/* pages.h - which pages are used and which were touched, as bits of their 2 MiB chunk. The span lock is
 * held by every caller. */
#ifndef HAK_SPAN_PAGES_H
#define HAK_SPAN_PAGES_H

#include "span/span.h"

/* Marks PAGES pages from FIRST used, and with that touched. Returns how many were dirty before. */
uint32_t pages_mark_used(uint32_t first, uint32_t pages);

/* Marks them free. They stay dirty. */
void pages_mark_free(uint32_t first, uint32_t pages);

/* Marks them known to be zero. */
void pages_mark_zero(uint32_t first, uint32_t pages);

/* How many of them are not known to be zero. */
uint32_t pages_count_dirty(uint32_t first, uint32_t pages);

/* Used pages in the chunk of PAGE. */
unsigned pages_used_in_chunk(uint32_t page);

/* The first run of dirty pages at or after *FIRST and before END: its start in *FIRST, its length as
 * result; 0 when there is none. */
uint32_t pages_next_dirty(uint32_t *first, uint32_t end);

#endif
