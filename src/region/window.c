/* window.c - finding a window, and growing into it.
 *
 * What lies below next_page was committed and given to the span layer, which may have unmapped some since; or it was passed over, where
 * another mapping was in the way. What lies between it and reserved_page is reserved, and committed up to pages_end if the metadata for
 * it was refused. All are guarded by lock. */
#include "region/window.h"

#include "base/bits.h"
#include "base/counter.h"
#include "base/size_classes.h"
#include "os/os.h"

#define WINDOW_BYTES HAK_GIB(1024)
#define WINDOW_LEAST_BYTES HAK_MIB(8)
#define REGION_LEAST_BYTES HAK_MIB(64)
#define REGION_MOST_BYTES HAK_GIB(16)
#define COMMIT_LEAST_BYTES HAK_MIB(16) /* one slab of each class: no class's first block waits for the kernel */
#define BOOKS_PAGES (HAK_MIB(64) / PAGE_BYTES)
#define COMMIT_MOST_BYTES HAK_MIB(256)
#define CHUNK_BYTES (CHUNK_PAGES * PAGE_BYTES)

/* An impossible base keeps every user-space pointer, NULL included, out of a window without pages. */
struct window window = {.base = (uintptr_t)1 << (sizeof(uintptr_t) * 8 - 1)};

static struct {
    struct os_lock lock;
    bool sparse; /* a range of addresses only: regions and metadata are mapped as they are needed */
    size_t next_page;
    counter reserved_page; /* read without the lock */
    /* Ends of the usable part of each array, and of the pages themselves, as addresses. Each only grows. */
    uintptr_t words_end, spans_end, remotes_end, chunks_end, pages_end;
} grow;

void window_lock(void) { os_lock_take(&grow.lock); }
void window_unlock(void) { os_lock_drop(&grow.lock); }
void window_lock_reset(void) { os_lock_reset(&grow.lock); }

bool window_holds(const void *address) { return page_index(address) < counter_read(&grow.reserved_page); }

/* ---- start -------------------------------------------------------------------------------------- */

/* Address spaces of 47 bits or more, of 42 bits, and of 39 or 38. */
static const uint8_t lower_bits[] = {0, 0, 5, 9};

/* Some place in the middle of the address space, or lower if it is small: far from what the kernel maps from the top
 * and from programs and their heaps. Differs from process to process. */
static uintptr_t random_base(uint64_t seed, unsigned attempt) {
    const uintptr_t lowest = (uintptr_t)HAK_GIB(1024) * 32, span = (uintptr_t)HAK_GIB(1024) * 32;
    uint64_t mixed = (seed + attempt) * 0x9e3779b97f4a7c15u;
    return (lowest + round_down((size_t)(mixed % span), HAK_GIB(4))) >> lower_bits[attempt];
}

/* Each array has kernel pages of its own. */
static size_t spans_bytes_for(size_t pages) { return round_up(pages * SPAN_RECORD_BYTES, os_page_bytes()); }
static size_t remotes_bytes_for(size_t pages) { return round_up(pages * REMOTE_RECORD_BYTES, os_page_bytes()); }

/* Address space that the metadata of PAGES pages takes, without the words. */
static size_t books_bytes_for(size_t pages) {
    return round_up(spans_bytes_for(pages) + remotes_bytes_for(pages) + (pages / CHUNK_PAGES + 1) * sizeof(struct chunk),
                    CHUNK_BYTES);
}

/* The first chunk is left out, so that no page in use has index 0: lists end with it. */
static void settle(bool sparse, uintptr_t base, size_t pages, uintptr_t books, void *words, size_t reserved_page) {
    window.base = base;
    window.words = words;
    window.spans = (char *)books;
    window.remotes = window.spans + spans_bytes_for(pages);
    window.chunks = (struct chunk *)(void *)(window.remotes + remotes_bytes_for(pages));
    grow.words_end = (uintptr_t)words;
    grow.spans_end = books;
    grow.remotes_end = (uintptr_t)window.remotes;
    grow.chunks_end = (uintptr_t)window.chunks;
    grow.pages_end = base;
    grow.sparse = sparse;
    grow.next_page = CHUNK_PAGES;
    counter_set(&grow.reserved_page, reserved_page);
    window.pages = pages;
}

static void *reserve_words(size_t pages) {
    size_t bytes = round_up(pages * sizeof *window.words, os_page_bytes());
    void *words = os_reserve_readable(bytes);
    if (words != NULL) os_name(words, bytes, OS_NAME_BOOKS);
    return words;
}

