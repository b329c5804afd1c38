/* window_refused_test.c - windows where the kernel allows little: it refuses mappings and commits, takes no hints, or has
 * few addresses.
 *
 * mmap and mprotect are interposed. Each window is started in a child of its own: new_window.h.
 *
 * Planted defects it was seen to catch:
 *   a refused commit loses its address space     a_refused_commit_loses_nothing
 *   words of a refused window stay mapped        a_refused_window_leaves_nothing
 *   spans are aligned by page number only        a_window_where_the_kernel_puts_it
 *   refused pages leave their books behind       a_refused_commit_leaves_no_books
 *   pages without books are committed again      pages_wait_for_their_books
 *   no place is tried below 32 TiB               a_small_address_space
 *   none but where the kernel takes hints        a_window_where_the_kernel_puts_it
 *   a region is reserved by halves alone         a_region_as_long_as_is_granted
 *   what is refused passes for taken by others   what_is_refused_for_a_moment_leaves_no_gap
 */
#include "new_window.h"
#include "os_counts.h"
#include "span/bins.h"

#include <sys/mman.h>
#include <sys/syscall.h>

/* What is refused; nothing by default. */
static bool refuse_hints, refuse_all_maps, refuse_books;
static size_t maps; /* that were not refused */
static size_t refuse_next; /* so many with a hint */
static uintptr_t refuse_hints_from = UINTPTR_MAX;
static size_t refuse_maps_from = SIZE_MAX, refuse_readable_from = SIZE_MAX;
static size_t refuse_fixed_from = SIZE_MAX, refuse_protect_from = SIZE_MAX;

extern void *__interceptor_mmap(void *, size_t, int, int, int, off_t) __attribute__((weak));
extern int __interceptor_mprotect(void *, size_t, int) __attribute__((weak));

void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    bool fixed = (flags & MAP_FIXED) != 0;
    if ((refuse_hints && hint != NULL && !fixed) || (fixed && bytes >= refuse_fixed_from) ||
        refuse_all_maps || bytes >= refuse_maps_from ||
        (protection == PROT_READ && bytes >= refuse_readable_from) ||
        (refuse_books && !fixed && (protection & PROT_WRITE) != 0)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (hint != NULL && !fixed && refuse_next != 0) {
        refuse_next--;
        errno = ENOMEM;
        return MAP_FAILED;
    }
    maps++;
    if ((uintptr_t)hint + bytes > refuse_hints_from) hint = NULL; /* as a kernel does that has no such addresses */
    if (__interceptor_mmap) return __interceptor_mmap(hint, bytes, protection, flags, file, offset);
    return (void *)syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
}

