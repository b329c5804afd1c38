/* glibc.c - what glibc's malloc offers beside blocks, as far as it has a meaning here: statistics, trimming, settings; and reallocarray.
 *
 * The structures are glibc's (mallinfo(3)), declared here since other C libraries have none. */
#include "api/names.h"
#include "api/no_memory.h"
#include "api/start.h"
#include "base/bits.h"
#include "hakmem/hakmem.h"
#include "os/os.h"
#include "watch/report.h"
#include "watch/stats.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* PAD, the bytes that glibc would leave at the top of its heap, has no meaning here. */
HAK_EXPORT int hak_malloc_trim(size_t pad) {
    (void)pad;
    return hak_collect() != 0;
}

HAK_LIBC_NAME(int, malloc_trim, (size_t pad), hak_malloc_trim)

#ifndef HAK_NO_LIBC_NAMES

struct mallinfo2 {
    size_t arena;   /* bytes held for all blocks but medium and large ones: used, or free and not yet returned to the kernel */
    size_t ordblks; /* free small blocks */
    size_t smblks;  /* 0, as are fsmblks and usmblks: there are no fastbins */
    size_t hblks;   /* medium and large blocks: what glibc maps apart */
    size_t hblkhd;  /* their bytes, which no other field includes: readers add arena and hblkhd */
    size_t usmblks;
    size_t fsmblks;
    size_t uordblks; /* of arena, blocks in use, those in the caches of threads included */
    size_t fordblks; /* the rest of arena */
    size_t keepcost; /* of it, what hak_collect could return as whole pages */
};

struct mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};

/* BYTES without medium and large blocks. The numbers are of different moments, so a negative difference becomes 0. */
static size_t but_large(size_t bytes, const struct stats_totals *totals) { return bytes - min_size(bytes, totals->large_bytes); }

static int as_int(size_t value) { return (int)min_size(value, INT_MAX); }

HAK_EXPORT struct mallinfo2 mallinfo2(void) {
    struct stats_totals totals;
    start_once();
    stats_read_totals(&totals);
    return (struct mallinfo2){
        .arena = but_large(totals.held_bytes, &totals),
        .ordblks = totals.free_small_blocks,
        .hblks = totals.large_blocks,
        .hblkhd = totals.large_bytes,
        .uordblks = but_large(totals.in_use_bytes, &totals),
        .fordblks = totals.held_bytes - totals.in_use_bytes,
        .keepcost = totals.dirty_bytes,
    };
}

/* Calls realloc by that name, as glibc's does: a program may bring malloc, free and realloc of its own and no reallocarray. In malloc.c,
 * beside our realloc, the compiler would bind the call to that. */
HAK_EXPORT void *reallocarray(void *block, size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) return no_memory(SIZE_MAX, SMALLEST_BLOCK_BYTES);
    return realloc(block, total);
}

/* A value that does not fit an int becomes INT_MAX. */
HAK_EXPORT struct mallinfo mallinfo(void) {
    struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){
        .arena = as_int(wide.arena),
        .ordblks = as_int(wide.ordblks),
        .hblks = as_int(wide.hblks),
        .hblkhd = as_int(wide.hblkhd),
        .uordblks = as_int(wide.uordblks),
        .fordblks = as_int(wide.fordblks),
        .keepcost = as_int(wide.keepcost),
    };
}

HAK_EXPORT void malloc_stats(void) {
    start_once();
    report_write(os_message_fd(), REPORT_TEXT);
}

/* A document in glibc's form, with a single heap: it does not list threads separately. */
HAK_EXPORT int malloc_info(int options, FILE *stream) {
    if (options != 0) {
        errno = EINVAL;
        return -1;
    }
    struct stats_totals totals;
    start_once();
    stats_read_totals(&totals);
    int written = fprintf(stream,
                          "<malloc version=\"1\">\n"
                          "<heap nr=\"0\">\n"
                          "<total type=\"fast\" count=\"%zu\" size=\"%zu\"/>\n"
                          "<total type=\"rest\" count=\"0\" size=\"%zu\"/>\n"
                          "<system type=\"current\" size=\"%zu\"/>\n"
                          "</heap>\n"
                          "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
                          "<system type=\"current\" size=\"%zu\"/>\n"
                          "</malloc>\n",
                          totals.free_small_blocks, totals.free_small_bytes, totals.dirty_bytes,
                          but_large(totals.held_bytes, &totals), totals.large_blocks, totals.large_bytes,
                          but_large(totals.held_bytes, &totals));
    return written < 0 ? -1 : 0;
}

/* glibc's numbers of its settings; mallopt(3). */
enum {
    M_MXFAST = 1,
    M_TRIM_THRESHOLD = -1,
    M_TOP_PAD = -2,
    M_MMAP_THRESHOLD = -3,
    M_MMAP_MAX = -4,
    M_ARENA_TEST = -7,
    M_ARENA_MAX = -8
};

/* These settings tell glibc how to arrange its heap. Here they would change nothing that a program could see, so they are accepted.
 * Settings whose effect a program could see (M_PERTURB, M_CHECK_ACTION) and unknown ones are refused. */
HAK_EXPORT int mallopt(int parameter, int value) {
    (void)value;
    switch (parameter) {
    case M_MXFAST:
    case M_TRIM_THRESHOLD:
    case M_TOP_PAD:
    case M_MMAP_THRESHOLD:
    case M_MMAP_MAX:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
        return 1;
    default:
        return 0;
    }
}

#endif
