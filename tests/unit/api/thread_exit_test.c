/* thread_exit_test.c - what is left when threads end: their live blocks, their free memory, their
 * destructors, and threads that never began.
 *
 * Planted defects it was seen to catch:
 *   a free that loses blocks        a_hundred_thousand_short_threads_..., destructors_...
 *   a remote free that loses them   memory_freed_after_..., half_empty_memory_of_the_dead_...
 *   a block handed out twice        blocks_outlive_their_thread, destructors_allocate_and_free
 */
#include "blocks.h"
#include "threads.h"

#include <sched.h>
#include <stdatomic.h>

enum { KEPT = 3000 };
static void *kept[KEPT];
static size_t kept_bytes[KEPT];

static void *leave_blocks(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument};
    for (size_t i = 0; i < KEPT; i++) {
        kept[i] = hak_malloc(rng_size(&rng, 200));
        CHECK(kept[i] != NULL);
        kept_bytes[i] = hak_usable_size(kept[i]);
        block_fill(kept[i], kept_bytes[i], block_key(kept[i], i));
    }
    return NULL;
}

static void *fill_and_free(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument};
    for (size_t i = 0; i < 5000; i++) {
        size_t size = rng_size(&rng, 0);
        void *block = hak_malloc(size);
        CHECK(block != NULL);
        memset(block, 0xee, size);
        hak_free(block);
    }
    return NULL;
}

TEST(blocks_outlive_their_thread) {
    for (size_t round = 0; round < check_count(20); round++) {
        run_thread(leave_blocks, (void *)(uintptr_t)round);
        run_thread(fill_and_free, (void *)(uintptr_t)round); /* may adopt what is free there */
        for (size_t i = 0; i < KEPT; i++) {
            CHECK_EQ(hak_usable_size(kept[i]), kept_bytes[i]);
            CHECK_AT(block_holds(kept[i], kept_bytes[i], block_key(kept[i], i)), i);
            hak_free(kept[i]);
        }
    }
}

/* A short thread: a few blocks of several classes, one of which it passes on to the next thread. */
static void *passed_on;

static void *live_shortly(void *argument) {
    void *blocks[12];
    size_t number = (size_t)(uintptr_t)argument;
    hak_free(passed_on);
    for (size_t i = 0; i < 12; i++) {
        size_t size = (size_t)16 << ((i + number) % 12);
        blocks[i] = hak_malloc(size);
        CHECK(blocks[i] != NULL);
        block_fill(blocks[i], 16, i);
    }
    for (size_t i = 0; i < 11; i++) {
        CHECK(block_holds(blocks[i], 16, i));
        hak_free(blocks[i]);
    }
    passed_on = blocks[11];
    return NULL;
}

TEST(a_hundred_thousand_short_threads_leave_memory_flat) {
    size_t before = 0, count = CHECK_SHADOWED ? 3000 : check_count(100000);
    for (size_t i = 0; i < count; i++) {
        if (i == 200) before = resident_bytes();
        run_thread(live_shortly, (void *)(uintptr_t)i);
    }
    hak_free(passed_on);
    passed_on = NULL;
    CHECK_RESIDENT(before, MIB(16));
}

/* Many at a time, ended in another order than begun, with nobody to join them in between. */
static void *live_together(void *barrier) {
    void *block = hak_malloc(1000);
    CHECK(block != NULL);
    pthread_barrier_wait(barrier);
    hak_free(block);
    return NULL;
}

TEST(waves_of_threads_leave_memory_flat) {
    enum { WAVE = 64 };
    pthread_t threads[WAVE];
    size_t before = 0;
    for (size_t round = 0; round < check_count(60) + 4; round++) {
        pthread_barrier_t barrier;
        CHECK_EQ(pthread_barrier_init(&barrier, NULL, WAVE), 0);
        for (size_t i = 0; i < WAVE; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, live_together, &barrier), 0);
        for (size_t i = 0; i < WAVE; i++) pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&barrier);
        if (round == 3) before = resident_bytes();
    }
    CHECK_RESIDENT(before, MIB(16));
}

/* 4 MiB of one class from a thread that ends; main frees all of it, or all but one in sixteen. */
enum { MANY = 65536, LEFT_PER_ROUND = MANY / 16 };
static void *many[MANY];
static size_t many_count, many_size;

static void *allocate_many(void *unused) {
    for (size_t i = 0; i < many_count; i++) {
        many[i] = hak_malloc(many_size);
        CHECK(many[i] != NULL);
        block_fill(many[i], many_size, i);
    }
    return unused;
}

TEST(memory_freed_after_its_owner_died_is_reused) {
    for (many_size = 64; many_size <= MIB(1); many_size *= 4) {
        size_t before = 0;
        many_count = MIB(4) / many_size;
        for (size_t round = 0; round < check_count(60) + 3; round++) {
            run_thread(allocate_many, NULL);
            for (size_t i = 0; i < many_count; i++) {
                CHECK_AT(block_holds(many[i], many_size, i), i);
                hak_free(many[i]);
            }
            if (round == 2) before = resident_bytes();
        }
        CHECK_RESIDENT(before, MIB(24));
    }
}

/* The sixteenth that stays live is scattered over all pages. 64 rounds leave 16 MiB live; without
 * adoption they would hold 256 MiB. */