/* A window that is only a range of addresses, with its metadata before it. Its first region must be available
 * immediately, otherwise the place is not usable. The window may reach over other mappings, and beyond the address
 * space: it grows as far as the kernel lets it. */
static bool start_sparse(size_t bytes, size_t region_bytes) {
    size_t pages = bytes / PAGE_BYTES;
    uint64_t seed = os_random_seed();
    void *words = reserve_words(pages);
    if (words == NULL) return false;
    for (unsigned attempt = 0; attempt < sizeof lower_bits; attempt++) {
        uintptr_t books = random_base(seed, attempt);
        uintptr_t base = books + books_bytes_for(pages);
        if (os_reserve_at((char *)base + CHUNK_BYTES, region_bytes) != OS_PLACE_RESERVED) continue;
        os_name((char *)base + CHUNK_BYTES, region_bytes, OS_NAME_BLOCKS);
        settle(true, base, pages, books, words, CHUNK_PAGES + region_bytes / PAGE_BYTES);
        return true;
    }
    os_unmap(words, round_up(pages * sizeof *window.words, os_page_bytes()));
    return false;
}

/* A window that is reserved whole, with its metadata, wherever the kernel puts it. */
static bool start_whole(size_t bytes) {
    size_t pages = bytes / PAGE_BYTES;
    size_t books_bytes = books_bytes_for(pages);
    void *words = reserve_words(pages);
    char *start = words == NULL ? NULL : os_reserve(books_bytes + bytes + CHUNK_BYTES);
    if (start == NULL) {
        if (words != NULL) os_unmap(words, round_up(pages * sizeof *window.words, os_page_bytes()));
        return false;
    }
    os_name(start, books_bytes + bytes + CHUNK_BYTES, OS_NAME_BLOCKS);
    uintptr_t books = round_up((uintptr_t)start, CHUNK_BYTES);
    settle(false, books + books_bytes, pages, books, words, pages);
    return true;
}

