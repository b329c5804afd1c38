/* thread_test.c - the one thread of the library's own, and the barrier for all others. Whose code an address is: see
 * thread_code_test.c.
 *
 * Planted defects it was seen to catch:
 *   signals are not blocked, or stay so here     it_runs_apart_with_signals_blocked
 *   those of faults are blocked                  it_runs_apart_with_signals_blocked
 *   no name, not detached                        it_runs_apart_with_signals_blocked
 *   signals stay blocked, or never are           the_last_one_ends_with_the_signals_of_its_starter
 *   a small stack that is refused is the end     a_small_stack_that_is_refused_becomes_a_larger_one
 *   a refusal is not counted                     a_refusal_is_a_result
 *   the process is not registered                one_of_two_sees_the_other
 *   signals from 33 on are not seen              blocked_signals_are_bits
 */
#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "kernel.h"
#include "os/os.h"
#include "os_counts.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* ---- starting ------------------------------------------------------------------------------------------ */

static struct {
    sigset_t blocked;
    char name[16];
    int detached;
    size_t stack_bytes;
    pthread_t thread;
} seen;
static atomic_int runs;

static bool look_around(void) {
    pthread_attr_t attributes;
    seen.thread = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &seen.blocked);
    prctl(PR_GET_NAME, seen.name);
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getdetachstate(&attributes, &seen.detached);
        pthread_attr_getstacksize(&attributes, &seen.stack_bytes);
        pthread_attr_destroy(&attributes);
    }
    atomic_fetch_add(&runs, 1);
    return false;
}

static void wait_for_runs(int count) {
    while (atomic_load(&runs) < count) sched_yield();
}

static bool is_synchronous(int number) {
    return number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGSEGV || number == SIGSYS || number == SIGTRAP;
}

/* Those of its own faults are as they were here. */
TEST(it_runs_apart_with_signals_blocked) {
    sigset_t some, before, after;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    sigaddset(&some, SIGTRAP);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &some, &before), 0);
    uint64_t calls = calls_of(OS_CALL_THREAD);
    atomic_store(&runs, 0);
    errno = 4711;
    CHECK(os_thread_start(look_around, "fifteen-bytes--"));
    CHECK_EQ(errno, 4711);
    wait_for_runs(1);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
    for (int number = 1; number < 32; number++) {
        CHECK_AT(sigismember(&after, number) == (number == SIGUSR2 || number == SIGTRAP), number); /* ours are as they were */
        if (number == SIGKILL || number == SIGSTOP) continue;
        CHECK_AT(sigismember(&seen.blocked, number) == (number == SIGTRAP || !is_synchronous(number)), number);
    }
    CHECK(sigismember(&seen.blocked, SIGRTMIN) == 1 && sigismember(&seen.blocked, SIGRTMAX) == 1);
    CHECK(!pthread_equal(seen.thread, pthread_self()));
    CHECK_EQ(seen.detached, PTHREAD_CREATE_DETACHED);
    CHECK(CHECK_SHADOWED || (seen.stack_bytes >= KIB(900) && seen.stack_bytes <= MIB(2)));
    CHECK(strcmp(seen.name, "fifteen-bytes--") == 0);
    CHECK_EQ(calls_of(OS_CALL_THREAD), calls + 1);
}

TEST(a_small_stack_that_is_refused_becomes_a_larger_one) {
    atomic_store(&runs, 0);
    fail_arm(FAIL_PTHREAD_CREATE, 1, false, EINVAL); /* too small for the thread-local storage */
    CHECK(os_thread_start(look_around, "second"));
    CHECK_EQ(fail_counted(FAIL_PTHREAD_CREATE), 2);
    fail_disarm();
    wait_for_runs(1);
    CHECK(strcmp(seen.name, "second") == 0);
#ifdef __GLIBC__ /* musl's are always small */
    CHECK(CHECK_SHADOWED || seen.stack_bytes > MIB(1));
#endif
}

/* Seen by a destructor: after the body, as libc's exit would be. */
static pthread_key_t at_end;

static void look_at_end(void *unused) {
    (void)unused;
    look_around();
}

static bool be_last(void) { return pthread_setspecific(at_end, &runs) == 0; }
static bool be_one_of_many(void) { return pthread_setspecific(at_end, &runs) != 0; }

