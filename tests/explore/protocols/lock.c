/* lock.c - os_lock itself, with the kernel's futex as a queue under a lock of the kernel's own.
 *
 * Invariant: one holder at a time, who sees what the last one wrote; and whoever sleeps is woken: no thread waits for ever.
 * A waiter reads the lock once instead of 64 times before it sleeps: each read is the same step again. */
#include "../explore.h"

#include "os/os.h"

#include <errno.h>
#include <stdarg.h>

enum { WAIT = 128, WAKE = 129 }; /* as in lock.c */

/* ---- the kernel: what lock.c calls ---------------------------------------------------------------------------- */

static _Atomic uint32_t kernel_lock, woken[EXPLORE_THREADS];
static unsigned sleepers[EXPLORE_THREADS], sleeper_count;

static long wait_on(_Atomic uint32_t *word, uint32_t expected) {
    unsigned self = explore_self();
    explore_lock_take(&kernel_lock);
    bool changed = atomic_load_explicit(word, memory_order_relaxed) != expected;
    if (!changed) sleepers[sleeper_count++] = self;
    explore_lock_drop(&kernel_lock);
    if (changed) {
        errno = EAGAIN;
        return -1;
    }
    explore_await(&woken[self], 1);
    atomic_store_explicit(&woken[self], 0, memory_order_relaxed);
    return 0;
}

static long wake_one(void) {
    explore_lock_take(&kernel_lock);
    bool any = sleeper_count > 0;
    unsigned first = sleepers[0];
    for (unsigned i = 1; i < sleeper_count; i++) sleepers[i - 1] = sleepers[i];
    sleeper_count -= any;
    explore_lock_drop(&kernel_lock);
    if (any) atomic_store_explicit(&woken[first], 1, memory_order_release);
    return any;
}

HAK_HIDDEN long syscall(long number, ...) {
    va_list values;
    va_start(values, number);
    _Atomic uint32_t *word = va_arg(values, _Atomic uint32_t *);
    int operation = va_arg(values, int);
    uint32_t expected = va_arg(values, uint32_t);
    va_end(values);
    return operation == WAIT ? wait_on(word, expected) : wake_one();
}

HAK_HIDDEN int sched_yield(void) { explore_fail("the futex was refused"); }

/* For os_lock_pass, which drops a lock and takes it again, and is not explored. */
HAK_HIDDEN uint64_t os_clock_ms(void) { return 0; }

/* ---- what is explored ------------------------------------------------------------------------------------------- */

static struct os_lock lock;
static unsigned inside, turns; /* plain: guarded by the lock */

static void take_turn(void) {
    os_lock_take(&lock);
    EXPLORE_CHECK(inside++ == 0);
    turns++;
    inside--;
    os_lock_drop(&lock);
}
static void take_two_turns(void) {
    take_turn();
    take_turn();
}
static void try_turn(void) {
    if (!os_lock_try(&lock)) return;
    EXPLORE_CHECK(inside++ == 0);
    inside--;
    os_lock_drop(&lock);
}

static void check_two(void) { EXPLORE_CHECK(turns == 2 && atomic_load(&lock.state) == 0); }
static void check_three(void) { EXPLORE_CHECK(turns == 3 && atomic_load(&lock.state) == 0); }
static void check_four(void) { EXPLORE_CHECK(turns == 4 && atomic_load(&lock.state) == 0); }

EXPLORE(lock_two, .threads = {take_turn, take_turn}, .check = check_two);
EXPLORE(lock_two_twice, .threads = {take_two_turns, take_two_turns}, .check = check_four, .deep = true);
EXPLORE(lock_three, .threads = {take_turn, take_turn, take_turn}, .check = check_three, .deep = true);
EXPLORE(lock_two_and_a_try, .threads = {take_turn, take_turn, try_turn}, .check = check_two);
