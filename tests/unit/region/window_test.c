/* window_test.c - windows of many sizes, in places where the kernel allows little.
 *
 * Each window is started in a child of its own: the library has started one for this process, and
 * children never call malloc after they replaced it. mmap and mprotect are interposed.
 *
 * Planted defects it was seen to catch:
 *   the first pages are given out                every_run_is_new_zero_and_usable
 *   the last page of a full window is lost       a_small_window_is_used_up_to_the_end
 *   a foreign mapping is reserved over           something_lies_in_the_way
 *   a refused commit loses its address space     a_refused_commit_loses_nothing
 *   words of a refused window stay mapped        a_refused_window_leaves_nothing
 *   books that share a kernel's page             a_small_window_..., every_run_...
 *   left-over pages counted across a gap         one_large_run_behind_something
 *   the limit of the address space is ignored    under_a_limit
 *   spans are aligned by page number only        a_window_where_the_kernel_puts_it
 *   the lock is not taken                        threads_extend_in_turn
 *   refused pages leave their books behind       a_refused_commit_leaves_no_books
 *   pages without books are committed again      pages_wait_for_their_books
 *   no place is tried below 32 TiB               a_small_address_space
 *   none but where the kernel takes hints        a_window_where_the_kernel_puts_it
 */
#include "blocks.h"
#include "child.h"
#include "os/os.h"
#include "region/window.h"
#include "span/bins.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* What is refused; nothing by default. */
static bool refuse_hints, refuse_all_maps, refuse_books;
static size_t maps; /* that were not refused */
static uintptr_t refuse_hints_from = UINTPTR_MAX;
static size_t refuse_maps_from = SIZE_MAX, refuse_readable_from = SIZE_MAX;
static size_t refuse_fixed_from = SIZE_MAX, refuse_protect_from = SIZE_MAX;

/* ThreadSanitizer calls some of these before it can run instrumented code: there they stay libc's, and what
 * needs a kernel that says no is skipped. */
#ifdef CHECK_TSAN
#define NEED_A_STUBBORN_KERNEL() SKIP("ThreadSanitizer needs the calls itself")
#else
#define NEED_A_STUBBORN_KERNEL() ((void)0)

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
#endif

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
    /* The neighbours' records can be read. What the one before says is the span floor's matter, where libc has
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
        struct page_run run = window_extend(pages);
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

static size_t asked_bytes;

static void start_and_use(void) {
    CHECK(start_window(asked_bytes));
    CHECK(window.pages * PAGE_BYTES <= (asked_bytes != 0 ? asked_bytes : GIB(1024)));
    CHECK(window.pages * PAGE_BYTES >= MIB(8));
    check_outside_pointers();
    CHECK(use_up(1, 800) != 0);
    CHECK(use_up(100, 800) != 0);
}

TEST(every_run_is_new_zero_and_usable) {
    const size_t sizes[] = {0, GIB(1024), GIB(64), GIB(1) + MIB(2), MIB(500) + 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        asked_bytes = sizes[i];
        IN_CHILD(start_and_use);
    }
}

static void start_small_and_use_up(void) {
    CHECK(start_window(asked_bytes));
    CHECK_EQ(window.pages * PAGE_BYTES, asked_bytes);
    CHECK_EQ(window_extend(window.pages).pages, 0);
    CHECK_EQ(window_extend(SIZE_MAX).pages, 0);
    CHECK_EQ(use_up(CHUNK_PAGES, SIZE_MAX), window.pages - CHUNK_PAGES);
    CHECK_EQ(window_extend(1).pages, 0);
    CHECK_EQ(window_extend(0).pages, 0);
}

TEST(a_small_window_is_used_up_to_the_end) {
    const size_t sizes[] = {MIB(8), MIB(10), MIB(64), MIB(198), MIB(256)};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        asked_bytes = sizes[i];
        IN_CHILD(start_small_and_use_up);
    }
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
    for (uint32_t first; (first = bins_find(1, 1, ZONE_HUGE)) != 0;)
        bins_remove(first); /* of the window before */
    refuse_hints = true;
    CHECK(start_window(asked_bytes));
    for (size_t align = 1; align <= 256; align *= 2) {
        uint32_t first = span_take(1, align, false);
        CHECK_AT(first != 0 && is_aligned(page_address(first), align * PAGE_BYTES), align);
    }
}