int mprotect(void *address, size_t bytes, int protection) {
    if (bytes >= refuse_protect_from) {
        errno = EACCES;
        return -1;
    }
    if (__interceptor_mprotect) return __interceptor_mprotect(address, bytes, protection);
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

static void start_without_hints(void) {
    refuse_hints = true;
    CHECK(start_window(asked_bytes));
    check_outside_pointers();
    size_t most = window.pages < 3000 ? window.pages : 3000;
    CHECK(use_up(33, most - CHUNK_PAGES) + 64 >= most - CHUNK_PAGES);
}

/* Its base is aligned to 2 MiB and, by chance, to more: an aligned page number is no aligned address. */
static void align_without_hints(void) {
    for (uint32_t first; (first = bins_find(1, (struct span_start){1, 0}, ZONE_HUGE)) != 0;)
        bins_remove(first); /* of the window before */
    refuse_hints = true;
    CHECK(start_window(asked_bytes));
    for (size_t align = 1; align <= 256; align *= 2) {
        uint32_t first = span_take(1, align, ACE_SPARSE);
        CHECK_AT(first != 0 && is_aligned(page_address(first), align * PAGE_BYTES), align);
    }
}

TEST(a_window_where_the_kernel_puts_it) {
    asked_bytes = 0;
    IN_CHILD(start_without_hints);
    asked_bytes = MIB(64);
    IN_CHILD(start_without_hints);
    for (asked_bytes = MIB(64); asked_bytes < MIB(80); asked_bytes += MIB(2)) IN_CHILD(align_without_hints);
}

/* Address spaces of ASKED bytes: found with few calls, and grown into as far as they reach. */
static void start_below(void) {
    enum { STEP = GIB(1) / PAGE_BYTES };
    refuse_hints_from = asked_bytes;
    maps = 0;
    CHECK(start_window(0));
    CHECK_AT(maps <= 9, maps); /* three of them metadata of the first region */
    CHECK_EQ(window.pages * PAGE_BYTES, GIB(1024));
    check_outside_pointers();
    check_usable(window_extend(1, SIZE_MAX));
    for (size_t pages = 0; pages < GIB(100) / PAGE_BYTES; pages += STEP) { /* none of them touched */
        struct page_run run = window_extend(STEP, SIZE_MAX);
        CHECK_AT(run.pages >= STEP, pages / STEP);
        CHECK((uintptr_t)page_address(run.first + run.pages) <= asked_bytes);
    }
}

TEST(a_small_address_space) {
    if (CHECK_SHADOWED) OMIT("shadow memory lies there");
    const unsigned bits[] = {38, 39, 42};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        asked_bytes = (size_t)1 << bits[i];
        IN_CHILD(start_below);
    }
}

/* Starts as large a window as may be: what is mapped then is its own, and nothing of larger ones. */
static void check_start_and_mappings(void) {
    uint64_t before = mapped_bytes();
    CHECK(start_window(0));
    CHECK(window.pages * PAGE_BYTES >= MIB(8));
    size_t books = window.pages * (4 + SPAN_RECORD_BYTES + REMOTE_RECORD_BYTES) + window.pages / CHUNK_PAGES * sizeof(struct chunk);
    size_t reserved = refuse_hints || window.pages * PAGE_BYTES < MIB(128) ? window.pages * PAGE_BYTES : MIB(64);
    CHECK(mapped_bytes() - before <= reserved + books + MIB(5));
    refuse_maps_from = refuse_readable_from = SIZE_MAX;
    check_outside_pointers();
    CHECK(use_up(1, 64) != 0);
}

static void start_with_small_regions(void) {
    refuse_maps_from = MIB(16);
    check_start_and_mappings();
}
static void start_with_small_records(void) {
    refuse_maps_from = GIB(1);
    check_start_and_mappings();
}
static void start_with_few_words(void) {
    refuse_readable_from = MIB(1);
    check_start_and_mappings();
}
static void start_with_few_words_without_hints(void) {
    refuse_hints = true;
    start_with_few_words();
}

TEST(large_mappings_are_refused) {
    IN_CHILD(start_with_small_regions);
    IN_CHILD(start_with_small_records);
    IN_CHILD(start_with_few_words);
    IN_CHILD(start_with_few_words_without_hints);
}

static void start_refused(void) {
    uint64_t before = mapped_bytes();
    errno = 4711;
    refuse_all_maps = true;
    CHECK(!start_window(0));
    CHECK_EQ(mapped_bytes(), before);
    refuse_all_maps = false;
    refuse_maps_from = KIB(128); /* books may be had, regions may not */
    CHECK(!start_window(0));
    CHECK_EQ(mapped_bytes(), before);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(window.pages, 0);
    CHECK_EQ(window_extend(1, SIZE_MAX).pages, 0);
    CHECK(!page_is_inside(page_index(NULL)) && !page_is_inside(page_index(&before)));
}

TEST(a_refused_window_leaves_nothing) {
    IN_CHILD(start_refused);
}

