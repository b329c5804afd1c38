/* new_window.h - a window in place of the one that the library has started for this process, and what must hold of
 * its pages. In a child, which never calls malloc after that. */
#ifndef TESTS_UNIT_REGION_NEW_WINDOW_H
#define TESTS_UNIT_REGION_NEW_WINDOW_H

#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "child.h"
#include "os/os.h"
#include "region/window.h"
#include "span/span.h"

#include <sys/syscall.h>

/* What the next child is about: bytes of a window, of a limit, or of all addresses. */
static size_t asked_bytes;

/* The old one's place must be free: both windows begin where the process's seed says. */
static bool start_window(size_t bytes) {
    char *start = window.spans, *end = page_address(window.pages);
    if (window.pages != 0) CHECK_EQ(syscall(SYS_munmap, start, (size_t)(end - start)), 0);
    window = (struct window){.base = (uintptr_t)1 << 63};
    return window_start(bytes);
}

static size_t page_after_last; /* of the runs so far */

static void check_usable(struct page_run run) {
    CHECK_EQ(run.first % CHUNK_PAGES, 0);
    CHECK(is_aligned(page_address(run.first), CHUNK_PAGES * PAGE_BYTES));
    CHECK(run.first >= CHUNK_PAGES); /* page 0 ends lists */
    CHECK(run.first >= page_after_last);
    CHECK(run.first + run.pages <= window.pages);
    for (size_t i = run.first; i < run.first + run.pages; i++) {
        uint64_t *first = page_address(i), *last = first + PAGE_BYTES / sizeof *first - 1;
        CHECK_AT(page_index(first) == i && page_index((char *)last + 7) == i, i);
        CHECK_AT(*first == 0 && *last == 0, i);
        *first = *last = UINT64_MAX;
        CHECK_AT(page_word(i) == 0, i);
        page_word_set(i, (uint32_t)i);
        memset(page_remote(i), 0xff, REMOTE_RECORD_BYTES);
        ((struct span *)page_span(i))->head = (uint32_t)i;
        window.chunks[i / CHUNK_PAGES].used = UINT32_MAX;
    }
    /* The neighbours' records can be read. What the one before says is the span layer's matter, where libc has
     * allocated before main. */
    CHECK(((struct span *)page_span(run.first - 1))->kind <= SPAN_LOST);
    if (run.first + run.pages < window.pages)
        CHECK_EQ(((struct span *)page_span(run.first + run.pages))->kind, SPAN_NONE);
    page_after_last = run.first + run.pages;
}

/* Extends by PAGES until there is no more, at most to MOST pages; returns how many pages. */
static size_t use_up(size_t pages, size_t most) {
    size_t total = 0;
    while (total < most) {
        struct page_run run = window_extend(pages, SIZE_MAX);
        if (run.pages == 0) break;
        CHECK(run.pages >= pages);
        check_usable(run);
        total += run.pages;
    }
    return total;
}

static void check_outside_pointers(void) {
    char local;
    CHECK(!page_is_inside(page_index(NULL)));
    CHECK(!page_is_inside(page_index(&local)));
    CHECK(!page_is_inside(page_index(&window)));
    CHECK(!page_is_inside(page_index((void *)UINTPTR_MAX)));
    CHECK(!page_is_inside(page_index((char *)page_address(0) - 1)));
    CHECK(!page_is_inside(page_index(page_address(window.pages))));
    uint32_t any = 0; /* every word can be read */
    for (size_t page = 0; page < window.pages; page += window.pages / 1000 + 1) {
        CHECK_AT(page_is_inside(page_index(page_address(page))), page);
        any |= page_word(page) & page_word(window.pages - 1 - page);
    }
    CHECK_EQ(any, 0);
}

#endif
