/* window.c - finding a window, and growing into it.
 *
 * Everything below next_page is committed and was given to the span floor; what lies between it and
 * reserved_page is reserved. Both are guarded by lock, which is held across the system calls that
 * move them: whoever waits needs memory too. */
#include "region/window.h"

#include "base/bits.h"
#include "base/size_classes.h"
#include "os/os.h"

#define WINDOW_BYTES HAK_GIB(1024)
#define WINDOW_LEAST_BYTES HAK_MIB(8)
#define REGION_LEAST_BYTES HAK_MIB(64)
#define REGION_MOST_BYTES HAK_GIB(16)
#define COMMIT_LEAST_BYTES HAK_MIB(16) /* one slab of each class: no class's first block waits for the kernel */
#define COMMIT_MOST_BYTES HAK_MIB(256)
#define CHUNK_BYTES (CHUNK_PAGES * PAGE_BYTES)

/* An impossible base keeps every user-space pointer, NULL included, out of a window without pages. */
struct window window = {.base = (uintptr_t)1 << (sizeof(uintptr_t) * 8 - 1)};

static struct {
    struct os_lock lock;
    size_t next_page;
    size_t reserved_page;
    /* Ends of the committed part of each array, as addresses. Each only grows. */
    uintptr_t words_end, spans_end, remotes_end, chunks_end;
} grow;

void window_lock(void) { os_lock_take(&grow.lock); }
void window_unlock(void) { os_lock_drop(&grow.lock); }
void window_lock_reset(void) { os_lock_reset(&grow.lock); }

/* ---- start -------------------------------------------------------------------------------------- */

/* Some place in the middle of a 47-bit address space, far from what the kernel maps from the top and
 * from programs and their heaps. Differs from process to process. */
static uintptr_t random_base(uint64_t seed, unsigned attempt) {
    const uintptr_t lowest = (uintptr_t)HAK_GIB(1024) * 32, span = (uintptr_t)HAK_GIB(1024) * 32;
    uint64_t mixed = (seed + attempt) * 0x9e3779b97f4a7c15u;
    return lowest + round_down((size_t)(mixed % span), HAK_GIB(4));
}

static bool reserve_books(size_t pages) {
    size_t page = os_page_bytes();
    size_t words_bytes = round_up(pages * sizeof *window.words, page);
    size_t records_bytes = round_up(pages * RECORD_BYTES, page);
    size_t chunks_bytes = round_up((pages / CHUNK_PAGES + 1) * sizeof(struct chunk), page);
    void *words = os_reserve_readable(words_bytes);
    if (words == NULL) return false;
    char *records = os_reserve(2 * records_bytes + chunks_bytes);
    if (records == NULL) {
        os_unmap(words, words_bytes);
        return false;
    }
    window.words = words;
    window.spans = records;
    window.remotes = records + records_bytes;
    window.chunks = (struct chunk *)(records + 2 * records_bytes);
    grow.words_end = (uintptr_t)window.words;
    grow.spans_end = (uintptr_t)window.spans;
    grow.remotes_end = (uintptr_t)window.remotes;
    grow.chunks_end = (uintptr_t)window.chunks;
    return true;
}

/* The first page is left out, so that no page of the window has index 0: lists end with it. */
static void settle(uintptr_t base, size_t pages, size_t reserved_page) {
    window.base = base;
    grow.next_page = CHUNK_PAGES;
    grow.reserved_page = reserved_page;
    window.pages = pages;
}

/* A window of addresses only; its first region must be had at once, or the place is not usable. */
static bool start_sparse(size_t bytes, size_t region_bytes) {
    size_t pages = bytes / PAGE_BYTES;
    uint64_t seed = os_random_seed();
    for (unsigned attempt = 0; attempt < 3; attempt++) {
        uintptr_t base = random_base(seed, attempt);
        char *first = (char *)base + CHUNK_BYTES;
        if (!os_reserve_at(first, region_bytes)) continue;
        if (reserve_books(pages)) {
            settle(base, pages, CHUNK_PAGES + region_bytes / PAGE_BYTES);
            return true;
        }
        os_unmap(first, region_bytes);
        return false; /* a smaller window has smaller books */
    }
    return false;
}

/* A window that is reserved whole, wherever the kernel puts it. */
static bool start_whole(size_t bytes) {
    size_t pages = bytes / PAGE_BYTES;
    char *start = os_reserve(bytes + CHUNK_BYTES);
    if (start == NULL) return false;
    if (!reserve_books(pages)) {
        os_unmap(start, bytes + CHUNK_BYTES);
        return false;
    }
    uintptr_t base = round_up((uintptr_t)start, CHUNK_BYTES);
    settle(base, pages, pages);
    return true;
}

