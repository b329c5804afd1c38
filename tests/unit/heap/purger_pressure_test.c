/* purger_pressure_test.c - what the purge thread does as memory gets short in the control group: in children whose root is a
 * folder of the test's, so that the group's files are its own.
 *
 * Planted defects it was seen to catch:
 *   pressure hastens nothing                     all_that_is_free_goes_back_under_pressure
 *   the option does not reach the thread, or is ignored by it   all_that_is_free_goes_back_under_pressure
 *   beside one thread files are opened again and again   all_that_is_free_goes_back_under_pressure
 *   what is read in between is forgotten         all_that_is_free_goes_back_under_pressure
 *   it is purged each second, however long that takes   what_took_long_comes_rarely
 *   a fork comes while a file is read            children_have_no_file_that_was_being_read
 */
#include "../../clock.h" /* first: it says _GNU_SOURCE */

#include "blocks.h"
#include "group_root.h"
#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/pressure.h"
#include "heap/purger.h"
#include "watch/decisions.h"

#include <hakmem/hakmem.h>
#include <pthread.h>
#include <semaphore.h>

enum { BETWEEN_LOOKS_MS = 1000, BETWEEN_FULL_LOOKS_MS = 30 * BETWEEN_LOOKS_MS, FEW_TRIES = 100, ENOUGH_TRIES = 2000 };

/* BYTES are used and then not, and as many slow paths follow as a look takes. */
static void make_garbage(size_t bytes) {
    char *block = heap_alloc(bytes, NULL);
    CHECK(block != NULL);
    for (size_t at = 0; at < bytes; at += 4096) block[at] = 'x';
    heap_free(block, NULL);
    for (int i = 0; i < 2 * TICKS_PER_LOOK; i++) {
        CHECK((block = heap_alloc_aligned(1, 2 * PAGE_BYTES)) != NULL);
        heap_free(block, NULL);
    }
}

/* Until the thread has looked at the group and told REASON. */
static void await(enum ace_reason reason) {
    uint64_t before = counter_read(&decision_counts[reason]);
    for (int tries = 0; atomic_load_explicit(&decision_counts[reason], memory_order_acquire) == before; tries++) {
        CHECK_AT(tries < ENOUGH_TRIES, reason);
        make_garbage(MIB(64));
        clock_pass(BETWEEN_LOOKS_MS);
        os_sleep_ms(10);
    }
    struct decision decision = {0};
    for (uint64_t i = decisions_made(); decision.reason != reason; i--) {
        CHECK_AT(i != 0, reason);
        if (!decision_read(i, &decision)) decision.reason = ACE_REASON_COUNT; /* it is being written */
    }
    if (reason == ACE_REASON_NEAR_LIMIT) CHECK(decision.input0 == 990000000 && decision.input1 == 1000000000);
    if (reason == ACE_REASON_NEAR_HIGH) CHECK(decision.input0 == 500000000 && decision.input1 == 500000001);
    if (reason == ACE_REASON_STALLS) CHECK_EQ(decision.input0, 5555);
}

/* The half-life is longer than the time that passes here. */
static bool goes_back(int most_tries) {
    for (int tries = 0; footprint_returnable() >= MIB(1) && tries < most_tries; tries++) {
        clock_pass(BETWEEN_LOOKS_MS);
        os_sleep_ms(10);
    }
    return footprint_returnable() < MIB(1);
}

/* A thread that has used memory. */
static void *live(void *release) {
    hak_free(hak_malloc(1));
    sem_post(&((sem_t *)release)[0]);
    while (sem_wait(&((sem_t *)release)[1]) != 0) continue;
    return NULL;
}

/* Limits that appear are then looked for now and then. */
static void be_two(void) {
    static sem_t sems[2]; /* it lives; it may end */
    pthread_t thread;
    CHECK(sem_init(&sems[0], 0, 0) == 0 && sem_init(&sems[1], 0, 0) == 0);
    CHECK_EQ(pthread_create(&thread, NULL, live, sems), 0);
    while (sem_wait(&sems[0]) != 0) continue;
}

static void set(const char *option, const char *value) { CHECK_EQ(hak_option_set(option, value), 0); }