TEST(the_last_one_ends_with_the_signals_of_its_starter) {
    sigset_t some, before;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR2);
    CHECK_EQ(pthread_key_create(&at_end, look_at_end), 0);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &some, &before), 0);
    for (int last = 0; last < 2; last++) {
        atomic_store(&runs, 0);
        CHECK(os_thread_start(last ? be_last : be_one_of_many, "last"));
        wait_for_runs(1);
        for (int number = 1; number < 32; number++) {
            if (number == SIGKILL || number == SIGSTOP) continue;
            const bool is_blocked = number == SIGUSR2 || (!last && !is_synchronous(number));
            CHECK_AT((sigismember(&seen.blocked, number) == 1) == is_blocked, number);
        }
    }
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    CHECK_EQ(pthread_key_delete(at_end), 0);
}

TEST(a_refusal_is_a_result) {
    static const int errors[] = {EAGAIN, ENOMEM, EPERM, EINVAL};
    sigset_t before, after;
    for (size_t i = 0; i < 4; i++) {
        pthread_sigmask(SIG_SETMASK, NULL, &before);
        uint64_t refusals = counted(&os_counters.refusals[OS_CALL_THREAD]);
        atomic_store(&runs, 0);
        fail_arm(FAIL_PTHREAD_CREATE, 1, true, errors[i]);
        errno = 4711;
        bool started = os_thread_start(look_around, "refused");
        fail_disarm();
        CHECK(!started);
        CHECK_EQ(errno, 4711);
        CHECK_EQ(counted(&os_counters.refusals[OS_CALL_THREAD]), refusals + 1);
        pthread_sigmask(SIG_SETMASK, NULL, &after);
        for (int number = 1; number < 32; number++)
            CHECK_AT(sigismember(&before, number) == sigismember(&after, number), number);
        CHECK_EQ(atomic_load(&runs), 0);
    }
}

/* ---- the barrier ---------------------------------------------------------------------------------------- */

/* Two threads that each say something and then look what the other said: one of them sees the other, though only one
 * has a barrier between the two that costs. */
static struct {
    HAK_ALIGNED(128) _Atomic uint32_t cheap, dear;
    HAK_ALIGNED(128) _Atomic uint32_t cheap_saw, dear_saw;
    HAK_ALIGNED(128) _Atomic uint32_t round, answered;
} sides;

static void wait_a_little(uint32_t turns) {
    for (volatile uint32_t left = turns; left > 0; left--) continue;
}

static void *cheap_side(void *unused) {
    for (uint32_t round = 1;; round++) {
        uint32_t now;
        for (unsigned tries = 1; (now = atomic_load(&sides.round)) < round; tries++)
            if (tries % 5000 == 0) sched_yield();
        if (now == UINT32_MAX) return unused;
        wait_a_little(round * 7919 % 40);
        atomic_store_explicit(&sides.cheap, round, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        atomic_store_explicit(&sides.cheap_saw, atomic_load_explicit(&sides.dear, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store(&sides.answered, round);
    }
}

TEST(one_of_two_sees_the_other) {
    errno = 4711;
    uint64_t calls = calls_of(OS_CALL_MEMBARRIER);
    CHECK_EQ(os_barrier_others(), kernel_has_barrier());
    CHECK_EQ(errno, 4711);
    CHECK_EQ(calls_of(OS_CALL_MEMBARRIER), calls + 1);
    NEED_BARRIER();
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, cheap_side, NULL), 0);
    for (uint32_t round = 1; round <= check_count(50000) && check_has_time(); round++) {
        atomic_store(&sides.round, round);
        wait_a_little(round % 120);
        atomic_store_explicit(&sides.dear, round, memory_order_relaxed);
        CHECK(os_barrier_others());
        uint32_t saw = atomic_load_explicit(&sides.cheap, memory_order_relaxed);
        for (unsigned tries = 1; atomic_load(&sides.answered) < round; tries++)
            if (tries % 5000 == 0) sched_yield();
        CHECK_AT(saw == round || atomic_load(&sides.cheap_saw) == round, round);
    }
    atomic_store(&sides.round, UINT32_MAX);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void pass_barrier(void) { CHECK(os_barrier_others()); }

TEST(a_child_has_the_barrier_too) {
    NEED_BARRIER();
    IN_CHILD(pass_barrier);
}

TEST(blocked_signals_are_bits) {
    static const int numbers[] = {1, SIGUSR1, 32 + 3, 64};
    sigset_t set, before;
    sigemptyset(&set);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &set, &before), 0);
    uint64_t expected = 0;
    CHECK_EQ(os_signal_mask(), expected);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        sigaddset(&set, numbers[i]);
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &set, NULL), 0);
        expected |= UINT64_C(1) << (numbers[i] - 1);
        CHECK_EQ(os_signal_mask(), expected);
    }
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}
