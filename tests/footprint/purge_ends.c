/* purge_ends.c - forks, ends of processes and ends of threads while the purge thread lives.
 *
 * PURGE_THREAD_REFUSED=1 in the environment: the same, without waiting for one.
 */
#include "footprint.h"

#include <sys/wait.h>

#define FORKS 50
#define THREADS 200

static bool is_refused(void) { return getenv("PURGE_THREAD_REFUSED") != NULL; }

static void summon(void) {
    if (is_refused()) {
        dirty_and_free(MIB(64), MIB(1));
        return;
    }
    bool there = purge_thread() != 0;
    for (int i = 0; i < 3 && !there; i++) {
        dirty_and_free(MIB(64), MIB(1));
        there = wait_for_purge_thread(true, 4000);
    }
    CHECK(there);
}

static int wait_for_end(pid_t child, uint64_t milliseconds) {
    int status = -1;
    for (uint64_t end = now_ms() + milliseconds; now_ms() < end; sleep_ms(1)) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) return status;
        CHECK(ended == 0);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    check_say("FAIL %s: a child hangs", check_now.name);
    check_leave(CHECK_FAILED);
}

/* Blocks that only the child has, and then has not. */
static void work_in_child(uint64_t seed, bool and_wait) {
    struct rng rng = {seed};
    alarm(40);
    CHECK_EQ(look_at_threads().count, 1);
    struct table table = table_map(table_room(MIB(96)), seed);
    size_t start = rss_bytes(), bytes = and_wait ? MIB(96) : MIB(16);
    table_allocate(&table, bytes, &rng, false);
    table_verify(&table);
    table_shuffle(&table, &rng);
    table_free_all_but(&table, 0);
    if (!and_wait || is_refused()) return;
    CHECK(wait_for_rss(start + MIB(8), IDLE_MILLISECONDS) <= start + MIB(8));
    CHECK(wait_for_purge_thread(false, 5000));
}

/* Catches: a lock or a "thread is running" mark held by the purge thread at fork, which a child inherits
 * for ever; and pages of the parent given back in the child's name. */
TEST(fork_while_it_lives) {
    struct rng rng = {7};
    pid_t waiting[FORKS / 10];
    struct table table = table_map(table_room(MIB(16)), 3);
    table_allocate(&table, MIB(16), &rng, true);
    for (size_t i = 0; i < FORKS; i++) {
        bool is_long = i % 10 == 9;
        summon();
        if (i % 2) sleep_ms(rng_below(&rng, 20)); /* at every moment of its work */
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            table_verify(&table);
            work_in_child(i, is_long);
            table_verify(&table);
            table_free_all_but(&table, 0);
            _exit(0);
        }
        if (is_long)
            waiting[i / 10] = child;
        else
            CHECK_EQ(wait_for_end(child, 20000), 0);
        table_verify(&table);
    }
    for (size_t i = 0; i < FORKS / 10; i++) CHECK_EQ(wait_for_end(waiting[i], 40000), 0);
    table_free_all_but(&table, 0);
}

static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

/* Ends in the given way with memory left to return, at different moments of its return. */
static void end_at_every_moment(void (*end)(void), size_t times) {
    struct rng rng = {9};
    for (size_t i = 0; i < times; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(40);
            summon();
            if (i % 3 == 1) {
                pthread_t thread;
                CHECK_EQ(pthread_create(&thread, NULL, wait_for_ever, NULL), 0);
            }
            sleep_ms(rng_below(&rng, 30));
            dirty_and_free(MIB(8), MIB(1));
            end();
        }
        CHECK_EQ(wait_for_end(child, 10000), 0);
    }
}

static void leave(void) { exit(0); }
static void leave_at_once(void) { _exit(0); }

static void leave_by_exec(void) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
}

static void *leave_from_here(void *unused) {
    dirty_and_free(MIB(64), MIB(2));
    exit(0);
    return unused;
}

static void leave_from_a_thread(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, leave_from_here, NULL), 0);
    for (;;) pause();
}