bool window_start(size_t bytes) {
    size_t limit = os_address_limit();
    size_t most = bytes != 0 ? bytes : WINDOW_BYTES;
    size_t region = REGION_LEAST_BYTES;
    if (limit != SIZE_MAX) {
        /* Twice the limit covers every address that could be had, with room for gaps. */
        most = min_size(most, max_size(round_up(limit, CHUNK_BYTES) * 2, WINDOW_LEAST_BYTES));
        region = min_size(region, max_size(round_down(limit / 8, CHUNK_BYTES), CHUNK_BYTES));
    }
    most = max_size(round_down(most, CHUNK_BYTES), WINDOW_LEAST_BYTES);
    for (size_t size = most; size >= WINDOW_LEAST_BYTES; size = round_down(size / 4, CHUNK_BYTES)) {
        if (start_sparse(size, min_size(region, round_down(size / 2, CHUNK_BYTES)))) return true;
    }
    size_t whole = min_size(most, limit == SIZE_MAX ? HAK_GIB(64) : round_up(limit / 4, CHUNK_BYTES));
    for (size_t size = whole; size >= WINDOW_LEAST_BYTES; size = round_down(size / 2, CHUNK_BYTES)) {
        if (start_whole(size)) return true;
    }
    return false;
}

/* ---- growth (lock held) ------------------------------------------------------------------------- */

/* Commits ARRAY's elements FIRST .. LAST-1, as whole kernel pages, each of them only once. */
static bool commit_books(uintptr_t array, size_t element_bytes, size_t first, size_t last,
                         uintptr_t *committed_end) {
    size_t page = os_page_bytes();
    uintptr_t from = max_size(*committed_end, round_down(array + first * element_bytes, page));
    uintptr_t to = round_up(array + last * element_bytes, page);
    if (from >= to) return true;
    if (!os_commit((void *)from, to - from)) return false;
    *committed_end = to;
    return true;
}

/* The books of one page more on either side can be read: neighbours are looked at before merging. */
static bool commit_all_books(size_t first, size_t last) {
    size_t end = min_size(last + 1, window.pages);
    return commit_books((uintptr_t)window.words, sizeof *window.words, first, last, &grow.words_end) &&
           commit_books((uintptr_t)window.spans, RECORD_BYTES, first - 1, end, &grow.spans_end) &&
           commit_books((uintptr_t)window.remotes, RECORD_BYTES, first - 1, end, &grow.remotes_end) &&
           commit_books((uintptr_t)window.chunks, sizeof(struct chunk), first / CHUNK_PAGES,
                        last / CHUNK_PAGES + 1, &grow.chunks_end);
}

/* Reserves at least PAGES more, after a gap where someone else's mapping is in the way. */
static bool reserve_region(size_t pages) {
    size_t wanted = min_size(max_size(grow.reserved_page * PAGE_BYTES, REGION_LEAST_BYTES), REGION_MOST_BYTES);
    size_t limit = os_address_limit();
    if (limit != SIZE_MAX) wanted = min_size(wanted, max_size(limit / 16, CHUNK_BYTES));
    wanted = max_size(wanted / PAGE_BYTES, pages);
    for (size_t gap = 0; gap <= window.pages / 8; gap = gap == 0 ? HAK_GIB(1) / PAGE_BYTES : gap * 4) {
        size_t start = grow.reserved_page + gap;
        if (start >= window.pages || window.pages - start < pages) return false;
        size_t most = min_size(wanted, window.pages - start);
        for (size_t size = round_up(most, CHUNK_PAGES); size >= pages; size = round_down(size / 2, CHUNK_PAGES)) {
            if (size > window.pages - start) continue;
            if (!os_reserve_at(page_address(start), size * PAGE_BYTES)) continue;
            /* What is left of the region before stays unused beyond a gap. */
            if (gap != 0) grow.next_page = start;
            grow.reserved_page = start + size;
            return true;
        }
    }
    return false;
}

/* The records of the first slab of each class come in together with the first memory. */
static void populate_first_records(void) {
    if (grow.next_page == CHUNK_PAGES)
        os_populate(window.spans + CHUNK_PAGES * RECORD_BYTES, SLABS_OF_ALL_CLASSES_PAGES * RECORD_BYTES);
}

struct page_run window_extend(size_t pages) {
    struct page_run run = {0, 0};
    if (pages > window.pages) return run;
    pages = round_up(pages, CHUNK_PAGES);
    window_lock();
    bool reserved = grow.reserved_page - grow.next_page >= pages ||
                    reserve_region(pages - (grow.reserved_page - grow.next_page)) ||
                    reserve_region(pages);
    if (reserved && grow.reserved_page - grow.next_page >= pages) {
        size_t step = min_size(max_size(grow.next_page * PAGE_BYTES / 4, COMMIT_LEAST_BYTES), COMMIT_MOST_BYTES);
        size_t size = max_size(pages, round_up(step / PAGE_BYTES, CHUNK_PAGES));
        size = min_size(size, grow.reserved_page - grow.next_page);
        void *start = page_address(grow.next_page);
        if (commit_all_books(grow.next_page, grow.next_page + size)) {
            populate_first_records();
            if (!os_commit(start, size * PAGE_BYTES)) {
                size = os_commit(start, pages * PAGE_BYTES) ? pages : 0;
            }
            run = (struct page_run){grow.next_page, size};
            grow.next_page = grow.next_page + size;
        }
    }
    window_unlock();
    return run;
}
