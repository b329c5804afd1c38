/* purger_test.c - when the thread that gives memory back is started, when it ends, and when there is none. In children:
 * what was started or refused stays in the process.
 *
 * Planted defects it was seen to catch:
 *   it goes while much is dirty                 it_does_not_come_and_go
 *   it wakes for nothing                        it_sleeps_while_nothing_is_due
 *   it goes on at once where it cannot sleep    it_ends_where_it_cannot_sleep
 *   the mark of a single thread is a lower one   a_single_thread_with_little_stays_alone
 *   it stays though everybody has ended          it_does_not_outlive_everybody
 *   it is started by the last that ends          nobody_starts_one_at_last
 *   it is started in a child that shares the memory   a_vfork_child_starts_none
 */
#include "ace/decay.h"
#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/purger.h"
#include "heap/registry.h"
#include "heap/thread.h"

#include <sched.h>

/* With the long one nothing is due within a test, however late its threads run: the purge thread lives. */
enum { HALF_LIFE_MS = 50, SHORT_HALF_LIFE_MS = 10, LONG_HALF_LIFE_MS = 60 * 1000, ENOUGH_MS = 20000 };

static uint64_t now_ms(void) { return os_clock_ms(); }

static void set_half_life(uint64_t half_life_ms) {
    span_configure(&(struct span_settings){.decay_half_life_ms = half_life_ms, .huge_from_pages = UINT64_MAX});
}

/* As a program would be configured that starts now. */
static void configure(uint64_t half_life_ms, bool allowed) {
    set_half_life(half_life_ms);
    purger_configure(half_life_ms, allowed);
    purger_start();
    heap_free(heap_alloc(100, NULL), NULL);
    footprint_settled(footprint_in_use());
}

/* BYTES are used, and then not; CALLER frees them. */
static void make_garbage(size_t bytes, const void *caller) {
    char *block = heap_alloc(bytes, NULL);
    CHECK(block != NULL);
    for (size_t at = 0; at < bytes; at += 4096) block[at] = 'x';
    heap_free(block, caller);
}

/* As many slow paths as a look takes, of blocks that no thread keeps and that hardly use memory. */
static void look(const void *caller) {
    for (int i = 0; i < TICKS_PER_LOOK; i++) {
        void *block = heap_alloc_aligned(1, 2 * PAGE_BYTES);
        CHECK(block != NULL);
        heap_free(block, caller);
    }
}

static bool ends_soon(void) {
    for (uint64_t start = now_ms(); now_ms() - start < ENOUGH_MS;) {
        if (!purger_is_running()) return true;
        os_sleep_ms(5);
    }
    return false;
}

/* Another thread that has a heap and does nothing. */
static atomic_int others, end_others;

static void *be_there(void *unused) {
    heap_free(heap_alloc(100, NULL), NULL);
    atomic_fetch_add(&others, 1);
    while (!atomic_load(&end_others)) os_sleep_ms(5);
    return unused;
}

static pthread_t start_other(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, be_there, NULL), 0);
    while (atomic_load(&others) == 0) sched_yield();
    CHECK_EQ(registry_live(), 2);
    return thread;
}

/* ---- alone -------------------------------------------------------------------------------------------------- */

/* What is in use swings, while much is free in places where the swing does not fit: the thread stays. */
static void alone_with_swings(void) {
    enum { BLOCKS = 64 };
    static void *blocks[BLOCKS];
    configure(LONG_HALF_LIFE_MS, true);
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = heap_alloc(MIB(2), NULL)) != NULL);
    for (int i = 0; i < BLOCKS; i += 2) heap_free(blocks[i], NULL);
    for (int i = 0; i < 10; i++) {
        void *swing = heap_alloc(MIB(100), NULL);
        CHECK(swing != NULL);
        os_sleep_ms(120);
        heap_free(swing, NULL);
        look(NULL);
    }
    CHECK_AT(purger_starts() == 1, purger_starts());
}

TEST(it_does_not_come_and_go) { IN_CHILD(alone_with_swings); }

