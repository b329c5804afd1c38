/* stats_test.c - the books, read while others write them.
 *
 * Planted defects it was seen to catch:
 *   cached blocks are called live   blocks_are_live_then_cached
 */
#include "watch/stats.h"

#include "blocks.h"
#include "child.h"
#include "no_purger.h"
#include "slab/slab.h"
#include "watch/report.h"

#include <fcntl.h>
#include <sys/time.h>

static struct stats_totals totals_now(void) {
    struct stats_totals totals;
    stats_read_totals(&totals);
    return totals;
}

static struct stats_class class_now(size_t size) {
    struct stats_class sum;
    stats_read_class(size_class_of(size), &sum);
    return sum;
}

TEST(blocks_are_live_then_cached) {
    enum { COUNT = 100, SIZE = 200 };
    static void *blocks[COUNT];
    struct stats_class before = class_now(SIZE);
    for (int i = 0; i < COUNT; i++) blocks[i] = hak_malloc(SIZE);
    struct stats_class with = class_now(SIZE);
    CHECK_EQ(with.live_blocks, before.live_blocks + COUNT);
    uint64_t smaller = slab_classes[size_class_of(SIZE) - 1].block_bytes;
    CHECK_EQ(with.slack_bytes, with.live_blocks * (with.block_bytes - smaller - 1));
    CHECK(with.refills > before.refills && with.refilled_blocks >= before.refilled_blocks + COUNT);
    for (int i = 0; i < COUNT; i++) hak_free(blocks[i]);
    struct stats_class after = class_now(SIZE);
    CHECK_EQ(after.live_blocks, before.live_blocks);
    CHECK(after.cached_blocks > 0 && after.taken_blocks == after.live_blocks + after.cached_blocks);
}

TEST(large_blocks_by_size) {
    uint64_t live = counter_read(&span_sizes[6].live), taken = counter_read(&span_sizes[6].taken);
    struct stats_totals before = totals_now();
    void *block = hak_malloc(MIB(5)); /* 80 pages */
    CHECK_EQ(counter_read(&span_sizes[6].live), live + 1);
    CHECK_EQ(counter_read(&span_sizes[6].taken), taken + 1);
    CHECK_EQ(totals_now().large_blocks, before.large_blocks + 1);
    CHECK_EQ(totals_now().large_bytes, before.large_bytes + MIB(5));
    block = hak_realloc(block, MIB(4) - KIB(64)); /* 63 pages */
    CHECK_EQ(counter_read(&span_sizes[6].live), live);
    hak_free(block);
    CHECK_EQ(totals_now().large_blocks, before.large_blocks);
    CHECK_EQ(counter_read(&span_sizes[6].taken), taken + 1);
}

TEST(sizes_add_up) {
    struct span_counts counts;
    uint64_t live = 0;
    span_counts_read(&counts);
    for (int size = 0; size < SPAN_SIZES; size++) live += counter_read(&span_sizes[size].live);
    CHECK_EQ(live, counts.taken - counts.given);
}

TEST(peaks_are_of_a_phase) {
    struct span_counts counts;
    hak_free(hak_malloc(MIB(100)));
    span_counts_read(&counts);
    CHECK(counts.used_pages_peak * PAGE_BYTES >= MIB(100));
    stats_reset_peaks();
    span_counts_read(&counts);
    CHECK_EQ(counts.used_pages_peak, counts.used_pages);
    hak_free(hak_malloc(MIB(50)));
    span_counts_read(&counts);
    CHECK(counts.used_pages_peak * PAGE_BYTES >= MIB(50) && counts.used_pages_peak < counts.used_pages + MIB(60) / PAGE_BYTES);
}

/* ---- others write, one reads ------------------------------------------------------------------------------ */

enum { WRITERS = 4, READS = CHECK_SHADOWED ? 30 : 300 };
static atomic_bool over;
static _Atomic(void *) handed[64];

static void *write_books(void *argument) {
    struct rng rng = {(uintptr_t)argument};
    void *own[64] = {NULL};
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        size_t i = rng_below(&rng, 64);
        hak_free(own[i]);
        own[i] = hak_malloc(rng_size(&rng, 1000));
        own[i] = atomic_exchange(&handed[rng_below(&rng, 64)], own[i]);
    }
    for (size_t i = 0; i < 64; i++) hak_free(own[i]);
    return NULL;
}

