/* span_cache_test.c - large blocks that a thread keeps: which, how many, who takes them away, and what the books say of them.
 *
 * Planted defects it was seen to catch:
 *   a block of another length is taken           a_length_that_comes_and_goes_is_kept
 *   the bound is not looked at                   all_keep_to_the_bound
 *   no length makes room                         a_length_that_comes_and_goes_is_kept, others_make_room
 *   who makes room is kept less of from then on  lengths_that_share_the_bound_do_not_swing
 *   a limit counts what threads keep             no_limit_is_in_the_way
 *   what is idle is kept                         what_is_idle_goes_back
 *   a thread that ends keeps what it has         a_thread_that_ends_gives_all_back
 *   a sleeper keeps what it has                  what_comes_by_once_is_not, a_sleeper_gives_all_back
 *   what a buffer outgrew is kept                a_growing_buffer_leaves_nothing
 *   the books call what is kept in use           the_books_know
 *   a block that is kept is freed again          twice_freed_is_told
 *   what was given back passes for a block       twice_freed_is_told
 *   a fork does not shut what others keep        a_child_gives_back_what_the_others_kept
 *   it stays shut                                a_child_gives_back_what_the_others_kept
 *   a torn list is believed                      what_a_thread_was_just_at_is_lost_to_a_child
 */
#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"

#include "heap/alloc.h"
#include "heap/purge.h"
#include "heap/span_cache.h"
#include "heap/thread.h"
#include "no_purger.h"
#include "span/span.h"
#include "watch/stats.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

static const struct heap *own(void) { return thread_heap(); }

static uint64_t kept_spans(void) { return counter_read(&own()->kept_spans); }
static uint64_t kept_bytes(void) { return counter_read(&own()->kept_pages) * PAGE_BYTES; }

/* COUNT blocks live at once. */
static void take_and_give(size_t bytes, size_t count) {
    void *blocks[64];
    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++) CHECK((blocks[i] = heap_alloc(bytes)) != NULL);
    for (size_t i = 0; i < count; i++) heap_free(blocks[i], NULL);
}

/* Until blocks of BYTES bytes are kept, or not, as they will be. */
static void settle(size_t bytes, size_t count) {
    for (int i = 0; i < 20; i++) take_and_give(bytes, count);
}

static uint64_t taken_spans(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.taken;
}

static uint64_t given_spans(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.given;
}

static void comes_and_goes(void) {
    for (size_t bytes = KIB(65); bytes <= MIB(1); bytes += KIB(61)) {
        settle(bytes, 1);
        const uint64_t taken = taken_spans();
        for (int i = 0; i < 100; i++) {
            char *block = heap_alloc(bytes);
            CHECK_EQ(heap_usable_bytes(block), heap_good_bytes(bytes));
            block[0] = block[bytes - 1] = 'x';
            heap_free(block, NULL);
        }
        CHECK_AT(taken_spans() == taken, bytes);
    }
    /* Beyond, none is. */
    settle(MIB(1) + 1, 1);
    const uint64_t taken = taken_spans();
    take_and_give(MIB(1) + 1, 1);
    CHECK_EQ(taken_spans(), taken + 1);
}
TEST(a_length_that_comes_and_goes_is_kept) { IN_CHILD(comes_and_goes); }

/* One that is only taken, or comes by once, is not. */
static void once(void) {
    static void *blocks[64];
    for (size_t i = 0; i < 64; i++) blocks[i] = heap_alloc(KIB(128));
    for (size_t i = 0; i < 64; i++) heap_free(blocks[i], NULL);
    CHECK(kept_spans() <= 1);
    heap_collect();
    for (size_t bytes = KIB(200); bytes < KIB(900); bytes += KIB(64)) take_and_give(bytes, 1);
    CHECK_EQ(kept_spans(), 0);
}
TEST(what_comes_by_once_is_not) { IN_CHILD(once); }

/* Zeroes are written where blocks were used. */
static void zeroes(void) {
    settle(KIB(300), 2);
    for (int i = 0; i < 50; i++) {
        unsigned char *block = heap_alloc_zero(KIB(300));
        for (size_t at = 0; at < KIB(300); at += 97) CHECK_AT(block[at] == 0, at);
        memset(block, 0xa5, KIB(300));
        heap_free(block, NULL);
    }
    CHECK(kept_spans() != 0);
    CHECK(is_aligned(heap_alloc_aligned(KIB(300), KIB(256)), KIB(256))); /* no block that was kept need be */
}
TEST(zeroes_are_zeroes) { IN_CHILD(zeroes); }