static void alone_with_little(void) {
    configure(HALF_LIFE_MS, true);
    for (int i = 0; i < 5; i++) {
        make_garbage(MIB(20), NULL);
        CHECK(footprint_returnable() < MIB(32));
        look(NULL);
        os_sleep_ms(60);
        look(NULL);
        CHECK_EQ(purger_starts(), 0);
    }
    CHECK(!purger_is_running());
}

TEST(a_single_thread_with_little_stays_alone) { IN_CHILD(alone_with_little); }

static void alone_with_much(void) {
    configure(HALF_LIFE_MS, true);
    make_garbage(MIB(64), NULL);
    look(NULL);
    CHECK_EQ(purger_starts(), 1);
    uint64_t returned = atomic_load(&os_counters.purged_bytes);
    CHECK(ends_soon()); /* this thread sleeps all the time */
    CHECK(atomic_load(&os_counters.purged_bytes) - returned >= MIB(30) || returned >= MIB(30));
    CHECK(footprint_returnable() < MIB(32));
    CHECK_EQ(purger_starts(), 1);
    make_garbage(MIB(64), NULL); /* and once more */
    look(NULL);
    CHECK_EQ(purger_starts(), 2);
    CHECK(ends_soon());
}

TEST(it_is_started_for_much_and_ends) { IN_CHILD(alone_with_much); }

/* Nothing is due for long: it sleeps as long. */
static void alone_with_patience(void) {
    configure(5000, true);
    make_garbage(MIB(64), NULL);
    look(NULL);
    const unsigned long before = fail_counted(FAIL_NANOSLEEP);
    const uint64_t start = now_ms();
    usleep(1200 * 1000);
    const uint64_t passed = now_ms() - start; /* longer on a busy machine */
    CHECK(purger_is_running());
    CHECK_AT(fail_counted(FAIL_NANOSLEEP) - before <= passed / 400 + 3, fail_counted(FAIL_NANOSLEEP) - before);
}

TEST(it_sleeps_while_nothing_is_due) { IN_CHILD(alone_with_patience); }

/* It would run all the time. What is free all the same goes when the program comes back from a sleep. */
static void alone_without_sleep(void) {
    configure(HALF_LIFE_MS, true);
    fail_arm(FAIL_NANOSLEEP, 1, true, EPERM);
    make_garbage(MIB(64), NULL);
    look(NULL);
    CHECK_EQ(purger_starts(), 1);
    for (int i = 0; i < 400 && purger_is_running(); i++) usleep(5 * 1000);
    CHECK(!purger_is_running());
    CHECK_EQ(fail_counted(FAIL_NANOSLEEP), 1);
    usleep(1500 * 1000);
    look(NULL);
    CHECK(footprint_returnable() < MIB(32));
    CHECK_EQ(purger_starts(), 1); /* nor later */
    fail_disarm();
}

TEST(it_ends_where_it_cannot_sleep) { IN_CHILD(alone_without_sleep); }

/* ---- with others ---------------------------------------------------------------------------------------------- */

static void with_others(void) {
    configure(HALF_LIFE_MS, true);
    pthread_t other = start_other();
    footprint_settled(footprint_in_use());
    make_garbage(KIB(800), NULL);
    look(NULL);
    CHECK_EQ(purger_starts(), 0); /* that is nothing to anybody */
    make_garbage(MIB(20), NULL);
    look(NULL);
    CHECK_EQ(purger_starts(), 1);
    CHECK_EQ(registry_live(), 2); /* it has no heap */
    CHECK(ends_soon());
    struct span_counts counts;
    span_counts_read(&counts);
    CHECK_EQ(span_dirty_left(), 0);
    CHECK(counts.returned_pages >= MIB(15) / PAGE_BYTES);
    atomic_store(&end_others, 1);
    CHECK_EQ(pthread_join(other, NULL), 0);
}

TEST(among_threads_little_is_enough) { IN_CHILD(with_others); }

/* While there is work, one thread does it. */
static void only_one(void) {
    configure(LONG_HALF_LIFE_MS, true);
    pthread_t other = start_other();
    for (int i = 0; i < 30; i++) {
        make_garbage(MIB(40), NULL);
        look(NULL);
        CHECK(purger_is_running());
        os_sleep_ms(10);
    }
    CHECK_EQ(purger_starts(), 1);
    set_half_life(HALF_LIFE_MS);
    atomic_store(&end_others, 1);
    CHECK_EQ(pthread_join(other, NULL), 0);
    CHECK(ends_soon());
}

