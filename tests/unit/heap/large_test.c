/* large_test.c - blocks that are spans of their own: sizes, alignment, zeroes, resizing in place, frees by
 * signal handlers.
 *
 * Planted defects it was seen to catch:
 *   the zero flag is taken for granted           random_blocks
 *   growing in place takes a used neighbour      growing_and_shrinking
 *   a moved block leaves its word                growing_and_shrinking
 *   a block that shrank keeps its tail           growing_and_shrinking
 *   delayed frees are forgotten                  frees_that_had_to_wait, collecting_frees_what_waits
 *   one page too few                             sizes_and_alignments
 *   a limit counts what a block may grow into    a_limit_counts_no_reserve
 *   ulimit -v or ulimit -d counts it             a_limit_counts_no_reserve
 *   no limit counts what lies outside            limits_reach_outside_the_window
 */
#include "blocks.h"
#include "child.h"
#include "heap/alloc.h"
#include "heap/enter.h"
#include "heap/large.h"
#include "kernel.h"
#include "no_purger.h"
#include "os/os.h"
#include "region/outside.h"
#include "span/span.h"
#include "watch/failures.h"
#include "watch/stats.h"

#include <sys/resource.h>
#include <sys/wait.h>

static uint64_t used_pages(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.used_pages;
}

static bool in_window(const void *block) { return window_holds(block); }

static size_t usable(const void *block) {
    return in_window(block) ? large_usable_bytes(page_index(block)) : outside_bytes(block);
}

static void release(void *block) {
    if (!in_window(block)) {
        CHECK(outside_unmap(block));
        return;
    }
    CHECK(large_claim(page_index(block)));
    CHECK(!large_claim(page_index(block))); /* of two that free it one is told so */
    large_free(page_index(block));
}

TEST(sizes_and_alignments) {
    bool zero;
    CHECK(slow_enter());
    uint64_t before = used_pages();
    for (size_t alignment = 16; alignment <= GIB(1); alignment *= 2) {
        const size_t sizes[] = {0, 1, SMALL_MAX_BYTES + 1, 2 * PAGE_BYTES, 2 * PAGE_BYTES + 1, MIB(5) - 1};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            char *block = large_alloc(sizes[i], alignment, &zero);
            if (block == NULL && alignment >= MIB(64)) continue; /* little address space */
            CHECK_AT(block != NULL && is_aligned(block, alignment), alignment);
            size_t bytes = usable(block);
            CHECK_AT(bytes >= sizes[i] && bytes >= 1 && bytes <= sizes[i] + PAGE_BYTES, sizes[i]);
            if (in_window(block)) {
                CHECK_EQ(page_word(page_index(block)), WORD_LARGE);
                for (size_t at = PAGE_BYTES; at < bytes; at += PAGE_BYTES)
                    CHECK_EQ(page_word(page_index(block + at)), WORD_NONE);
            }
            block[0] = block[bytes - 1] = 'x';
            release(block);
            if (in_window(block)) CHECK_EQ(page_word(page_index(block)), WORD_NONE);
        }
    }
    CHECK_EQ(used_pages(), before);
    slow_leave();
}

TEST(what_cannot_be) {
    bool zero = true;
    CHECK(slow_enter());
    CHECK(large_alloc(SIZE_MAX, 16, &zero) == NULL && !zero);
    CHECK(large_alloc((size_t)PTRDIFF_MAX + 1, 16, &zero) == NULL);
    CHECK(large_alloc(PTRDIFF_MAX, 16, &zero) == NULL);
    CHECK(large_alloc(1, (size_t)1 << 63, &zero) == NULL);
    CHECK(large_alloc(GIB(200000), 16, &zero) == NULL);
    slow_leave();
}