TEST(half_empty_memory_of_the_dead_is_taken_over) {
    static void *left[64 * LEFT_PER_ROUND];
    size_t lefts = 0, rounds = CHECK_SHADOWED ? 8 : 64, before = resident_bytes();
    many_size = 256;
    many_count = MIB(4) / many_size;
    for (size_t round = 0; round < rounds; round++) {
        run_thread(allocate_many, NULL);
        for (size_t i = 0; i < many_count; i++) {
            CHECK_AT(block_holds(many[i], many_size, i), i);
            if (i % 16 == 0)
                left[lefts++] = many[i];
            else
                hak_free(many[i]);
        }
    }
    CHECK_RESIDENT(before, MIB(16) + MIB(48));
    for (size_t i = 0; i < lefts; i++) {
        CHECK(block_holds(left[i], many_size, i % (many_count / 16) * 16));
        hak_free(left[i]);
    }
}

/* Destructors of thread-specific keys, some made before anything was allocated, some after. Each
 * frees the value, allocates the next and sets it again, for all the rounds that there are. */
#ifdef CHECK_TSAN /* which takes down its part of the thread in the fourth */
enum { KEYS = 40, ROUNDS = 3 };
#else
enum { KEYS = 40, ROUNDS = 4 };
#endif
struct value {
    size_t key, round;
    unsigned char rest[];
};
static pthread_key_t keys[KEYS];
static atomic_size_t destructions;

static struct value *make_value(size_t key, size_t round) {
    size_t size = 100 + key * 37 * (key % 5 ? 1 : 50);
    struct value *value = hak_malloc(sizeof *value + size);
    CHECK(value != NULL);
    value->key = key;
    value->round = round;
    block_fill(value->rest, size, key * 10 + round);
    return value;
}

static void destroy_value(void *argument) {
    struct value *value = argument;
    size_t key = value->key, round = value->round;
    size_t size = 100 + key * 37 * (key % 5 ? 1 : 50);
    CHECK(block_holds(value->rest, size, key * 10 + round));
    value = hak_realloc(value, sizeof *value + size + 500);
    CHECK(value != NULL && block_holds(value->rest, size & ~(size_t)7, key * 10 + round));
    hak_free(value);
    void *aligned = hak_memalign(256, 300), *zero = hak_calloc(3, 100);
    CHECK(aligned != NULL && zero != NULL && block_is_zero(zero, 300));
    hak_free(aligned);
    hak_free(zero);
    atomic_fetch_add(&destructions, 1);
    if (round < ROUNDS) pthread_setspecific(keys[key], make_value(key, round + 1));
}

/* Before any constructor without a priority, so before the allocator's if it has one. */
__attribute__((constructor(101))) static void make_early_keys(void) {
    for (size_t i = 0; i < KEYS / 2; i++) pthread_key_create(&keys[i], destroy_value);
}

static void *use_keys(void *unused) {
    for (size_t i = 0; i < KEYS; i++) CHECK_EQ(pthread_setspecific(keys[i], make_value(i, 1)), 0);
    return unused;
}

TEST(destructors_allocate_and_free) {
    hak_free(hak_malloc(1));
    for (size_t i = KEYS / 2; i < KEYS; i++) CHECK_EQ(pthread_key_create(&keys[i], destroy_value), 0);
    size_t before = 0, threads = check_count(1500) + 10;
    for (size_t i = 0; i < threads; i++) {
        if (i == 10) before = resident_bytes();
        run_thread(use_keys, NULL);
    }
    CHECK_EQ(atomic_load(&destructions), threads * KEYS * ROUNDS);
    CHECK_RESIDENT(before, MIB(16));
}

/* The thread itself never allocates: its heap would be made in its last moments. */
static void *set_one_key(void *value) {
    CHECK_EQ(pthread_setspecific(keys[3], value), 0);
    return NULL;
}

TEST(a_destructor_may_be_the_first_to_allocate) {
    size_t before = 0;
    for (size_t i = 0; i < check_count(3000) + 10; i++) {
        if (i == 10) before = resident_bytes();
        run_thread(set_one_key, make_value(3, 1));
    }
    CHECK_RESIDENT(before, MIB(16));
}

static void free_at_cancellation(void *block) { hak_free(block); }

/* Of a thread that is cancelled in its pause ThreadSanitizer believes that it is still there, and follows its atomics no more. */
static void wait_for_cancellation(void) {
#ifdef CHECK_TSAN
    pthread_testcancel();
    sched_yield();
#else
    pause();
#endif
}

static void *wait_to_be_cancelled(void *barrier) {
    void *block = hak_malloc(5000);
    pthread_cleanup_push(free_at_cancellation, block);
    pthread_barrier_wait(barrier);
    for (;;) wait_for_cancellation();
    pthread_cleanup_pop(1);
    return NULL;
}

TEST(cancelled_threads_leave_memory_sound) {
    for (size_t i = 0; i < check_count(500); i++) {
        pthread_t thread;
        pthread_barrier_t barrier;
        CHECK_EQ(pthread_barrier_init(&barrier, NULL, 2), 0);
        CHECK_EQ(pthread_create(&thread, NULL, wait_to_be_cancelled, &barrier), 0);
        pthread_barrier_wait(&barrier);
        CHECK_EQ(pthread_cancel(thread), 0);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&barrier);
    }
}

/* The stack is larger than the address space, so the thread cannot be made. */
TEST(threads_that_cannot_start_leave_memory_sound) {
    pthread_attr_t attributes;
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    if (pthread_attr_setstacksize(&attributes, (size_t)1 << 50) != 0) SKIP("no such stack size");
    for (size_t i = 0; i < check_count(300); i++) {
        pthread_t thread;
        void *block = hak_malloc(i * 100);
        block_fill(block, i * 100, i);
        CHECK(pthread_create(&thread, &attributes, fill_and_free, NULL) != 0);
        CHECK(block_holds(block, i * 100, i));
        hak_free(block);
    }
    pthread_attr_destroy(&attributes);
    run_thread(fill_and_free, NULL);
}
