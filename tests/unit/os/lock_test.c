/* lock_test.c - mutual exclusion, and no wake-up lost.
 *
 * Planted defects it was seen to catch:
 *   a waiter sleeps on state 1                   a_sleeper_is_woken: watchdog
 *   drop never wakes                             a_sleeper_is_woken: watchdog
 *   try always succeeds                          a_held_lock_cannot_be_had
 *   the wait changes errno                       a_sleeper_is_woken
 *   a passed lock is not let go                  a_passed_lock_goes_to_the_sleeper: watchdog
 */
#include "blocks.h"
#include "os/os.h"

#include <sched.h>

enum { THREADS = 4 };

static struct os_lock lock;
static uint64_t counter; /* guarded by lock, and by nothing else: TSan sees to it */
static atomic_int inside;

static void run_threads(void *(*body)(void *)) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, body, NULL), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static uint32_t state_of(struct os_lock *which) {
    return atomic_load_explicit(&which->state, memory_order_relaxed);
}

TEST(a_held_lock_cannot_be_had) {
    struct os_lock mine = {0};
    CHECK(os_lock_try(&mine));
    CHECK(!os_lock_try(&mine));
    os_lock_drop(&mine);
    os_lock_take(&mine);
    CHECK(!os_lock_try(&mine));
    os_lock_reset(&mine);
    CHECK(os_lock_try(&mine));
    os_lock_drop(&mine);
    CHECK_EQ(state_of(&mine), 0);
}

static void *count(void *unused) {
    for (size_t i = 0; i < check_count(100000); i++) {
        if (i % 7 != 0 || !os_lock_try(&lock)) os_lock_take(&lock);
        counter++;
        os_lock_drop(&lock);
    }
    return unused;
}

TEST(counting_is_exclusive) {
    counter = 0;
    run_threads(count);
    CHECK_EQ(counter, THREADS * check_count(100000));
    CHECK_EQ(state_of(&lock), 0);
}

static void *sleep_and_count(void *unused) {
    errno = 4711;
    os_lock_take(&lock);
    counter++;
    os_lock_drop(&lock);
    CHECK_EQ(errno, 4711);
    return unused;
}

TEST(a_sleeper_is_woken) {
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        counter = 0;
        os_lock_take(&lock);
        CHECK_EQ(pthread_create(&thread, NULL, sleep_and_count, NULL), 0);
        while (state_of(&lock) != 2) sched_yield(); /* it says that it may sleep */
        for (int i = 0; i < 100; i++) sched_yield();
        CHECK_EQ(counter, 0);
        os_lock_drop(&lock);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(counter, 1);
        CHECK_EQ(state_of(&lock), 0);
    }
}

/* Until the sleeper has had it: it gets a processor sooner or later, and the holder does not let go by itself. */
TEST(a_passed_lock_goes_to_the_sleeper) {
    pthread_t thread;
    counter = 0;
    os_lock_take(&lock);
    os_lock_pass(&lock); /* nobody waits */
    CHECK_EQ(state_of(&lock), 1);
    CHECK_EQ(pthread_create(&thread, NULL, sleep_and_count, NULL), 0);
    errno = 4712;
    while (counter == 0) os_lock_pass(&lock);
    CHECK_EQ(errno, 4712);
    CHECK(!os_lock_try(&lock));
    os_lock_drop(&lock);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(counter, 1);
}

/* Held across a yield, so that the others run out of spins: every take may sleep, every drop wakes one. */
static void *crowd(void *unused) {
    for (size_t i = 0; i < check_count(2000); i++) {
        os_lock_take(&lock);
        CHECK_EQ(atomic_fetch_add(&inside, 1), 0);
        sched_yield();
        counter++;
        CHECK_EQ(atomic_fetch_sub(&inside, 1), 1);
        os_lock_drop(&lock);
    }
    return unused;
}

TEST(a_crowd_sleeps_and_wakes) {
    counter = 0;
    run_threads(crowd);
    CHECK_EQ(counter, THREADS * check_count(2000));
    CHECK_EQ(state_of(&lock), 0);
}
