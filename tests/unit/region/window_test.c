/* window_test.c - windows of many sizes, among others' mappings, and under limits.
 *
 * Each window is started in a child of its own: new_window.h. A kernel that says no is window_refused_test.c's.
 *
 * Planted defects it was seen to catch:
 *   the first pages are given out                every_run_is_new_zero_and_usable
 *   the last page of a full window is lost       a_small_window_is_used_up_to_the_end
 *   a foreign mapping is reserved over           something_lies_in_the_way, all_places_are_taken
 *   books that share a kernel's page             a_small_window_..., every_run_...
 *   left-over pages counted across a gap         one_large_run_behind_something
 *   the limit of the address space is ignored    under_a_limit
 *   a limit that is none makes the window small  a_limit_beyond_all_addresses_is_none
 */
#include "new_window.h"

#include <sys/mman.h>
#include <sys/resource.h>

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
    CHECK_EQ(window_extend(window.pages, SIZE_MAX).pages, 0);
    CHECK_EQ(window_extend(SIZE_MAX, SIZE_MAX).pages, 0);
    CHECK_EQ(use_up(CHUNK_PAGES, SIZE_MAX), window.pages - CHUNK_PAGES);
    CHECK_EQ(window_extend(1, SIZE_MAX).pages, 0);
    CHECK_EQ(window_extend(0, SIZE_MAX).pages, 0);
}

TEST(a_small_window_is_used_up_to_the_end) {
    const size_t sizes[] = {MIB(8), MIB(10), MIB(64), MIB(198), MIB(256)};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        asked_bytes = sizes[i];
        IN_CHILD(start_small_and_use_up);
    }
}

static void extend_around_others(void) {
    CHECK(start_window(GIB(256)));
    char *others[3];
    for (size_t i = 0; i < 3; i++) { /* beyond the first region, and beyond the gap that follows */
        others[i] = (char *)page_address(CHUNK_PAGES) + MIB(64) + i * (GIB(1) + MIB(30));
        char *got = mmap(others[i], 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got != others[i]) SKIP("the window is reserved whole"); /* and nobody is in the way */
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
    if (mmap(other, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != other) SKIP("the window is reserved whole");
    struct page_run run = window_extend(MIB(100) / PAGE_BYTES, SIZE_MAX);
    CHECK(run.pages >= MIB(100) / PAGE_BYTES);
    check_usable(run);
}

TEST(one_large_run_behind_something) { IN_CHILD(extend_much_around_others); }

/* Beyond the first region, and beyond each gap that may follow. */
static void extend_among_others(void) {
    CHECK(start_window(asked_bytes));
    char *end = (char *)page_address(CHUNK_PAGES) + MIB(64);
    for (size_t gap = 0; gap <= asked_bytes / 8; gap = gap == 0 ? GIB(1) : gap * 4)
        if (mmap(end + gap, 65536, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != end + gap) SKIP("the window is reserved whole");
    CHECK_EQ(use_up(1, SIZE_MAX), MIB(64) / PAGE_BYTES);
    CHECK_EQ(window_extend(1, SIZE_MAX).pages, 0);
}

TEST(all_places_are_taken) {
    const size_t sizes[] = {GIB(1), GIB(64)};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        asked_bytes = sizes[i];
        IN_CHILD(extend_among_others);
    }
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

/* Finite, but more than there are addresses: as without one. */
HELPER(look_under_a_limit_of_no_use) {
    CHECK_EQ(os_address_limit(), SIZE_MAX);
    CHECK(window.pages * PAGE_BYTES >= GIB(64));
}

/* The multiples that a window of such a limit would have are beyond a word. */
HELPER(look_under_a_high_limit) { CHECK(window.pages * PAGE_BYTES >= GIB(64)); }

static const char *limited_helper;

static void exec_limited(void) {
    struct rlimit limit = {asked_bytes, RLIM_INFINITY};
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    become_helper(limited_helper);
}

static void run_limited(const char *helper, const size_t *limits, size_t count) {
    struct rlimit now;
    if (CHECK_SHADOWED) OMIT("shadow memory is beyond any limit");
    CHECK_EQ(getrlimit(RLIMIT_AS, &now), 0);
    if (now.rlim_cur != RLIM_INFINITY) SKIP("there is a limit already");
    limited_helper = helper;
    for (size_t i = 0; i < count; i++) {
        asked_bytes = limits[i];
        IN_CHILD(exec_limited);
    }
}

TEST(under_a_limit) {
    const size_t limits[] = {MIB(32), MIB(100), MIB(512), GIB(2)};
    run_limited("use_up_under_a_limit", limits, 4);
}

TEST(a_limit_beyond_all_addresses_is_none) {
    const size_t limits[] = {SIZE_MAX / 2, SIZE_MAX / 2 + GIB(1), SIZE_MAX - GIB(1)};
    run_limited("look_under_a_limit_of_no_use", limits, 3);
}

TEST(a_high_limit_makes_no_small_window) {
    const size_t eighth = (size_t)1 << 61, limits[] = {eighth - 1, eighth, eighth + MIB(8), SIZE_MAX / 4 - 1};
    run_limited("look_under_a_high_limit", limits, 4);
}
