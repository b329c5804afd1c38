/* purge_thread.c - when the thread that gives memory back exists, and that it is nobody's business.
 *
 * Every test wants a process of its own, with no history: start it with the name of one.
 * PURGE_THREAD_REFUSED=1 in the environment says that no such thread can be had here.
 */
#include "footprint.h"

#include <sched.h>
#include <sys/mman.h>

static bool is_refused(void) { return getenv("PURGE_THREAD_REFUSED") != NULL; }

/* Frees memory until the thread that gives it back is there. */
static void summon(void) {
    if (is_refused()) OMIT("there is no purge thread here");
    bool there = false;
    for (int i = 0; i < 3 && !there; i++) {
        dirty_and_free(MIB(64), MIB(1));
        there = wait_for_purge_thread(true, 4000);
    }
    CHECK(there);
}

static void stay_alone(uint64_t milliseconds) {
    for (uint64_t end = now_ms() + milliseconds; now_ms() < end; sleep_ms(1))
        CHECK_EQ(look_at_threads().count, 1);
}

/* Catches: a thread started at the first free, or at the library's start. */
TEST(never_with_little_dirty) {
    struct rng rng = {1};
    CHECK_EQ(look_at_threads().count, 1);
    for (uint64_t end = now_ms() + 2000; now_ms() < end;) {
        void *blocks[4096];
        size_t held = 0, count = 0;
        while (count < 4096 && held < MIB(7)) {
            size_t size = rng_log(&rng, 16, MIB(1));
            CHECK((blocks[count++] = malloc(size)) != NULL);
            memset(blocks[count - 1], 1, size);
            held += size;
        }
        while (count > 0) free(blocks[--count]);
        CHECK_EQ(look_at_threads().count, 1);
    }
    stay_alone(2000);
}

/* Catches: a limit that counts what was ever freed instead of what is dirty now. */
TEST(never_with_20_mib_dirty) {
    dirty_and_free(MIB(20), MIB(1));
    stay_alone(2000);
    for (int i = 0; i < 8; i++) {
        dirty_and_free(MIB(8), i % 2 ? KIB(64) : MIB(1));
        stay_alone(250);
    }
}

/* Catches: a purge thread that only a second thread of the program would start. */
TEST(exists_after_64_mib) {
    if (is_refused()) OMIT("there is no purge thread here");
    dirty_and_free(MIB(64), MIB(1));
    CHECK(wait_for_purge_thread(true, 5000));
}

/* Catches: the same for blocks of slabs; a dirty sum that knows large spans only. */
TEST(exists_after_64_mib_of_small_blocks) {
    if (is_refused()) OMIT("there is no purge thread here");
    dirty_and_free(MIB(96), 512);
    CHECK(wait_for_purge_thread(true, 5000));
}

/* Catches: a thread that stays for good, one that ends before its work is done, and one that can be
 * started only once. */
TEST(is_gone_when_nothing_is_left) {
    size_t start = rss_bytes();
    for (int round = 0; round < 2; round++) {
        uint64_t freed = now_ms();
        dirty_and_free(MIB(256), MIB(1));
        CHECK(is_refused() || wait_for_purge_thread(true, 5000));
        CHECK(wait_for_purge_thread(false, freed + 12000 - now_ms()));
        if (!is_refused()) CHECK_RESIDENT(start, MIB(8));
        stay_alone(500);
    }
}

static void *free_and_sleep(void *block) {
    free(block);
    for (;;) sleep_ms(1000);
    return NULL;
}

/* Catches: a thread's first free that nobody looks at, since the thread has no heap yet. */
TEST(a_threads_only_free_is_seen) {
    if (is_refused()) OMIT("there is no purge thread here");
    pthread_t thread;
    size_t start = rss_bytes();
    char *block = malloc(MIB(256));
    CHECK(block != NULL);
    memset(block, 1, MIB(256));
    CHECK_EQ(pthread_create(&thread, NULL, free_and_sleep, block), 0);
    CHECK(wait_for_rss(start + MIB(8), IDLE_MILLISECONDS) <= start + MIB(8));
}

/* Catches: one page that cannot go back keeping all its neighbours, and the purge thread, for ever. */
TEST(a_locked_page_keeps_little) {
    if (is_refused()) OMIT("there is no purge thread here");
    pthread_t thread; /* and so it is a process of two threads */
    CHECK_EQ(pthread_create(&thread, NULL, free_and_sleep, malloc(100)), 0);
    size_t start = rss_bytes();
    char *block = malloc(MIB(128));
    CHECK(block != NULL);
    memset(block, 1, MIB(128));
    if (mlock(block + MIB(50), 4096) != 0) SKIP("no page can be locked here");
    free(block);
    CHECK(wait_for_rss(start + MIB(8), IDLE_MILLISECONDS) <= start + MIB(8));
    CHECK(wait_for_purge_thread(false, 5000));
}

/* Catches: HAKMEM_PURGE_THREAD=off, or a refused pthread_create, that is not final; an error
 * returned or errno changed because of it. */
TEST(never_when_refused) {
    if (!is_refused()) OMIT("PURGE_THREAD_REFUSED is not set");
    for (int round = 0; round < 4; round++) {
        errno = 4321;
        dirty_and_free(MIB(256), MIB(1));
        CHECK_EQ(errno, 4321);
        stay_alone(300);
        dirty_and_free(MIB(64), 700);
        stay_alone(300);
    }
}

static volatile int handler_thread;
static volatile size_t handled;

static void record_thread(int signal_number) {
    (void)signal_number;
    handler_thread = (int)syscall(SYS_gettid);
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELEASE);
}

static void handle_user_signal(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = record_thread;
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
}