/* What does not fit in the window lies outside, and so does everything when it is full. */
HELPER(in_a_small_window) {
    bool zero = false;
    size_t bytes = window.pages * PAGE_BYTES;
    CHECK_EQ(bytes, MIB(64));
    CHECK(slow_enter());
    char *block = large_alloc(bytes, 16, &zero);
    CHECK(block != NULL && !in_window(block) && zero);
    CHECK_EQ(outside_bytes(block), bytes);
    block[0] = block[bytes - 1] = 'x';
    CHECK(outside_unmap(block));
    /* With as many usable bytes as good_size promises. */
    block = large_alloc(bytes - KIB(63), 16, &zero);
    CHECK(block != NULL && !in_window(block));
    CHECK(outside_bytes(block) >= heap_good_bytes(bytes - KIB(63)));
    CHECK(outside_unmap(block));
    size_t outside = 0;
    for (size_t i = 0; i < 100; i++) {
        CHECK((block = large_alloc(MIB(1), 4096, &zero)) != NULL);
        CHECK(is_aligned(block, 4096) && (in_window(block) || zero));
        block[0] = 'x';
        outside += !in_window(block);
    }
    CHECK(outside >= 37 && outside < 60);
    slow_leave();
}

static int told;
static void count_told(void *unused) { told += unused == NULL; }

static size_t take_until_refused(char **blocks, size_t most, size_t bytes) {
    size_t count = 0;
    while (count < most && (blocks[count] = hak_malloc(bytes)) != NULL) count++;
    return count;
}

HELPER(limited_in_a_small_window) {
    enum { MOST = 40 };
    static char *blocks[MOST];
    struct stats_totals before, with;
    struct failure failure;
    CHECK_EQ(window.pages * PAGE_BYTES, MIB(64));
    stats_read_totals(&before);
    CHECK_EQ(hak_option_set("hard_limit", "128MiB"), 0);
    /* One in the window and one outside. Two more would be 240 MiB. */
    size_t count = take_until_refused(blocks, MOST, MIB(60));
    CHECK_AT(count == 2, count);
    CHECK(failure_read(failures_made(), &failure) && failure.limit == MIB(128) && failure.in_use >= MIB(120));
    stats_read_totals(&with);
    CHECK_EQ(with.large_blocks, before.large_blocks + 2);
    CHECK(with.large_bytes >= before.large_bytes + MIB(120) && with.held_bytes >= with.in_use_bytes);
    CHECK(with.in_use_bytes >= MIB(120) && with.in_use_bytes < MIB(128));
    CHECK(hak_malloc(MIB(70)) == NULL); /* larger than the window */
    hak_free(blocks[0]);
    hak_free(blocks[1]);
    /* Larger than the window, and less than the limit. */
    count = take_until_refused(blocks, MOST, MIB(70));
    CHECK_AT(count == 1 && !in_window(blocks[0]), count);
    CHECK(hak_malloc(MIB(60)) == NULL); /* nor where it would lie in the window */
    CHECK_EQ(hak_option_set("soft_limit", "32MiB"), 0);
    hak_on_soft_limit(count_told, NULL);
    for (int i = 0; i < 100 && told == 0; i++) hak_free(hak_malloc(MIB(2)));
    CHECK_EQ(told, 1);
    hak_free(blocks[0]);
    stats_read_totals(&with);
    CHECK_EQ(with.large_blocks, before.large_blocks);
}

static void run_in_a_small_window(const char *helper) {
    char setting[] = "HAKMEM_WINDOW=64M", *const environment[] = {setting, NULL};
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execle("/proc/self/exe", "large_test", helper, (char *)NULL, environment);
        _exit(127);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
}

TEST(larger_than_the_window) { run_in_a_small_window("in_a_small_window"); }

TEST(limits_reach_outside_the_window) { run_in_a_small_window("limited_in_a_small_window"); }