TEST(a_window_where_the_kernel_puts_it) {
    NEED_A_STUBBORN_KERNEL();
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
    CHECK_AT(maps <= 6, maps);
    CHECK_EQ(window.pages * PAGE_BYTES, GIB(1024));
    check_outside_pointers();
    check_usable(window_extend(1));
    for (size_t pages = 0; pages < GIB(100) / PAGE_BYTES; pages += STEP) { /* none of them touched */
        struct page_run run = window_extend(STEP);
        CHECK_AT(run.pages >= STEP, pages / STEP);
        CHECK((uintptr_t)page_address(run.first + run.pages) <= asked_bytes);
    }
}

TEST(a_small_address_space) {
    NEED_A_STUBBORN_KERNEL();
    if (CHECK_SHADOWED) SKIP("shadow memory lies there");
    const unsigned bits[] = {38, 39, 42};
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        asked_bytes = (size_t)1 << bits[i];
        IN_CHILD(start_below);
    }
}

static uint64_t mapped_bytes(void) {
    return atomic_load(&os_counters.reserved_bytes) - atomic_load(&os_counters.unmapped_bytes);
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
    NEED_A_STUBBORN_KERNEL();
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
    CHECK_EQ(window_extend(1).pages, 0);
    CHECK(!page_is_inside(page_index(NULL)) && !page_is_inside(page_index(&before)));
}

TEST(a_refused_window_leaves_nothing) {
    NEED_A_STUBBORN_KERNEL();
    IN_CHILD(start_refused);
}

static void extend_around_others(void) {
    CHECK(start_window(GIB(256)));
    char *others[3];
    for (size_t i = 0; i < 3; i++) { /* beyond the first region, and beyond the gap that follows */
        others[i] = (char *)page_address(CHUNK_PAGES) + MIB(64) + i * (GIB(1) + MIB(30));
        char *got = mmap(others[i], 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got != others[i]) return; /* a window reserved whole has nobody in the way */
        memset(got, 'x', 65536);
    }
    CHECK(use_up(100, 5000) >= 5000);
    for (size_t i = 0; i < 3; i++)
        CHECK(others[i][0] == 'x' && memcmp(others[i], others[i] + 1, 65535) == 0);
}

TEST(something_lies_in_the_way) { IN_CHILD(extend_around_others); }

