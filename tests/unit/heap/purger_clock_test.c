/* purger_clock_test.c - what a process returns that slept and may start no purge thread, and how often above a soft limit, with the
 * time in the test's hands. In children: what was configured stays in the process.
 *
 * Planted defects it was seen to catch:
 *   a sleep returns everything, whatever the half-life   a_short_sleep_returns_nothing, a_peak_serves_the_next
 *   another thread's later look is a long sleep          a_later_look_is_no_sleep
 *   above the soft limit a long purge is followed by another    a_long_purge_above_the_soft_limit_is_followed_by_rest
 *   what threads kept is told like what is in use               what_was_only_kept_is_not_told
 */
#include "../../clock.h" /* first: it says _GNU_SOURCE */

#include "blocks.h"
#include "child.h"
#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/purger.h"

#include <sys/mman.h>

enum { ASLEEP_MS = 1000, PEAK_BYTES = MIB(64) };

static void configure(uint64_t half_life_ms) {
    span_configure(&(struct span_settings){.decay_half_life_ms = half_life_ms, .huge_from_pages = UINT64_MAX});
    purger_configure(half_life_ms, false);
    purger_start();
    heap_free(heap_alloc(100, NULL), NULL);
    footprint_settled(footprint_in_use());
}

/* As many slow paths as a look takes, of blocks that no thread keeps and that hardly use memory. */
static void look(void) {
    for (int i = 0; i < TICKS_PER_LOOK; i++) {
        void *block = heap_alloc_aligned(1, 2 * PAGE_BYTES);
        CHECK(block != NULL);
        heap_free(block, NULL);
    }
}

static void look_after(uint64_t ms) {
    clock_pass(ms);
    look();
}

static void peak(void) {
    char *block = heap_alloc(PEAK_BYTES, NULL);
    CHECK(block != NULL);
    for (size_t at = 0; at < PEAK_BYTES; at += 4096) block[at] = 'x';
    heap_free(block, NULL);
    CHECK(footprint_returnable() >= PEAK_BYTES / 2); /* worth making up for */
}

static uint64_t returned(void) { return atomic_load(&os_counters.purged_bytes); }

static void sleep_short_and_long(void) {
    enum { HALF_LIFE_MS = 1000 * 1000 };
    configure(HALF_LIFE_MS);
    peak();
    look();
    for (int i = 0; i < 5; i++) look_after(2 * ASLEEP_MS);
    CHECK_EQ(returned(), 0);
    look_after(4 * HALF_LIFE_MS);
    CHECK(returned() >= PEAK_BYTES * 9 / 10);
    CHECK(footprint_returnable() < PEAK_BYTES / 2);
}

TEST(a_short_sleep_returns_nothing) { IN_CHILD(sleep_short_and_long); }

/* By the default half-life, with more sleep than work between the peaks. */
static void sleep_between_peaks(void) {
    configure(500);
    for (int i = 0; i < 10; i++) {
        peak();
        look();
        look_after(ASLEEP_MS + 200);
    }
    CHECK_AT(returned() < PEAK_BYTES / 8, returned());
}

TEST(a_peak_serves_the_next) { IN_CHILD(sleep_between_peaks); }

/* The clock stands for that of a thread that read it before another one looked. */
static void look_late(void) {
    configure(500);
    look_after(ASLEEP_MS);
    peak();
    const uint64_t before = returned(); /* before a new peak */
    look_after(-(uint64_t)20);
    CHECK_EQ(returned(), before);
}

TEST(a_later_look_is_no_sleep) { IN_CHILD(look_late); }

/* ---- above the soft limit ------------------------------------------------------------------------------ */

static _Atomic uint64_t advice_ms; /* how long the kernel takes for a piece of it */

int madvise(void *address, size_t bytes, int advice) {
    clock_pass(atomic_load(&advice_ms));
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void limit_to(uint64_t soft_pages) {
    span_configure(&(struct span_settings){.decay_half_life_ms = 1000 * 1000, .huge_from_pages = UINT64_MAX, .soft_pages = soft_pages});
}

/* Whether a look above the limit returns what was freed before it. */
static bool look_returns(void) {
    limit_to(0);
    peak();
    limit_to(16);
    const uint64_t before = returned();
    look();
    return returned() - before >= PEAK_BYTES / 2;
}

static void stay_above_soft_limit(void) {
    enum { LONG_MS = 40 };
    configure(1000 * 1000);
    CHECK(heap_alloc(PEAK_BYTES, NULL) != NULL);
    CHECK(look_returns());
    CHECK(!look_returns()); /* too soon */
    clock_pass(100);
    atomic_store(&advice_ms, LONG_MS);
    CHECK(look_returns());
    atomic_store(&advice_ms, 0);
    clock_pass(10 * LONG_MS);
    CHECK(!look_returns());
    clock_pass(32 * 1000); /* as if it had taken a second */
    CHECK(look_returns());
    clock_pass(100);
    CHECK(look_returns()); /* the last was a short one */
}

TEST(a_long_purge_above_the_soft_limit_is_followed_by_rest) { IN_CHILD(stay_above_soft_limit); }

static int told;
static void count_told(void *unused) {
    (void)unused;
    told++;
}

static void *keep_some(void *unused) {
    void *blocks[8];
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < 8; i++) CHECK((blocks[i] = heap_alloc(MIB(1), NULL)) != NULL);
        for (size_t i = 0; i < 8; i++) heap_free(blocks[i], NULL);
    }
    return unused;
}

/* The thread that kept it has ended, and the next would have it. */
static void exceed_soft_limit_by_what_is_kept(void) {
    pthread_t thread;
    struct span_counts before, after;
    configure(1000 * 1000);
    heap_on_soft_limit(count_told, NULL);
    span_counts_read(&before);
    CHECK_EQ(pthread_create(&thread, NULL, keep_some, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    span_counts_read(&after);
    CHECK(after.used_pages > before.used_pages + MIB(1) / PAGE_BYTES);
    clock_pass(100);
    limit_to(before.used_pages + MIB(1) / PAGE_BYTES);
    CHECK(span_is_over_soft());
    look();
    CHECK(!span_is_over_soft());
    CHECK_EQ(told, 0);
    CHECK(heap_alloc(MIB(4), NULL) != NULL);
    look();
    CHECK_EQ(told, 1);
}

TEST(what_was_only_kept_is_not_told) { IN_CHILD(exceed_soft_limit_by_what_is_kept); }