TEST(random_blocks) {
    enum { SLOTS = 40 };
    static struct {
        char *block;
        size_t bytes;
        uint64_t key;
    } slots[SLOTS];
    struct rng rng = {check_now.seed};
    size_t zeroes = 0, dirty = 0;
    CHECK(slow_enter());
    for (size_t i = 0; i < check_count(4000); i++) {
        size_t at = rng_below(&rng, SLOTS);
        if (slots[at].block != NULL) {
            CHECK_AT(block_holds(slots[at].block, slots[at].bytes, slots[at].key), i);
            CHECK_EQ(large_usable_bytes(page_index(slots[at].block)), slots[at].bytes);
            release(slots[at].block);
            slots[at].block = NULL;
            continue;
        }
        bool zero;
        size_t alignment = (size_t)16 << rng_below(&rng, 16);
        slots[at].block = large_alloc(KIB(64) + 1 + rng_below(&rng, KIB(600)), alignment, &zero);
        CHECK(slots[at].block != NULL && in_window(slots[at].block));
        slots[at].bytes = usable(slots[at].block);
        slots[at].key = rng_next(&rng);
        if (zero) CHECK_AT(block_is_zero(slots[at].block, slots[at].bytes), i);
        zeroes += zero;
        dirty += !zero;
        block_fill(slots[at].block, slots[at].bytes, slots[at].key);
    }
    for (size_t at = 0; at < SLOTS; at++)
        if (slots[at].block != NULL) release(slots[at].block);
    slow_leave();
    CHECK(zeroes > 0 && dirty > zeroes);
}

TEST(growing_and_shrinking) {
    bool zero;
    CHECK(slow_enter());
    uint64_t before = used_pages();
    char *room = large_alloc(MIB(8), 16, &zero); /* room that is free behind the block, and free alone */
    size_t page = page_index(room);
    release(page_address(page));
    char *block = large_alloc(MIB(1), 16, &zero);
    for (char *grown; (grown = large_resize(page_index(block), MIB(2))) != block; block = large_alloc(MIB(1), 16, &zero))
        release(grown);
    page = page_index(block);
    CHECK_EQ(large_usable_bytes(page), MIB(2));
    block_fill(block, MIB(2), 7);
    CHECK(large_resize(page, MIB(2) - PAGE_BYTES) == block); /* too little to be worth cutting off */
    CHECK_EQ(large_usable_bytes(page), MIB(2));
    CHECK(large_resize(page, MIB(1)) == block);
    CHECK_EQ(large_usable_bytes(page), MIB(1));
    CHECK(large_resize(page, MIB(1) + 1) == block);
    CHECK_EQ(large_usable_bytes(page), MIB(1) + PAGE_BYTES);
    CHECK(!heap_resize(block, SMALL_MAX_BYTES)); /* a small block holds it in less */
    CHECK(!large_resize(page, SIZE_MAX) && !large_extend(page, SIZE_MAX));
    CHECK(!large_resize(page, (size_t)PTRDIFF_MAX));
    CHECK(!large_resize(page, window.pages * PAGE_BYTES));
    char *next = block + MIB(1) + PAGE_BYTES, *neighbour = NULL;
    void *taken[64];
    size_t count = 0;
    while (neighbour != next && count < 64) /* until the page behind is in use */
        taken[count++] = neighbour = large_alloc(PAGE_BYTES + 1 - PAGE_BYTES, 16, &zero);
    block_fill(block, large_usable_bytes(page), 8);
    if (neighbour == next) {
        *neighbour = 'n';
        char *moved = large_resize(page, MIB(2));
        CHECK(moved != NULL && moved != block && in_window(moved));
        CHECK_EQ(page_word(page), WORD_NONE);
        CHECK_EQ(page_word(page_index(moved)), WORD_LARGE);
        CHECK_EQ(*neighbour, 'n');
        block = moved;
        page = page_index(block);
        CHECK_EQ(large_usable_bytes(page), MIB(2));
    }
    CHECK(block_holds(block, MIB(1) + PAGE_BYTES, 8));
    block_fill(block, large_usable_bytes(page), 9);
    if (neighbour == next) CHECK_EQ(*neighbour, 'n');
    while (count != 0) release(taken[--count]);
    release(page_address(page));
    CHECK_EQ(used_pages(), before);
    slow_leave();
}