/* Catches: a library destructor that joins a thread which waits for a lock of the one that exits. */
TEST(exit_while_it_lives) { end_at_every_moment(leave, 30); }
TEST(exit_at_once_while_it_lives) { end_at_every_moment(leave_at_once, 30); }
TEST(exec_while_it_lives) { end_at_every_moment(leave_by_exec, 10); }
TEST(exit_of_a_thread_while_it_lives) { end_at_every_moment(leave_from_a_thread, 30); }

enum { HANDLED = 7 };

/* An exit handler as others are: it wants some stack, and is ended by signals. */
static void handle_exit(void) {
    volatile char stack[KIB(512)];
    sigset_t blocked;
    for (size_t at = 0; at < sizeof stack; at += 512) stack[at] = 1;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    for (int number = 1; number < 32; number++)
        if (sigismember(&blocked, number) == 1) _exit(number);
    _exit(HANDLED);
}

static void expect_an_end(void (*end)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(40);
        CHECK_EQ(atexit(handle_exit), 0);
        end();
        pthread_exit(NULL);
    }
    int status = wait_for_end(child, 30000); /* a tick of the purge thread is at most 410 ms; one that stays does for a minute */
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), HANDLED);
}

static void end_beside_it(void) {
    dirty_and_free(MIB(64), MIB(1));
    CHECK(wait_for_purge_thread(true, 2000));
}

static void *end_after_main(void *unused) {
    sleep_ms(50);
    end_beside_it();
    return unused;
}

static void leave_a_detached_thread(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, end_after_main, NULL), 0);
    CHECK_EQ(pthread_detach(thread), 0);
}

/* Freed, but kept by this thread until it ends: then it is worth a thread. */
static void end_with_much_kept(void) { dirty_and_free(MIB(60), KIB(8)); }

/* Catches: a purge thread that keeps a process whose own threads have all ended, holds signals off then, or has no room for exit
 * handlers, which libc calls in the last thread there is. */
TEST(main_ends_by_pthread_exit) { expect_an_end(end_beside_it); }
TEST(a_detached_thread_ends_last) { expect_an_end(leave_a_detached_thread); }
TEST(the_last_thread_ends_with_much) { expect_an_end(end_with_much_kept); }

static volatile size_t ended;

static void *free_and_end(void *argument) {
    size_t number = (size_t)(uintptr_t)argument;
    struct rng rng = {number * 1000};
    void *blocks[16];
    for (size_t i = 0; i < 16; i++) {
        size_t size = rng_log(&rng, KIB(16), MIB(4));
        CHECK((blocks[i] = malloc(size)) != NULL);
        memset(blocks[i], (int)i, size);
    }
    for (size_t i = 0; i < 16; i++) free(blocks[i]);
    __atomic_fetch_add(&ended, 1, __ATOMIC_RELEASE);
    if (number % 2) pthread_exit(NULL);
    return NULL;
}

/* Catches: a thread exit and a purge thread's start or end that wait for each other's lock; a purge thread
 * that uses the heap of a thread which has ended. Every second round waits until it has ended too. */
TEST(threads_free_and_end) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, KIB(256));
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        while (i - __atomic_load_n(&ended, __ATOMIC_ACQUIRE) > 7) sleep_ms(1);
        CHECK_EQ(pthread_create(&thread, i % 4 ? &detached : NULL, free_and_end, (void *)(uintptr_t)i), 0);
        if (i % 4 == 0) CHECK_EQ(pthread_join(thread, NULL), 0);
        if (i % 50 == 49) wait_for_purge_thread(false, 6000);
    }
    pthread_attr_destroy(&detached);
    for (uint64_t end = now_ms() + 20000; __atomic_load_n(&ended, __ATOMIC_ACQUIRE) < THREADS; sleep_ms(1))
        CHECK(now_ms() < end);
    CHECK(wait_for_purge_thread(false, 15000));
    for (uint64_t end = now_ms() + 5000; look_at_threads().count > 1; sleep_ms(1)) CHECK(now_ms() < end);
}