static void extend_refused(void) {
    CHECK(start_window(asked_bytes));
    check_usable(window_extend(1, SIZE_MAX));
    errno = 4711;
    refuse_protect_from = 0;
    check_usable(window_extend(1, SIZE_MAX)); /* by mmap */
    refuse_fixed_from = 0;
    for (int i = 0; i < 100; i++) CHECK_EQ(window_extend(CHUNK_PAGES, SIZE_MAX).pages, 0);
    refuse_protect_from = refuse_fixed_from = MIB(2); /* the books may be had, the pages may not */
    for (int i = 0; i < 100; i++) CHECK_EQ(window_extend(CHUNK_PAGES, SIZE_MAX).pages, 0);
    refuse_protect_from = refuse_fixed_from = MIB(2) + 1; /* what is more than needed is */
    struct page_run run = window_extend(CHUNK_PAGES, SIZE_MAX);
    CHECK_EQ(run.pages, CHUNK_PAGES);
    check_usable(run);
    refuse_protect_from = refuse_fixed_from = SIZE_MAX;
    CHECK_EQ(errno, 4711);
    size_t left = window.pages - page_after_last;
    CHECK_EQ(use_up(1, SIZE_MAX), left);
}

TEST(a_refused_commit_loses_nothing) {
    asked_bytes = MIB(128);
    IN_CHILD(extend_refused);
}

static uint64_t committed_bytes(void) { return atomic_load(&os_counters.committed_bytes); }

/* Books for so much would be a thousandth of it. */
static void extend_by_too_much(void) {
    CHECK(start_window(GIB(256)));
    check_usable(window_extend(1, SIZE_MAX));
    const uint64_t before = committed_bytes();
    refuse_protect_from = refuse_fixed_from = GIB(1);
    CHECK_EQ(window_extend(GIB(32) / PAGE_BYTES, SIZE_MAX).pages, 0);
    CHECK_EQ(committed_bytes(), before);
    check_usable(window_extend(1, SIZE_MAX));
}

TEST(a_refused_commit_leaves_no_books) {
    IN_CHILD(extend_by_too_much);
}

/* Where the books cannot be had the pages are committed once, however often they are asked for, and given at last. */
static void extend_without_books(void) {
    enum { MANY = 5000 }; /* more than the first region has */
    CHECK(start_window(GIB(256)));
    refuse_books = true;
    if (use_up(1, MANY) >= MANY) SKIP("the window is reserved whole, and its books are");
    const uint64_t before = committed_bytes();
    for (int i = 0; i < 100; i++) CHECK_EQ(window_extend(1, SIZE_MAX).pages, 0);
    CHECK_EQ(committed_bytes(), before);
    refuse_books = false;
    const size_t next = page_after_last;
    struct page_run run = window_extend(1, SIZE_MAX);
    CHECK(run.first == next || next == 0);
    check_usable(run);
    CHECK(committed_bytes() - before < run.pages * PAGE_BYTES); /* the books alone */
}

TEST(pages_wait_for_their_books) {
    IN_CHILD(extend_without_books);
}

/* Of 64 MiB, which it would like, the kernel refuses more than 48; half of that is too little. */
static void extend_by_what_is_granted(void) {
    enum { PAGES = MIB(100) / PAGE_BYTES };
    CHECK(start_window(GIB(256)));
    refuse_maps_from = MIB(48);
    const struct page_run run = window_extend(PAGES, SIZE_MAX);
    CHECK(run.pages >= PAGES);
    check_usable(run);
}

TEST(a_region_as_long_as_is_granted) { IN_CHILD(extend_by_what_is_granted); }

/* A limit that another thread lifts meanwhile: behind a gap there would have been no more than before it. */
static void extend_while_a_limit_is_lifted(void) {
    enum { PAGES = MIB(300) / PAGE_BYTES };
    CHECK(start_window(GIB(256)));
    const struct page_run before = window_extend(1, SIZE_MAX);
    refuse_next = 1;
    const struct page_run run = window_extend(PAGES, SIZE_MAX);
    CHECK(refuse_next == 0 && run.pages >= PAGES);
    CHECK_EQ(run.first, before.first + before.pages);
}

TEST(what_is_refused_for_a_moment_leaves_no_gap) { IN_CHILD(extend_while_a_limit_is_lifted); }
