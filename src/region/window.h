/* window.h - the range of addresses that hakmem serves, and what is known of each 64 KiB page in it.
 *
 * The window is a range of addresses, not a reservation: memory is reserved inside it region by
 * region, upwards. Parallel arrays, each indexed by page, hold everything the allocator knows:
 *
 *   words     owner and class, 4 bytes; read by every free; readable over the whole window
 *   spans     64 bytes for the span or slab that starts or lies here; written under its owner's lock
 *   remotes   16 bytes that other threads write, apart from the spans; untouched until one does
 *   chunks    32 bytes per 2 MiB: which pages are used, which were ever touched
 *
 * Only words may be read for any page of the window, and chunks for any up to the last that was given to the span
 * layer. The others exist for pages that were given, which include every page whose word is not 0, and for their
 * neighbours.
 *
 * Before window_start the window has no pages and an impossible base, so that every pointer, NULL
 * included, is found to lie outside it. */
#ifndef HAK_REGION_WINDOW_H
#define HAK_REGION_WINDOW_H

#include "base/attributes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8, "hakmem is written for 64-bit address spaces");

#define PAGE_SHIFT 16
#define PAGE_BYTES ((size_t)1 << PAGE_SHIFT)
#define CHUNK_PAGES 32u /* 2 MiB: what a huge page covers */
#define SPAN_RECORD_BYTES 64
#define REMOTE_RECORD_BYTES 16

/* What is known of a 2 MiB chunk: one bit per page, and what the kernel was advised. Guarded by the span layer's
 * lock. */
struct chunk {
    uint32_t used;     /* handed out, or held while the kernel works on them */
    uint32_t touched;  /* handed out since the kernel last gave it as zero */
    uint32_t returned; /* returned to the kernel after use, and not used since */
    uint32_t refused;  /* free, and the kernel would not take them back; not used since */
    uint32_t moved;    /* mapped by a move: never in one mapping with pages that were not */
    uint32_t edges;    /* a mapping that a move left may begin here */
    uint8_t given;     /* the span layer has it mapped; otherwise it lies in a gap, or a thread is about to give it */
    uint8_t zone;      /* an enum span_zone; settled before the span layer gets it. Changes when all is in use and collapsed, or unmapped */
    uint8_t no_huge;   /* in the huge zone, but the kernel was told to use no huge pages here */
    uint8_t broken;    /* and the huge page that there was is broken, or there never was one */
    uint8_t witness;   /* no huge pages so far, to show what the program touches */
    uint8_t collapsed; /* in the huge zone, but was plain as it was touched */
};

struct window {
    uintptr_t base;
    size_t pages;
    _Atomic uint32_t *words;
    char *spans;
    char *remotes;
    struct chunk *chunks;
};

extern HAK_HIDDEN struct window window;

/* Index of the page that holds ADDRESS; not below window.pages when it lies outside the window. */
HAK_INLINE size_t page_index(const void *address) {
    return ((uintptr_t)address - window.base) >> PAGE_SHIFT;
}

HAK_INLINE void *page_address(size_t index) { return (void *)(window.base + (index << PAGE_SHIFT)); }

/* Where the page of ADDRESS, in the window, starts: the window starts with a page. */
HAK_INLINE void *page_start(const void *address) { return (void *)((uintptr_t)address & ~(PAGE_BYTES - 1)); }

HAK_INLINE bool page_is_inside(size_t index) { return index < window.pages; }

/* relaxed: a thread that holds a block of the page learned of it after the word was written, and only the owner of
 * all its blocks rewrites it. */
HAK_INLINE uint32_t page_word(size_t index) {
    return atomic_load_explicit(&window.words[index], memory_order_relaxed);
}

HAK_INLINE void page_word_set(size_t index, uint32_t word) {
    atomic_store_explicit(&window.words[index], word, memory_order_relaxed); /* as above */
}

HAK_INLINE void *page_span(size_t index) { return window.spans + index * SPAN_RECORD_BYTES; }

HAK_INLINE void *page_remote(size_t index) { return window.remotes + index * REMOTE_RECORD_BYTES; }

HAK_INLINE struct chunk *page_chunk(size_t index) { return &window.chunks[index / CHUNK_PAGES]; }

/* A run of pages; PAGES is 0 where there is none. */
struct page_run {
    size_t first;
    size_t pages;
};

/* Sets the window up: BYTES of address space, or with 0 what suits the machine (1 TiB, less under RLIMIT_AS or an
 * emulator). Called once, by one thread. On false there is no window: everything is served by mappings outside it. */
bool window_start(size_t bytes);

/* Fresh, committed, zero memory: at least PAGES pages, 2 MiB aligned, always above what was given before, so that a run
 * may continue the one before it; more than that where it saves calls, but not beyond MOST pages. Empty when the window is
 * used up or the kernel refuses. The window's lock is held; makes system calls. */
struct page_run window_extend(size_t pages, size_t most);

/* Whether ADDRESS lies in the part of the window that was reserved, or in a gap of it, be it one that the span layer made: the window
 * itself may reach over other mappings. At any time. */
bool window_holds(const void *address);

/* No other thread extends the window between the two. Held across the system calls that this takes: a waiting thread
 * needs memory, too, and mostly finds what was added. */
void window_lock(void);
void window_unlock(void);
void window_lock_reset(void);

#endif
