/* colour.h - where in its first page a block of whole pages begins. If all began at a page boundary, data at the same
 * offset of each would share a 64th of every cache that is indexed by address, and programs that go through several
 * large blocks side by side, or touch them here and there, would find that part full. So a block with room to spare
 * begins some cache lines into its page. How many depends on its place: when it is handed out again, its lines are
 * those that the caches hold. */
#ifndef HAK_REGION_COLOUR_H
#define HAK_REGION_COLOUR_H

#include "region/window.h"

/* As many colours as a kernel page has lines; a block is coloured only if it leaves the bytes of all of them unused. */
#define COLOURS_LOG 6
#define COLOUR_BYTES ((size_t)HAK_CACHE_LINE << COLOURS_LOG)
#define BYTES_OF_ONE_COLOUR HAK_MIB(1)

/* The colour of the page that starts at START, in bytes: a multiple of a cache line. Neighbours have the same: spans
 * are cut anew all the time, and what a program touches of a kernel page should be the same line, whichever page its
 * block began with. Farther apart, pages at a power-of-two distance differ (Fibonacci hashing). */
HAK_INLINE size_t colour_of(const void *start) {
    return (size_t)((uint32_t)((uintptr_t)start / BYTES_OF_ONE_COLOUR) * UINT32_C(0x9e3779b1) >> (32 - COLOURS_LOG)) * HAK_CACHE_LINE;
}

/* Bytes from START, of a page, to a block whose pages have SLACK bytes to spare. Branch-free: for some sizes the
 * slack is just about enough. */
HAK_INLINE size_t colour_offset(const void *start, size_t slack) { return colour_of(start) & -(size_t)(slack >= COLOUR_BYTES); }

/* The least usable bytes of a block for BYTES bytes in pages of HELD bytes, wherever it begins. */
HAK_INLINE size_t colour_least(size_t held, size_t bytes) { return held - bytes >= COLOUR_BYTES ? held - COLOUR_BYTES : held; }

/* Whether a block that must be aligned to ALIGNMENT may have a colour. */
HAK_INLINE bool colour_suits(size_t alignment) { return alignment <= HAK_CACHE_LINE; }

#endif