TEST(reading_stops_nobody) {
    pthread_t writers[WRITERS];
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(null >= 0);
    for (size_t i = 0; i < WRITERS; i++)
        CHECK_EQ(pthread_create(&writers[i], NULL, write_books, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < READS; i++) {
        struct stats_totals totals = totals_now();
        CHECK(totals.in_use_bytes <= totals.held_bytes && totals.held_bytes < GIB(64));
        CHECK(totals.free_small_bytes < GIB(64) && totals.large_blocks < 1 << 20);
        CHECK(report_write(null, (enum report_form)(i % 3)));
    }
    atomic_store(&over, true);
    for (size_t i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
    for (size_t i = 0; i < 64; i++) hak_free(atomic_load(&handed[i]));
    close(null);
}

/* ---- a reader in a signal handler, and one that stops half way ----------------------------------------------- */

static int handler_fd;
static volatile sig_atomic_t handled;

static void report_in_handler(int number) {
    (void)number;
    if (report_write(handler_fd, (enum report_form)(handled % 3))) handled++;
}

static void allocate_beside_handlers(void) {
    struct rng rng = {check_now.seed};
    handler_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    signal(SIGVTALRM, report_in_handler);
    while (handled < (CHECK_SHADOWED ? 10 : 100)) {
        /* Once each time: a report may take longer than the time to the next. */
        struct itimerval soon = {.it_value = {.tv_usec = 1 + (long)rng_below(&rng, 2000)}};
        void *blocks[32];
        const int before = handled;
        setitimer(ITIMER_VIRTUAL, &soon, NULL); /* may already come as this returns */
        while (handled == before) {
            for (int i = 0; i < 32; i++) blocks[i] = hak_malloc(rng_size(&rng, 100));
            for (int i = 0; i < 32; i++) hak_free(blocks[i]);
        }
    }
}

TEST(handlers_may_report) { IN_CHILD(allocate_beside_handlers); }

static void write_to_nobody(void) {
    int ends[2];
    signal(SIGPIPE, SIG_IGN);
    CHECK_EQ(pipe(ends), 0);
    close(ends[0]);
    errno = 0;
    CHECK(!report_write(ends[1], REPORT_JSON));
    CHECK_EQ(errno, EPIPE);
    hak_free(hak_malloc(100));
}

TEST(a_reader_that_went_away_is_an_error) { IN_CHILD(write_to_nobody); }

/* ---- threads; last, because reports are longer with so many heaps ------------------------------------------------------------------------------------------- */

enum { THREADS = CHECK_SHADOWED ? 50 : 1000 };
static pthread_barrier_t begun, seen;

static void *be_there(void *unused) {
    void *block = hak_malloc(100);
    pthread_barrier_wait(&begun);
    pthread_barrier_wait(&seen);
    hak_free(block);
    return unused;
}

TEST(each_thread_has_its_heap) {
    static pthread_t threads[THREADS];
    struct stats_heaps before, with;
    pthread_attr_t small;
    hak_free(hak_malloc(100));
    stats_read_heaps(&before);
    pthread_barrier_init(&begun, NULL, THREADS + 1);
    pthread_barrier_init(&seen, NULL, THREADS + 1);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, KIB(256));
    for (int i = 0; i < THREADS; i++) {
        const int error = pthread_create(&threads[i], &small, be_there, NULL);
        if (error == EAGAIN) SKIP("so many threads cannot be had"); /* those that are there wait for ever */
        CHECK_EQ(error, 0);
    }
    pthread_barrier_wait(&begun);
    stats_read_heaps(&with);
    const void *at = NULL;
    size_t own = 0;
    for (struct stats_heap heap; stats_next_heap(&at, &heap);) own += heap.live && heap.thread_id == (uint64_t)gettid();
    pthread_barrier_wait(&seen);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(with.live_heaps, before.live_heaps + THREADS);
    CHECK_EQ(own, 1);
    pthread_attr_destroy(&small);
}
