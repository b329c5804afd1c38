/* bins.h - free spans by length: exact bins up to 32 pages, then four per doubling. Dirty and clean spans are kept
 * apart, and so are the zones. Every caller holds the span lock. */
#ifndef HAK_SPAN_BINS_H
#define HAK_SPAN_BINS_H

#include "base/bits.h"
#include "span/span.h"

/* Makes PAGES pages from FIRST, DIRTY of them dirty, a free span of its own, without merging, and links it into its
 * bin. */
void bins_insert(uint32_t first, uint32_t pages, uint32_t dirty);

/* The free span at FROM is now one of PAGES pages from FIRST, in the same zone: FIRST may lie before FROM or inside. */
void bins_change(uint32_t from, uint32_t first, uint32_t pages, uint32_t dirty);

/* Takes the free span at FIRST out of its bin. Its records still say that it is free. */
void bins_remove(uint32_t first);

/* Where in the free span at FIRST one may begin that starts as START says; perhaps behind its end. By address, since the window's base
 * is aligned to 2 MiB only. */
HAK_INLINE size_t bins_start_from(size_t first, struct span_start start) {
    const size_t at_bytes = start.at_pages * PAGE_BYTES;
    return page_index((void *)(round_up((uintptr_t)page_address(first) - at_bytes, start.align_pages * PAGE_BYTES) + at_bytes));
}

/* The free span to serve a request for PAGES pages in ZONE that start as START says: a dirty one, even of the other
 * zone, before a clean one; the shortest that fits; of equals, one in the fullest 2 MiB. 0 when none fits. That of the other zone
 * does not serve it if less than half of what would be cut is dirty: of huge pages it would fault in too much, and of others too little. */
uint32_t bins_find(uint32_t pages, struct span_start start, enum span_zone zone);

/* The shortest gap of PAGES pages or more; 0 when there is none. */
uint32_t bins_find_gap(uint32_t pages);

/* A free span of either zone that ACCEPTS admits, from the longest bin possible; 0 when there is none. Looks at a few spans of
 * each bin. */
uint32_t bins_find_longest(bool (*accepts)(uint32_t first));

/* A free span of ZONE with dirty pages that ACCEPTS admits (NULL: any), other than that at SPARED (0: any), from the longest bin
 * possible; 0 when there is none. Looks at a few spans of each bin. */
uint32_t bins_find_dirty(enum span_zone zone, uint32_t spared, bool (*accepts)(uint32_t first));

#endif
