/* cancellation.c - threads that are cancelled while they allocate.
 *
 * malloc and its family are no cancellation points (POSIX lists those that are): a thread with a cancellation pending
 * goes through any of them, also where memory is mapped, given back, or a thread is started for that. A thread that may
 * be cancelled asynchronously must not call malloc at all (POSIX allows it three functions): only that it may own
 * blocks is tested.
 *
 * Planted defects it was seen to catch: giving memory back is a cancellation point (no_call_is_a_cancellation_point); so
 * is a lock that somebody waits for (deferred: by the watchdog), or the line about a failure (nor_is_one_that_fails_with_a_line),
 * or a file that is read or written (nor_is_a_report_or_the_line_about_a_pointer).
 */
#include "child.h"
#include "work.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>

static atomic_size_t reached;

static void *work_while_cancelled(void *unused) {
    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    CHECK_EQ(work(1, 10000), 0);
    work_leave_dirty(64, MIB(1)); /* a purge thread is started here */
    work_leave_dirty(20000, 500);
    work_give_back();
    void *huge = malloc(GIB(2));
    free(huge);
    CHECK_EQ(work(2, 3000), 0);
    atomic_fetch_add(&reached, 1);
    pthread_testcancel();
    CHECK(false);
    return unused;
}

static void must_be_cancelled(pthread_t thread) {
    void *result = NULL;
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
}

TEST(no_call_is_a_cancellation_point) {
    for (size_t i = 0; i < 3; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, work_while_cancelled, NULL), 0);
        must_be_cancelled(thread);
        CHECK_EQ(atomic_load(&reached), i + 1);
    }
}

/* Without it nothing is traced, and little tested. */
extern int hak_option_set(const char *name, const char *value) __attribute__((weak));

static void *fail_while_cancelled(void *unused) {
    static volatile size_t too_many = SIZE_MAX / 2 + 1;
    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    CHECK(malloc(too_many) == NULL);
    atomic_fetch_add(&reached, 1);
    pthread_testcancel();
    return unused;
}

static void fail_with_a_line(void) {
    pthread_t thread;
    int file = open("/dev/null", O_WRONLY);
    CHECK_EQ(dup2(file, STDERR_FILENO), STDERR_FILENO);
    if (hak_option_set) CHECK_EQ(hak_option_set("trace_failures", "on"), 0);
    atomic_store(&reached, 0);
    CHECK_EQ(pthread_create(&thread, NULL, fail_while_cancelled, NULL), 0);
    must_be_cancelled(thread);
    CHECK_EQ(atomic_load(&reached), 1);
}

TEST(nor_is_one_that_fails_with_a_line) { IN_CHILD(fail_with_a_line); }

static char report_path[] = "/tmp/hakmem-cancelled-XXXXXX";

/* The handler of a signal that has statistics written may interrupt any malloc; free of what is no block looks into a file, too. */
static void *speak_while_cancelled(void *unused) {
    static char no_block[64];
    char *volatile pointer = no_block + 16;
    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    raise(SIGUSR2);
    free(pointer);
    atomic_fetch_add(&reached, 1);
    pthread_testcancel();
    return unused;
}

HELPER(speak) {
    pthread_t thread;
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    atomic_store(&reached, 0);
    CHECK_EQ(pthread_create(&thread, NULL, speak_while_cancelled, NULL), 0);
    must_be_cancelled(thread);
    CHECK_EQ(atomic_load(&reached), 1);
}

static void become_one_that_speaks(void) {
    char number[12];
    int file = open("/dev/null", O_WRONLY);
    CHECK_EQ(dup2(file, STDERR_FILENO), STDERR_FILENO);
    snprintf(number, sizeof number, "%d", SIGUSR2);
    setenv("HAKMEM_STATS", "text", 1);
    setenv("HAKMEM_STATS_FILE", report_path, 1);
    setenv("HAKMEM_STATS_SIGNAL", number, 1);
    setenv("HAKMEM_FOREIGN_FREE", "count", 1);
    become_helper("speak");
}

TEST(nor_is_a_report_or_the_line_about_a_pointer) {
    if (!is_hakmem_expected()) OMIT("needs hakmem");
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    int file = mkstemp(report_path);
    CHECK(file >= 0);
    IN_CHILD(become_one_that_speaks);
    CHECK(lseek(file, 0, SEEK_END) == 0); /* a new one took its place */
    close(file);
    CHECK_EQ(unlink(report_path), 0);
}

struct held {
    struct work_slot slots[20];
};

static void free_held(void *argument) {
    struct held *held = argument;
    for (size_t i = 0; i < 20; i++) work_free(&held->slots[i]);
}

static void hold(struct work_slot *slot, struct rng *rng) {
    size_t size = rng_size(rng, 200);
    work_free(slot);
    CHECK(work_allocate(slot, rng, size));
    slot->bytes = malloc_usable_size(slot->block);
    block_fill(slot->block, slot->bytes, block_key(slot->block, slot->bytes));
}

static void *work_until_cancelled(void *argument) {
    struct held held = {{{NULL, 0}}};
    struct rng rng = {(uintptr_t)argument};
    pthread_cleanup_push(free_held, &held);
    atomic_fetch_add(&reached, 1);
    while (true) {
        hold(&held.slots[rng_below(&rng, 20)], &rng);
        pthread_testcancel();
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* Four at a time, each at another moment; what they leave is used by the next. */
TEST(deferred) {
    size_t before = 0;
    for (size_t round = 0; round < 60; round++) {
        pthread_t threads[4];
        atomic_store(&reached, 0);
        for (size_t i = 0; i < 4; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, work_until_cancelled, (void *)(round * 4 + i)), 0);
        while (atomic_load(&reached) < 4) sched_yield();
        for (size_t i = 0; i < 4; i++) {
            CHECK_EQ(pthread_cancel(threads[i]), 0);
            CHECK_EQ(work(round, 50), 0);
        }
        for (size_t i = 0; i < 4; i++) must_be_cancelled(threads[i]);
        if (round == 10) before = resident_bytes();
    }
    CHECK_RESIDENT(before, MIB(48));
}

static void *compute_until_cancelled(void *argument) {
    struct held held = {{{NULL, 0}}};
    struct rng rng = {(uintptr_t)argument};
    pthread_cleanup_push(free_held, &held);
    for (size_t i = 0; i < 20; i++) hold(&held.slots[i], &rng);
    atomic_fetch_add(&reached, 1);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (volatile size_t number = 0;; number++) continue;
    pthread_cleanup_pop(1);
    return NULL;
}

TEST(asynchronous_while_it_owns_blocks) {
    size_t before = 0;
    for (size_t round = 0; round < 100; round++) {
        pthread_t thread;
        atomic_store(&reached, 0);
        CHECK_EQ(pthread_create(&thread, NULL, compute_until_cancelled, (void *)round), 0);
        while (atomic_load(&reached) == 0) sched_yield();
        CHECK_EQ(pthread_cancel(thread), 0);
        must_be_cancelled(thread);
        if (round == 20) before = resident_bytes();
    }
    CHECK_RESIDENT(before, MIB(48));
}