TEST(there_is_one_at_a_time) { IN_CHILD(only_one); }

/* ---- at the end of a process ------------------------------------------------------------------------------------ */

/* A thread that has used no memory, as far as hakmem knows: whoever else there was has ended. */
static void *(*observe)(void *);

static void *wait_for_everybody(void *unused) {
    thread_forgo_heap();
    while (registry_live() != 0) os_sleep_ms(1);
    return observe(unused);
}

static void start_observer(void *(*body)(void *)) {
    pthread_t thread;
    observe = body;
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_everybody, NULL), 0);
}

/* It may have begun one more sleep: counted, since on a busy machine any of them takes long. This thread sleeps by another call. */
static void *see_it_end(void *unused) {
    const uint64_t start = now_ms();
    const unsigned long sleeps = fail_counted(FAIL_NANOSLEEP);
    while (purger_is_running() && now_ms() - start < ENOUGH_MS) usleep(5000);
    CHECK(!purger_is_running());
    CHECK_AT(fail_counted(FAIL_NANOSLEEP) - sleeps <= 1, fail_counted(FAIL_NANOSLEEP) - sleeps);
    CHECK_EQ(span_dirty_left(), 0);
    _exit(0);
    return unused;
}

/* Though nothing is due for a minute. */
static void end_beside_it(void) {
    configure(LONG_HALF_LIFE_MS, true);
    make_garbage(MIB(64), NULL);
    look(NULL);
    CHECK(purger_is_running());
    start_observer(see_it_end);
    pthread_exit(NULL);
}

TEST(it_does_not_outlive_everybody) { IN_CHILD(end_beside_it); }

static void *see_none(void *unused) {
    const uint64_t start = now_ms();
    while (atomic_load(&os_counters.purged_bytes) < MIB(60)) {
        CHECK_AT(now_ms() - start < ENOUGH_MS, atomic_load(&os_counters.purged_bytes));
        os_sleep_ms(1);
    }
    CHECK_EQ(purger_starts(), 0); /* it would keep the process */
    _exit(0);
    return unused;
}

/* What it leaves is worth a thread, which is not yet there: it freed as libc does. */
static void *end_as_the_last(void *unused) {
    heap_free(heap_alloc(100, NULL), NULL);
    while (registry_live() != 1) os_sleep_ms(1);
    make_garbage(MIB(64), (const void *)(uintptr_t)&pthread_create);
    CHECK_EQ(purger_starts(), 0);
    CHECK(footprint_returnable() >= MIB(32));
    return unused;
}

static void end_before_the_last(void) {
    pthread_t thread;
    configure(LONG_HALF_LIFE_MS, true);
    CHECK_EQ(pthread_create(&thread, NULL, end_as_the_last, NULL), 0);
    CHECK_EQ(pthread_detach(thread), 0); /* or ThreadSanitizer misses who joins it */
    while (registry_live() != 2) os_sleep_ms(1);
    start_observer(see_none);
    pthread_exit(NULL);
}

TEST(nobody_starts_one_at_last) { IN_CHILD(end_before_the_last); }

/* ---- when there is none ------------------------------------------------------------------------------------------ */

/* A free that libc calls starts nothing, whatever there is to give back; the next of the program's own does. */
static void free_by_libc(void) {
    static void *blocks[64];
    const void *libc = (const void *)(uintptr_t)&pthread_create; /* what the library takes for libc's */
    CHECK(os_is_libc(libc) && !os_is_libc_alone(libc) && !os_is_libc(thread_heap())); /* it is this program, too */
    configure(HALF_LIFE_MS, true);
    for (int i = 0; i < 64; i++) blocks[i] = heap_alloc(MIB(1), NULL);
    footprint_add((int64_t)MIB(200));
    footprint_add(-(int64_t)MIB(200));
    for (int i = 0; i < 63; i++) heap_free(blocks[i], libc);
    CHECK(footprint_returnable() >= MIB(200));
    CHECK_EQ(purger_starts(), 0);
    look(thread_heap());
    CHECK_EQ(purger_starts(), 1);
    CHECK(ends_soon());
}