/* What is left of the region before does not count when the next one has to leave a gap. */
static void extend_much_around_others(void) {
    CHECK(start_window(GIB(256)));
    char *other = (char *)page_address(CHUNK_PAGES) + MIB(64);
    if (mmap(other, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != other) return;
    struct page_run run = window_extend(MIB(100) / PAGE_BYTES);
    CHECK(run.pages >= MIB(100) / PAGE_BYTES);
    check_usable(run);
}

TEST(one_large_run_behind_something) { IN_CHILD(extend_much_around_others); }

static void extend_refused(void) {
    CHECK(start_window(asked_bytes));
    check_usable(window_extend(1));
    errno = 4711;
    refuse_protect_from = 0;
    check_usable(window_extend(1)); /* by mmap */
    refuse_fixed_from = 0;
    for (int i = 0; i < 100; i++) CHECK_EQ(window_extend(CHUNK_PAGES).pages, 0);
    refuse_protect_from = refuse_fixed_from = MIB(2); /* the books may be had, the pages may not */
    for (int i = 0; i < 100; i++) CHECK_EQ(window_extend(CHUNK_PAGES).pages, 0);
    refuse_protect_from = refuse_fixed_from = MIB(2) + 1; /* what is more than needed is */
    struct page_run run = window_extend(CHUNK_PAGES);
    CHECK_EQ(run.pages, CHUNK_PAGES);
    check_usable(run);
    refuse_protect_from = refuse_fixed_from = SIZE_MAX;
    CHECK_EQ(errno, 4711);
    size_t left = window.pages - page_after_last;
    CHECK_EQ(use_up(1, SIZE_MAX), left);
}

TEST(a_refused_commit_loses_nothing) {
    NEED_A_STUBBORN_KERNEL();
    asked_bytes = MIB(128);
    IN_CHILD(extend_refused);
}

static uint64_t committed_bytes(void) { return atomic_load(&os_counters.committed_bytes); }

/* Books for so much would be a thousandth of it. */
static void extend_by_too_much(void) {
    CHECK(start_window(GIB(256)));
    check_usable(window_extend(1));
    const uint64_t before = committed_bytes();
    refuse_protect_from = refuse_fixed_from = GIB(1);
    CHECK_EQ(window_extend(GIB(32) / PAGE_BYTES).pages, 0);
    CHECK_EQ(committed_bytes(), before);
    check_usable(window_extend(1));
}

TEST(a_refused_commit_leaves_no_books) {
    NEED_A_STUBBORN_KERNEL();
    IN_CHILD(extend_by_too_much);
}

/* Where the books cannot be had the pages are committed once, however often they are asked for, and given at last. */
static void extend_without_books(void) {
    enum { MANY = 5000 }; /* more than the first region has */
    CHECK(start_window(GIB(256)));
    refuse_books = true;
    if (use_up(1, MANY) >= MANY) return; /* a window reserved whole has its books, too */
    const uint64_t before = committed_bytes();
    for (int i = 0; i < 100; i++) CHECK_EQ(window_extend(1).pages, 0);
    CHECK_EQ(committed_bytes(), before);
    refuse_books = false;
    const size_t next = page_after_last;
    struct page_run run = window_extend(1);
    CHECK(run.first == next || next == 0);
    check_usable(run);
    CHECK(committed_bytes() - before < run.pages * PAGE_BYTES); /* the books alone */
}

TEST(pages_wait_for_their_books) {
    NEED_A_STUBBORN_KERNEL();
    IN_CHILD(extend_without_books);
}

/* In a process that began under the limit: this one's own window counts against any that is set now. */
HELPER(use_up_under_a_limit) {
    size_t limit = os_address_limit();
    CHECK(limit != SIZE_MAX);
    check_outside_pointers();
    CHECK(window.pages * PAGE_BYTES >= limit); /* addresses for whatever can be had */
    size_t pages = use_up(1, SIZE_MAX);
    CHECK(pages * PAGE_BYTES <= limit);
    CHECK_AT(pages * PAGE_BYTES >= limit / 2, pages);
}

static void exec_limited(void) {
    struct rlimit limit = {asked_bytes, asked_bytes};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    execl("/proc/self/exe", "window_test", "use_up_under_a_limit", (char *)NULL);
    _exit(127);
}

TEST(under_a_limit) {
    if (CHECK_SHADOWED) SKIP("shadow memory is beyond any limit");
    const size_t limits[] = {MIB(32), MIB(100), MIB(512), GIB(2)};
    struct rlimit now;
    CHECK_EQ(getrlimit(RLIMIT_AS, &now), 0);
    if (now.rlim_cur != RLIM_INFINITY) SKIP("there is a limit already");
    for (size_t i = 0; i < 4; i++) {
        asked_bytes = limits[i];
        IN_CHILD(exec_limited);
    }
}

/* The threads are there before the window is replaced, and never end: both would call malloc. */
enum { THREADS = 4, RUNS = 20 };
static struct page_run runs[THREADS][RUNS];
static _Atomic size_t ready, done;

static void *extend_to_the_end(void *argument) {
    struct page_run *mine = argument;
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) <= THREADS) sched_yield();
    for (size_t i = 0; i < RUNS && (mine[i] = window_extend(1)).pages != 0; i++)
        *(volatile char *)page_address(mine[i].first + mine[i].pages - 1) = 1;
    atomic_fetch_add(&done, 1);
    for (;;) pause();
    return NULL;
}

static void extend_in_threads(void) {
    pthread_t thread;
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&thread, NULL, extend_to_the_end, runs[i]), 0);
    while (atomic_load(&ready) < THREADS) sched_yield();
    CHECK(window_start(window.pages * PAGE_BYTES)); /* beside the old one, whose place is taken */
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&done) < THREADS) sched_yield();
    static uint8_t given[GIB(64) / 65536];
    size_t pages = 0;
    CHECK(runs[0][0].pages != 0);
    for (size_t i = 0; i < THREADS * RUNS; i++) {
        struct page_run run = runs[i / RUNS][i % RUNS];
        for (size_t page = run.first; page < run.first + run.pages; page++) CHECK_AT(given[page]++ == 0, page);
        pages += run.pages;
    }
    for (size_t page = CHUNK_PAGES; page < CHUNK_PAGES + pages; page++) CHECK_AT(given[page] == 1, page);
}

TEST(threads_extend_in_turn) {
    for (size_t i = 0; i < check_count(40); i++) IN_CHILD(extend_in_threads);
}