static bool lay_out(size_t bytes) {
    size_t limit = os_address_limit();
    size_t most = bytes != 0 ? bytes : WINDOW_BYTES;
    size_t region = REGION_LEAST_BYTES;
    if (limit != SIZE_MAX) {
        /* Once the limit covers every address that could be mapped. The rest is room for gaps: what is free is unmapped where a longer run
         * is needed. The words of it are a two-thousandth of the limit. */
        most = min_size(most, max_size(round_up(min_size(limit, most), CHUNK_BYTES) * 8, WINDOW_LEAST_BYTES));
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

static bool provide(uintptr_t from, uintptr_t to, bool reserved) {
    if (reserved) return os_commit((void *)from, to - from);
    bool mapped = os_map_at((void *)from, to - from);
    if (mapped) os_name((void *)from, to - from, OS_NAME_BOOKS);
    return mapped;
}

/* Makes ARRAY's elements FIRST .. LAST-1 usable, as whole kernel pages, each of them only once. */
static bool provide_part(uintptr_t array, size_t element_bytes, size_t first, size_t last, bool reserved,
                         uintptr_t *usable_end) {
    size_t page = os_page_bytes();
    uintptr_t from = max_size(*usable_end, round_down(array + first * element_bytes, page));
    uintptr_t to = round_up(array + last * element_bytes, page);
    if (from >= to) return true;
    if (!provide(from, to, reserved)) return false;
    *usable_end = to;
    return true;
}

/* Pages whose metadata was refused are committed already. */
static bool commit(size_t first, size_t pages) {
    return provide_part(window.base, PAGE_BYTES, first, first + pages, true, &grow.pages_end);
}

/* The metadata of one more page on either side can be read: neighbours are looked at before merging. */
static bool provide_books(size_t first, size_t last) {
    size_t end = min_size(last + 1, window.pages);
    bool reserved = !grow.sparse;
    return provide_part((uintptr_t)window.words, sizeof *window.words, first, last, true, &grow.words_end) &&
           provide_part((uintptr_t)window.spans, SPAN_RECORD_BYTES, first - 1, end, reserved, &grow.spans_end) &&
           provide_part((uintptr_t)window.remotes, REMOTE_RECORD_BYTES, first - 1, end, reserved, &grow.remotes_end) &&
           provide_part((uintptr_t)window.chunks, sizeof(struct chunk), 0, last / CHUNK_PAGES + 1, reserved, &grow.chunks_end);
}

/* A process may limit its addresses before its first block, to less than it has. Nothing more can be mapped then, but the first region is
 * used if its metadata is there. Where that is refused, the first block asks again. */
bool window_start(size_t bytes) {
    if (!lay_out(bytes)) return false;
    provide_books(CHUNK_PAGES, min_size(BOOKS_PAGES, counter_read(&grow.reserved_page)));
    return true;
}

/* Reserves at least PAGES more, after a gap if another mapping is in the way: where the kernel refuses more than that, half of it and so
 * on, and these alone last. Where it refuses these, it has none behind a gap either, and one that had by then would leave the gap
 * unused for ever. */
static bool reserve_region(size_t pages) {
    size_t wanted = min_size(max_size(counter_read(&grow.reserved_page) * PAGE_BYTES, REGION_LEAST_BYTES), REGION_MOST_BYTES);
    size_t limit = os_address_limit();
    if (limit != SIZE_MAX) wanted = min_size(wanted, max_size(limit / 16, CHUNK_BYTES));
    wanted = max_size(wanted / PAGE_BYTES, pages);
    for (size_t gap = 0; gap <= window.pages / 8; gap = gap == 0 ? HAK_GIB(1) / PAGE_BYTES : gap * 4) {
        size_t start = counter_read(&grow.reserved_page) + gap;
        if (start >= window.pages || window.pages - start < pages) return false;
        size_t most = min_size(wanted, window.pages - start);
        size_t next = 0;
        enum os_place place = OS_PLACE_TAKEN;
        for (size_t size = round_up(most, CHUNK_PAGES); size != 0; size = next) {
            next = size > pages ? max_size(round_down(size / 2, CHUNK_PAGES), pages) : 0;
            if (size > window.pages - start) continue;
            place = os_reserve_at(page_address(start), size * PAGE_BYTES);
            if (place != OS_PLACE_RESERVED) continue;
            os_name(page_address(start), size * PAGE_BYTES, OS_NAME_BLOCKS);
            /* After a gap, what is left of the region before it stays unused. */
            if (gap != 0) grow.next_page = start;
            counter_set(&grow.reserved_page, start + size);
            return true;
        }
        if (place == OS_PLACE_REFUSED) return false;
    }
    return false;
}

/* Prefaults the records of the first slab of each class together with the first memory. */
static void populate_first_records(void) {
    if (grow.next_page != CHUNK_PAGES) return;
    uintptr_t from = (uintptr_t)window.spans + CHUNK_PAGES * SPAN_RECORD_BYTES;
    uintptr_t to = min_size(from + SLABS_OF_SMALL_CLASSES_PAGES * SPAN_RECORD_BYTES, grow.spans_end);
    os_populate((void *)from, to - from);
}

static size_t left_in_region(void) { return counter_read(&grow.reserved_page) - grow.next_page; }

/* Room for PAGES pages in one region: what is left of the last one, with or without more after it. */
static bool ensure_region(size_t pages) {
    if (left_in_region() >= pages) return true;
    if (reserve_region(pages - left_in_region()) && left_in_region() >= pages) return true;
    return reserve_region(pages) && left_in_region() >= pages; /* there was a gap */
}

/* How much is committed for a request of PAGES: few calls, few mappings. */
static size_t commit_pages(size_t pages) {
    size_t step = min_size(max_size(grow.next_page * PAGE_BYTES / 4, COMMIT_LEAST_BYTES), COMMIT_MOST_BYTES);
    return min_size(max_size(pages, round_up(step / PAGE_BYTES, CHUNK_PAGES)), left_in_region());
}

struct page_run window_extend(size_t pages, size_t most) {
    struct page_run run = {0, 0};
    if (pages > window.pages) return run;
    pages = round_up(pages, CHUNK_PAGES);
    if (!ensure_region(pages)) return run;
    size_t first = grow.next_page, size = min_size(commit_pages(pages), max_size(pages, most));
    /* Pages before their metadata: if the kernel refuses the pages, no metadata of them stays behind. */
    if (!commit(first, size)) size = commit(first, pages) ? pages : 0;
    /* Metadata for a round number of pages at a time: few calls. */
    if (size != 0 &&
        provide_books(first, min_size(round_up(first + size, BOOKS_PAGES), counter_read(&grow.reserved_page)))) {
        populate_first_records();
        run = (struct page_run){first, size};
        grow.next_page = first + size;
    }
    return run;
}