static void mask_user_signal(int how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_EQ(pthread_sigmask(how, &set, NULL), 0);
}

/* Under an open mask, so that the purge thread cannot have a closed one by inheritance. */
static void summon_unmasked(void) {
    mask_user_signal(SIG_UNBLOCK);
    summon();
    mask_user_signal(SIG_BLOCK);
}

/* Catches: a purge thread that takes signals meant for the program; also the asynchronous kinds that
 * nobody tests, since every bit of the mask is looked at. */
TEST(blocks_all_signals_that_are_sent) {
    const uint64_t of_its_own = (1ull << (SIGBUS - 1)) | (1ull << (SIGFPE - 1)) | (1ull << (SIGILL - 1)) | (1ull << (SIGSEGV - 1)) |
                                (1ull << (SIGSYS - 1)) | (1ull << (SIGTRAP - 1));
    const uint64_t never = (1ull << (SIGKILL - 1)) | (1ull << (SIGSTOP - 1)) | (3ull << 31);
    uint64_t blocked = 0;
    char path[64];
    summon();
    int thread = purge_thread();
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    CHECK(number_of(path, "SigBlk", 16, &blocked));
    CHECK_AT((blocked | never) == ~of_its_own, blocked);
}

/* With the signal blocked everywhere in the program it stays pending for sigwait, unless some thread that
 * the program does not know of takes it. */
TEST(signals_wait_for_the_program) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    handle_user_signal();
    for (int i = 0; i < 200; i++) {
        struct timespec patience = {5, 0};
        if (i % 50 == 0) summon_unmasked();
        CHECK_EQ(kill(getpid(), SIGUSR1), 0);
        CHECK_EQ(sigtimedwait(&set, NULL, &patience), SIGUSR1);
    }
    CHECK_EQ(handled, 0);
}

static volatile int only_handler;

static void *handle_signals(void *unused) {
    mask_user_signal(SIG_UNBLOCK);
    __atomic_store_n(&only_handler, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
    for (;;) pause();
    return unused;
}

/* Catches: the same in the commonest design, one thread of the program for all its signals: the kernel asks
 * its threads in turn. */
TEST(handlers_run_in_the_program) {
    pthread_t thread;
    handle_user_signal();
    summon_unmasked();
    CHECK_EQ(pthread_create(&thread, NULL, handle_signals, NULL), 0);
    while (!__atomic_load_n(&only_handler, __ATOMIC_ACQUIRE)) sleep_ms(1);
    for (size_t i = 0; i < 200; i++) {
        if (i % 50 == 49) summon_unmasked();
        CHECK_EQ(kill(getpid(), SIGUSR1), 0);
        for (int wait = 0; wait < 5000 && __atomic_load_n(&handled, __ATOMIC_ACQUIRE) <= i; wait++)
            sleep_ms(1);
        CHECK_EQ(handled, i + 1);
        CHECK_EQ(handler_thread, only_handler);
    }
}

/* Catches: a mask set around pthread_create and not put back, and a thread made with the attributes or the
 * errno of the one that happened to free. */
TEST(leaves_the_freeing_thread_alone) {
    sigset_t before, after;
    char name_before[32], name_after[32];
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &before, NULL), 0);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    read_text("/proc/thread-self/comm", name_before, sizeof name_before);
    void *blocks[128];
    for (size_t i = 0; i < 128; i++) {
        CHECK((blocks[i] = malloc(MIB(1))) != NULL);
        memset(blocks[i], 1, MIB(1));
    }
    for (size_t i = 0; i < 128; i++) {
        errno = 1234;
        free(blocks[i]);
        CHECK_EQ(errno, 1234);
        CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &after), 0);
        for (int number = 1; number < 65; number++)
            if (number != 32 && number != 33)
                CHECK_EQ(sigismember(&after, number), sigismember(&before, number));
    }
    read_text("/proc/thread-self/comm", name_after, sizeof name_after);
    CHECK(strcmp(name_before, name_after) == 0);
    CHECK(is_refused() || wait_for_purge_thread(true, 5000));
}

/* Catches: pages given back by the purge thread between the moment it looked at them and the moment that
 * the program takes them again. */
TEST(works_while_the_program_works) {
    struct rng rng = {5};
    struct table table = table_map(table_room(MIB(96)), 5);
    for (uint64_t end = now_ms() + 4000; now_ms() < end;) {
        table.count = 0;
        table_allocate(&table, MIB(80), &rng, true);
        table_shuffle(&table, &rng);
        table_free_all_but(&table, table.count / 50);
        sleep_ms(rng_below(&rng, 300));
        table_verify(&table);
        table_free_all_but(&table, 0);
    }
}

/* What a second thread costs a program that wants a new user namespace: EINVAL while it is there, as
 * clone(2) says of every process with threads, and nothing once it is gone. Last, since nothing that
 * follows would run in the old namespace. Catches: a thread that never ends. */
TEST(unshare_works_once_it_is_gone) {
    for (int attempt = 0; attempt < 5; attempt++) {
        if (is_refused()) break;
        summon();
        int thread = purge_thread();
        errno = 0;
        int status = unshare(CLONE_NEWUSER), error = errno;
        if (thread == 0 || purge_thread() != thread) continue; /* it ended meanwhile: nothing is said */
        CHECK_EQ(status, -1);
        CHECK_EQ(error, EINVAL);
        break;
    }
    CHECK(wait_for_purge_thread(false, 15000));
    sleep_ms(100); /* out of the list of threads, but not yet of the kernel's count */
    CHECK(unshare(CLONE_NEWUSER) == 0 || errno == EPERM || errno == ENOSPC || errno == ENOSYS);
}