static void live_under_pressure(void) {
    if (!enter_root()) SKIP("this user may not have a root of its own");
    hak_free(hak_malloc(1)); /* what is decided is written down from the start on */
    set("decay", "60min");
    set("huge_pages", "never");
    set("purge_thread", "on");
    set("pressure", "off");
    purger_start();
    put_group("1000000000", "max", "990000000", "0.00");
    make_garbage(MIB(192)); /* more than the others take: the purge thread never finds too little to stay for */
    CHECK(!goes_back(FEW_TRIES) && purger_is_running()); /* nobody asks */
    CHECK_EQ(counter_read(&decision_counts[ACE_REASON_NEAR_LIMIT]), 0);
    put_group("max", "max", "1000", "0.00");
    set("pressure", "on");
    make_garbage(MIB(64));
    CHECK(!goes_back(FEW_TRIES)); /* by itself it takes its time */
    put_group("1000000000", "max", "990000000", "0.00");
    make_garbage(MIB(64));
    CHECK(!goes_back(FEW_TRIES) && purger_is_running()); /* alone it has looked once */
    be_two();
    clock_pass(BETWEEN_FULL_LOOKS_MS);
    await(ACE_REASON_NEAR_LIMIT);
    CHECK(goes_back(ENOUGH_TRIES));
    put_group("1000000000", "max", "10000", "0.00");
    await(ACE_REASON_RELIEVED);
    clock_pass(BETWEEN_FULL_LOOKS_MS);
    put_group("max", "500000001", "500000000", "0.00");
    await(ACE_REASON_NEAR_HIGH);
    put_group("max", "max", "500000000", "55.55");
    await(ACE_REASON_STALLS);
    CHECK(goes_back(ENOUGH_TRIES));
    leave_root();
}

TEST(all_that_is_free_goes_back_under_pressure) { in_child_with_root(live_under_pressure); }

/* Where most of what is held is in use, the next purge would find as little as this one. */
static void rest_after_a_purge(void) {
    enum { LONG_MS = 2 * BETWEEN_LOOKS_MS, REST_MS = 8 * LONG_MS };
    if (!enter_root()) SKIP("this user may not have a root of its own");
    hak_free(hak_malloc(1));
    set("purge_thread", "off");
    set("pressure", "on");
    put_group("1000000000", "max", "990000000", "0.00");
    pressure_begin();
    CHECK_EQ(pressure_pace(), PURGE_ALL);
    pressure_rest(1, 0); /* as it took so long */
    clock_pass(BETWEEN_LOOKS_MS);
    CHECK_EQ(pressure_pace(), PURGE_ALL);
    pressure_rest(LONG_MS, GIB(1)); /* and was worth it */
    clock_pass(BETWEEN_LOOKS_MS);
    CHECK_EQ(pressure_pace(), PURGE_ALL);
    pressure_rest(LONG_MS, 0);
    clock_pass(REST_MS - 1);
    CHECK_EQ(pressure_pace(), PURGE_DUE);
    clock_pass(1);
    CHECK_EQ(pressure_pace(), PURGE_ALL);
    pressure_rest(UINT64_MAX, 0); /* the clock may have jumped */
    clock_pass(BETWEEN_FULL_LOOKS_MS);
    CHECK_EQ(pressure_pace(), PURGE_ALL);
    leave_root();
}

TEST(what_took_long_comes_rarely) { in_child_with_root(rest_after_a_purge); }

/* ---- fork ---------------------------------------------------------------------------------------------- */

#define MOUNTS "/proc/self/mountinfo"

static int mounts; /* a pipe in its place: who reads it waits until this end is closed */
static sem_t fork_begins;

static void note_fork(void) { sem_post(&fork_begins); }

/* Long after the fork is over, unless that waits for the reader. */
static void *let_it_read(void *unused) {
    while (sem_wait(&fork_begins) != 0) continue;
    os_sleep_ms(200);
    close(mounts);
    return unused;
}

static bool is_open(int file) { return fcntl(file, F_GETFD) >= 0; }

static void fork_while_a_file_is_read(void) {
    pthread_t thread;
    if (!enter_root()) SKIP("this user may not have a root of its own");
    hak_free(hak_malloc(1));
    set("decay", "60min");
    set("purge_thread", "on");
    set("pressure", "off");
    purger_start();
    make_garbage(MIB(64));
    CHECK(purger_is_running());
    CHECK(unlink(MOUNTS) == 0 && mkfifo(MOUNTS, 0600) == 0 && (mounts = open(MOUNTS, O_RDWR | O_CLOEXEC)) >= 0);
    const int read_as = dup(mounts); /* the lowest number that is free */
    CHECK(read_as > mounts && close(read_as) == 0 && sem_init(&fork_begins, 0, 0) == 0);
    CHECK_EQ(pthread_atfork(note_fork, NULL, NULL), 0); /* comes before that of the library */
    CHECK_EQ(pthread_create(&thread, NULL, let_it_read, NULL), 0);
    set("pressure", "on");
    clock_pass(BETWEEN_LOOKS_MS);
    for (int tries = 0; !is_open(read_as); tries++) {
        CHECK(tries < ENOUGH_TRIES);
        os_sleep_ms(10);
    }
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(is_open(read_as));
    CHECK_EQ(child_status_now(child), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    leave_root();
}
TEST(children_have_no_file_that_was_being_read) { in_child_with_root(fork_while_a_file_is_read); }