static atomic_uint foreign;
static size_t count_foreign(void *block, enum heap_foreign_use use) {
    (void)block;
    (void)use;
    atomic_fetch_add(&foreign, 1);
    return 0;
}
static void twice(void) {
    settle(KIB(200), 2);
    CHECK_EQ(kept_spans(), 2);
    void *block = heap_alloc(KIB(200)), *other = heap_alloc(KIB(200)); /* there is room for both */
    heap_free(block, NULL);
    CHECK(!heap_owns(block));
    CHECK(heap_start(&(struct heap_options){.thread_cache_bytes = MIB(16), .decay = ACE_NEVER, .foreign = count_foreign}));
    heap_free(block, NULL);
    CHECK_EQ(atomic_load(&foreign), 1);
    CHECK_EQ(kept_spans(), 1);
    thread_reveal_large();
    CHECK_EQ(kept_spans(), 0);
    CHECK(!heap_owns(block) && heap_owns(other));
    heap_free(block, NULL);
    CHECK_EQ(atomic_load(&foreign), 2);
}
TEST(twice_freed_is_told) { IN_CHILD(twice); }

static void bound(void) {
    struct rng rng = {check_now.seed};
    static void *blocks[64];
    for (size_t i = 0; i < check_count(40000); i++) {
        const size_t at = rng_below(&rng, 64);
        const uint64_t given = given_spans();
        heap_free(blocks[at], NULL);
        CHECK_AT(given_spans() - given <= MIB(8) / KIB(128), i); /* one operation: no more than the bound holds */
        CHECK((blocks[at] = heap_alloc(KIB(65) + rng_below(&rng, KIB(900)))) != NULL);
        CHECK_AT(kept_bytes() <= MIB(8), i);
    }
    CHECK(kept_bytes() > KIB(512)); /* it is used */
    for (size_t i = 0; i < 64; i++) heap_free(blocks[i], NULL);
    /* A lower one is kept to at the next look. */
    heap_configure(&(struct heap_options){.thread_cache_bytes = MIB(1), .decay = ACE_NEVER});
    settle(KIB(500), 1);
    CHECK(kept_bytes() <= KIB(512));
    heap_configure(&(struct heap_options){.thread_cache_bytes = MIB(8), .decay = ACE_NEVER});
    for (int i = 0; i < 100; i++) settle(KIB(128), 8); /* those of 500 KiB are idle */
    CHECK_EQ(kept_spans(), 8);
    heap_configure(&(struct heap_options){.thread_cache_bytes = 0, .decay = ACE_NEVER});
    take_and_give(MIB(2), 4);
    CHECK_EQ(kept_spans(), 0);
}
TEST(all_keep_to_the_bound) { IN_CHILD(bound); }

/* Two lengths that fill the bound, one after the other. */
static void room(void) {
    settle(KIB(128), 8);
    CHECK_EQ(kept_bytes(), MIB(1));
    settle(KIB(512), 2);
    const uint64_t taken = taken_spans();
    settle(KIB(512), 2);
    CHECK_EQ(taken_spans(), taken);
    CHECK(kept_bytes() <= MIB(1));
}
TEST(others_make_room) { IN_CHILD(room); }

/* Five lengths that come and go in any order, for which the bound is too small. */
static void too_many_lengths(void) {
    enum { FIRST = 12, END = 17 };
    struct rng rng = {check_now.seed};
    static void *blocks[64];
    uint32_t limits[END] = {0};
    for (size_t i = 0; i < check_count(20000); i++) {
        void **block = &blocks[rng_below(&rng, 64)];
        heap_free(*block, NULL);
        CHECK((*block = heap_alloc((FIRST + rng_below(&rng, END - FIRST)) * PAGE_BYTES)) != NULL);
        for (size_t pages = FIRST; pages < END; pages++) {
            const uint32_t limit = own()->kept[pages - 1].limit;
            CHECK_AT(limit >= limits[pages], i);
            limits[pages] = limit;
        }
    }
    CHECK(kept_spans() != 0);
}
TEST(lengths_that_share_the_bound_do_not_swing) { IN_CHILD(too_many_lengths); }

/* While the thread does something else. */
static void idle(void) {
    settle(KIB(256), 3);
    CHECK(kept_spans() != 0);
    for (int i = 0; i < 1000; i++) take_and_give(MIB(2), 1);
    CHECK_EQ(kept_spans(), 0);
    CHECK_EQ(kept_bytes(), 0);
}
TEST(what_is_idle_goes_back) { IN_CHILD(idle); }

static uint64_t used_pages(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.used_pages;
}

static struct heap *_Atomic worker_heap;
static atomic_bool worker_ends;
static void *keep_some(void *sleeps) {
    settle(KIB(256), 2);
    CHECK(kept_spans() != 0);
    atomic_store(&worker_heap, thread_heap());
    while (sleeps != NULL && !atomic_load(&worker_ends)) usleep(1000);
    const uint64_t turns = counter_read(&own()->kept_turns);
    settle(KIB(256), 2);
    CHECK(counter_read(&own()->kept_turns) > turns); /* whatever others did meanwhile */
    return NULL;
}