TEST(not_from_a_free_that_libc_calls) { IN_CHILD(free_by_libc); }

static void never_or_not_allowed(void) {
    for (int never = 0; never < 2; never++) {
        configure(never ? ACE_NEVER : SHORT_HALF_LIFE_MS, never);
        uint64_t returned = atomic_load(&os_counters.purged_bytes);
        make_garbage(MIB(64), NULL);
        for (int i = 0; i < 20; i++) {
            look(NULL);
            os_sleep_ms(55);
            look(NULL);
        }
        CHECK_EQ(purger_starts(), 0);
        /* Without a thread in passing; with never not at all. */
        CHECK_EQ(atomic_load(&os_counters.purged_bytes) > returned, !never);
    }
}

TEST(off_is_off) { IN_CHILD(never_or_not_allowed); }

/* A refusal is not asked for again at once; until then it goes in passing. */
static void refused(void) {
    configure(SHORT_HALF_LIFE_MS, true);
    fail_arm(FAIL_PTHREAD_CREATE, 1, true, EAGAIN);
    uint64_t returned = atomic_load(&os_counters.purged_bytes);
    make_garbage(MIB(64), NULL);
    for (int i = 0; i < 20; i++) {
        look(NULL);
        CHECK(!purger_is_running());
        os_sleep_ms(55);
    }
    CHECK(fail_counted(FAIL_PTHREAD_CREATE) <= 2); /* one with a small stack, one without */
    fail_disarm();
    CHECK_EQ(purger_starts(), 0);
    CHECK(atomic_load(&os_counters.purged_bytes) > returned);
    CHECK_EQ(atomic_load(&os_counters.refusals[OS_CALL_THREAD]), 1);
}

TEST(a_refusal_is_remembered_for_a_while) { IN_CHILD(refused); }

/* ---- fork --------------------------------------------------------------------------------------------------------- */

static void start_own(void) {
    CHECK(!purger_is_running()); /* that thread is not here */
    uint64_t starts = purger_starts();
    make_garbage(MIB(64), NULL);
    look(NULL);
    CHECK_EQ(purger_starts(), starts + 1);
    CHECK(purger_is_running());
    set_half_life(HALF_LIFE_MS);
    CHECK(ends_soon());
}

static void look_only(void) {
    CHECK(!purger_is_running());
    look(NULL);
}

static void fork_while_it_runs(void) {
    configure(LONG_HALF_LIFE_MS, true);
    make_garbage(MIB(64), NULL);
    look(NULL);
    CHECK(purger_is_running());
    for (int i = 0; i < 20; i++) {
        CHECK_EQ(child_status(i == 0 ? start_own : look_only, CHILD_SECONDS), 0);
        os_sleep_ms(3);
    }
}

TEST(a_child_starts_its_own) {
#ifdef CHECK_TSAN
    OMIT("ThreadSanitizer lets no child of a process with threads start some");
#endif
    IN_CHILD(fork_while_it_runs);
}

/* It shares the memory, and a thread would end with it. */
static HAK_NOINLINE pid_t free_in_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        make_garbage(MIB(64), NULL);
        look(NULL);
        _exit(0);
    }
    return child;
}

static void vfork_before_it_runs(void) {
    configure(LONG_HALF_LIFE_MS, true);
    CHECK_EQ(child_status_now(free_in_vfork()), 0);
    CHECK(footprint_returnable() >= MIB(32));
    CHECK(!purger_is_running());
    CHECK_EQ(purger_starts(), 0);
    look(NULL);
    CHECK_EQ(purger_starts(), 1); /* the parent's own */
    set_half_life(HALF_LIFE_MS);
    CHECK(ends_soon());
}

TEST(a_vfork_child_starts_none) {
#ifdef CHECK_TSAN
    OMIT("ThreadSanitizer takes vfork for fork");
#endif
    IN_CHILD(vfork_before_it_runs);
}
