/* large.h - blocks above MEDIUM_MAX_BYTES, or aligned to more than a page, which are spans of their own, and blocks outside
 * the window. Between slow_enter and slow_leave, unless said otherwise. No heap's lock is held. */
#ifndef HAK_HEAP_LARGE_H
#define HAK_HEAP_LARGE_H

#include "heap/front.h"
#include "region/colour.h"
#include "span/span.h"

/* The record of a large block's first page: its span's, continued. */
struct large {
    struct span span;
    uint32_t pages; /* of the block; the span's pages beyond are its reserve */
    uint16_t offset; /* of its first byte in the first page */
    bool moved;     /* it has moved before in order to grow: more growth is expected */
};

/* Dense if BYTES bytes leave no more than a quarter as much of their PAGES pages unused: a huge page would fault that in, too. For
 * medium blocks as well. */
HAK_INLINE enum ace_fill large_fill(size_t pages, size_t bytes) {
    return pages * PAGE_BYTES - bytes <= bytes / 4 ? ACE_DENSE : ACE_SPARSE;
}

/* A new block; NULL when there is no memory. *ZERO: it reads as zero. */
void *large_alloc(size_t bytes, size_t alignment, bool *zero);

/* The same outside the window: with as many usable bytes as a block of heap_alloc's would have, or more. At any time. */
void *large_map_outside(size_t bytes, size_t alignment, bool *zero);

/* Makes BLOCK, a medium block in use, a large one, whichever heap owns its slab. */
void large_make_of_medium(void *block);

/* True for one of several threads that free the block at PAGE: that one may call one of the next two. At any time. */
bool large_claim(size_t page);

/* Frees the claimed block that starts at PAGE. */
void large_free(size_t page);

/* The same for a thread that is busy: the next large_alloc, large_free or large_settle does it. */
void large_free_later(size_t page);

/* Frees the blocks that wait for it. Cheap when there are none. */
void large_settle(void);

/* Where the block with first page PAGE begins. At any time. */
HAK_INLINE void *large_start(size_t page) { return (char *)page_address(page) + ((const struct large *)page_span(page))->offset; }

/* Usable bytes of the block that starts at PAGE. At any time. */
size_t large_usable_bytes(size_t page);

/* Resizes it to BYTES bytes in place, or moves its pages. Returns its new address; NULL when it must be copied, and
 * is unchanged. */
void *large_resize(size_t page, size_t bytes);

/* Lengthens it in place to BYTES bytes, more than it has; false when that is impossible, and it is unchanged. */
bool large_extend(size_t page, size_t bytes);

/* Usable bytes of a block that large_alloc makes for BYTES bytes, at most PTRDIFF_MAX. */
size_t large_good_bytes(size_t bytes);

#endif