/* Starts a thread that keeps some blocks and sleeps; returns its heap. */
static struct heap *start_sleeper(pthread_t *thread) {
    struct heap *heap;
    CHECK_EQ(pthread_create(thread, NULL, keep_some, (void *)1), 0);
    while ((heap = atomic_load(&worker_heap)) == NULL) sched_yield();
    return heap;
}
static void end_sleeper(pthread_t thread) {
    atomic_store(&worker_ends, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void ends(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, keep_some, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(counter_read(&atomic_load(&worker_heap)->kept_spans), 0);
}
TEST(a_thread_that_ends_gives_all_back) { IN_CHILD(ends); }

/* By whoever gives back what sleepers hold, and where memory is short. */
static void sleeper(void) {
    pthread_t thread;
    struct heap *heap = start_sleeper(&thread);
    const uint64_t held = counter_read(&heap->kept_pages), used = used_pages();
    CHECK(held != 0);
    purge_steps(PURGE_ALL);
    CHECK_EQ(counter_read(&heap->kept_spans), 0);
    CHECK_EQ(counter_read(&heap->kept_pages), 0);
    CHECK(used_pages() <= used - held);
    end_sleeper(thread);
}
TEST(a_sleeper_gives_all_back) { IN_CHILD(sleeper); }

static void revealed(void) {
    pthread_t thread;
    start_sleeper(&thread);
    CHECK(thread_reveal());
    CHECK_EQ(counter_read(&atomic_load(&worker_heap)->kept_spans), 0);
    end_sleeper(thread);
}
TEST(where_memory_is_short_it_is_found) { IN_CHILD(revealed); }

/* A hard limit is not in the way of what only kept blocks are in the way of: of a new block, however large, and of one that grows. */
static void below_a_hard_limit(void) {
    char limit[32];
    settle(KIB(512), 2);
    void *hole = hak_malloc(MIB(2)); /* for what else needs a page meanwhile */
    void *grown = hak_malloc(MIB(40)); /* behind it nothing is in use */
    hak_free(hole);
    settle(KIB(512), 2);
    const uint64_t kept = counter_read(&own()->kept_pages);
    CHECK(kept >= 8);
    snprintf(limit, sizeof limit, "%" PRIu64, (used_pages() + SPAN_RESERVE_PAGES + 1604) * PAGE_BYTES);
    CHECK_EQ(hak_option_set("hard_limit", limit), 0);
    void *block = hak_malloc((1600 + kept) * PAGE_BYTES);
    CHECK(block != NULL);
    hak_free(block);
    settle(KIB(512), 2);
    CHECK_EQ(counter_read(&own()->kept_pages), kept);
    CHECK(hak_try_expand(grown, MIB(40) + (1600 + kept) * PAGE_BYTES) != 0);
    CHECK(hak_malloc(MIB(100)) == NULL);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
}
TEST(no_limit_is_in_the_way) { IN_CHILD(below_a_hard_limit); }

/* In the child of a fork what the others kept is nobody's, and goes back. */
static void do_nothing(void) {}
static void in_grandchild(void) {
    struct heap *theirs = atomic_load(&worker_heap);
    IN_CHILD(do_nothing); /* another fork before that changes nothing */
    const uint64_t given = given_spans(), kept = counter_read(&theirs->kept_spans);
    CHECK(kept != 0 && theirs->forsaken);
    thread_reap_forsaken();
    CHECK_EQ(counter_read(&theirs->kept_spans), 0);
    CHECK(given_spans() >= given + kept);
    settle(KIB(256), 2);
}
static void forked(void) {
    pthread_t thread;
    start_sleeper(&thread);
    IN_CHILD(in_grandchild);
    end_sleeper(thread);
}
TEST(a_child_gives_back_what_the_others_kept) { IN_CHILD(forked); }

/* What a thread is at in the moment of a fork, a child cannot know: it leaves that alone. */
static uint32_t listed;
static void in_torn_grandchild(void) {
    struct heap *theirs = atomic_load(&worker_heap);
    const uint64_t given = given_spans();
    CHECK(listed != 0 && theirs->forsaken);
    CHECK_EQ(theirs->kept[KIB(256) / PAGE_BYTES - 1].first, 0);
    thread_reveal_large();
    thread_reap_forsaken();
    CHECK_EQ(counter_read(&theirs->kept_spans), 0);
    CHECK_EQ(given_spans(), given);
    CHECK(large_is_kept(listed)); /* nobody's */
    settle(KIB(256), 2);
    CHECK(own()->kept[KIB(256) / PAGE_BYTES - 1].first != listed);
}
static void torn(void) {
    pthread_t thread;
    struct heap *theirs = start_sleeper(&thread);
    atomic_store(&theirs->keeping, true);
    const uint64_t kept = counter_read(&theirs->kept_spans);
    thread_reveal_large();
    CHECK_EQ(counter_read(&theirs->kept_spans), kept);
    listed = theirs->kept[KIB(256) / PAGE_BYTES - 1].first;
    IN_CHILD(in_torn_grandchild);
    atomic_store(&theirs->keeping, false);
    end_sleeper(thread);
}
TEST(what_a_thread_was_just_at_is_lost_to_a_child) { IN_CHILD(torn); }

/* Where the kernel has no barrier, nobody is sure of another thread; of itself it is. From then on nothing is kept. */
static void without_barrier(void) {
    pthread_t thread;
    struct heap *theirs = start_sleeper(&thread);
    settle(KIB(192), 2);
    fail_arm(FAIL_MEMBARRIER, 1, true, ENOSYS);
    const uint64_t kept = counter_read(&theirs->kept_spans);
    CHECK(kept != 0 && kept_spans() != 0);
    CHECK(thread_reveal_large());
    CHECK_EQ(kept_spans(), 0);
    CHECK_EQ(counter_read(&theirs->kept_spans), kept);
    fail_disarm();
    thread_reveal_large();
    CHECK_EQ(counter_read(&theirs->kept_spans), 0);
    take_and_give(MIB(2), 4);
    settle(KIB(192), 2);
    CHECK_EQ(kept_spans(), 0);
}
TEST(without_a_barrier_others_are_left_alone) { IN_CHILD(without_barrier); }

/* Eight buffers that grow in turn, again and again. */
static void grow(void) {
    for (int round = 0; round < 10; round++) {
        char *buffers[8] = {NULL};
        for (size_t bytes = KIB(4); bytes < MIB(2); bytes += bytes / 4)
            for (size_t i = 0; i < 8; i++) CHECK((buffers[i] = hak_realloc(buffers[i], bytes)) != NULL);
        CHECK_EQ(kept_spans(), 0);
        for (size_t i = 0; i < 8; i++) hak_free(buffers[i]);
    }
}
TEST(a_growing_buffer_leaves_nothing) { IN_CHILD(grow); }

static void books(void) {
    struct stats_totals before, with, after;
    stats_read_totals(&before);
    settle(KIB(192), 2);
    void *block = heap_alloc(KIB(192));
    stats_read_totals(&with);
    CHECK_EQ(with.large_blocks, before.large_blocks + 1);
    CHECK_EQ(with.large_bytes, before.large_bytes + KIB(192));
    CHECK(with.cached_bytes >= before.cached_bytes + KIB(192));
    heap_free(block, NULL);
    stats_read_totals(&after);
    CHECK_EQ(after.large_blocks, before.large_blocks);
    CHECK_EQ(after.large_bytes, before.large_bytes);
    CHECK_EQ(after.cached_bytes, with.cached_bytes + KIB(192));
    CHECK_EQ(after.in_use_bytes, with.in_use_bytes);
    const void *at = NULL;
    uint64_t cached = 0;
    for (struct stats_heap heap; stats_next_heap(&at, &heap);) cached += heap.cached_bytes;
    CHECK_EQ(cached, after.cached_bytes);
}
TEST(the_books_know) { IN_CHILD(books); }

/* Threads that keep and free each other's blocks, while others take away what they keep. */
enum { WORKERS = 4, SHARED = 64 };
static void *_Atomic shared[SHARED];
static atomic_uint working;
static void *swap(void *argument) {
    struct rng rng = {check_now.seed + (uintptr_t)argument};
    for (size_t i = 0; i < check_count(20000); i++) {
        uint64_t *block = heap_alloc(KIB(65) + rng_below(&rng, KIB(200)));
        CHECK(block != NULL);
        block[0] = block[KIB(8)] = (uintptr_t)block;
        block = atomic_exchange(&shared[rng_below(&rng, SHARED)], block);
        if (block != NULL) CHECK(block[0] == (uintptr_t)block && block[KIB(8)] == (uintptr_t)block);
        heap_free(block, NULL);
    }
    atomic_fetch_sub(&working, 1);
    return NULL;
}
static void swapped(void) {
    pthread_t threads[WORKERS];
    atomic_store(&working, WORKERS);
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, swap, (void *)i), 0);
    while (atomic_load(&working) != 0) {
        purge_steps(PURGE_ALL);
        sched_yield();
    }
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < SHARED; i++) heap_free(atomic_exchange(&shared[i], NULL), NULL);
}
TEST(threads_and_whoever_takes_it_away) { IN_CHILD(swapped); }