/* A block that moves, with a neighbour behind it, gets a reserve for its next growth: not where that would count against a limit. */
static uint64_t used_after_a_move(uint64_t hard_pages, uint64_t soft_pages) {
    bool zero;
    span_configure(&(struct span_settings){
        .huge_from_pages = UINT64_MAX, .hard_pages = hard_pages, .soft_pages = soft_pages, .fixed = true});
    CHECK(slow_enter());
    const uint64_t before = used_pages();
    char *block = large_alloc(MIB(2), 16, &zero), *neighbour = large_alloc(MIB(2), 16, &zero);
    char *moved = large_resize(page_index(block), MIB(4));
    CHECK(moved != NULL && neighbour != NULL);
    if (moved == block) neighbour = block; /* nothing lay behind it */
    const uint64_t used = used_pages() - before;
    release(moved);
    if (neighbour != block) release(neighbour);
    slow_leave();
    return neighbour != block ? used : 0;
}

static void limit_to(int resource, rlim_t bytes) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(resource, &limit), 0);
    if (limit.rlim_cur != RLIM_INFINITY && bytes != RLIM_INFINITY) SKIP("there is a limit already");
    limit.rlim_cur = bytes;
    CHECK_EQ(setrlimit(resource, &limit), 0);
}

static void reserve_beside_limits(void) {
    const uint64_t without = MIB(4 + 2) / PAGE_BYTES, most = window.pages;
    NEED_MOVES(); /* what is copied gets none */
    CHECK(used_after_a_move(0, 0) > without);
    CHECK_EQ(used_after_a_move(most, 0), without);
    CHECK_EQ(used_after_a_move(0, most), without);
    const int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (size_t i = 0; i < 2; i++) {
        limit_to(resources[i], SIZE_MAX / 8); /* enough for shadow memory, too */
        CHECK_EQ(used_after_a_move(0, 0), without);
        limit_to(resources[i], RLIM_INFINITY);
        CHECK(used_after_a_move(0, 0) > without);
    }
}

TEST(a_limit_counts_no_reserve) { IN_CHILD(reserve_beside_limits); }

TEST(frees_that_had_to_wait) {
    void *blocks[5];
    bool zero;
    CHECK(slow_enter());
    uint64_t before = used_pages();
    for (size_t i = 0; i < 5; i++) CHECK((blocks[i] = large_alloc(KIB(200), 16, &zero)) != NULL);
    void *last = large_alloc(KIB(200), 16, &zero);
    CHECK_EQ(used_pages(), before + 6 * 4);
    for (size_t i = 0; i < 5; i++) {
        CHECK(large_claim(page_index(blocks[i])));
        large_free_later(page_index(blocks[i]));
        CHECK_EQ(page_word(page_index(blocks[i])), WORD_NONE);
    }
    CHECK_EQ(used_pages(), before + 6 * 4);
    release(last);
    CHECK_EQ(used_pages(), before);
    blocks[0] = large_alloc(KIB(200), 16, &zero);
    CHECK(large_claim(page_index(blocks[0])));
    large_free_later(page_index(blocks[0]));
    CHECK(large_alloc(KIB(200), 16, &zero) == blocks[0]); /* what waited is there for the next */
    release(blocks[0]);
    CHECK_EQ(used_pages(), before);
    slow_leave();
}

TEST(collecting_frees_what_waits) {
    bool zero;
    CHECK(slow_enter());
    uint64_t before = used_pages();
    void *block = large_alloc(KIB(200), 16, &zero);
    CHECK(block != NULL && large_claim(page_index(block)));
    large_free_later(page_index(block));
    slow_leave();
    heap_collect();
    CHECK(used_pages() <= before);
}
