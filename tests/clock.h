/* clock.h - the time that decay goes by, in the hands of the test: clock_gettime is interposed, and the coarse
 * clock shows what the test says. A program includes it once. */
#ifndef HAK_TESTS_CLOCK_H
#define HAK_TESTS_CLOCK_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

static _Atomic uint64_t clock_ms = 1000000;
CHECK_UNUSED static _Atomic uint64_t clock_reads;

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC_COARSE) return (int)syscall(SYS_clock_gettime, clock, now);
    atomic_fetch_add(&clock_reads, 1);
    uint64_t ms = atomic_load(&clock_ms);
    *now = (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    return 0;
}

CHECK_UNUSED static void clock_pass(uint64_t ms) { atomic_fetch_add(&clock_ms, ms); }

#endif
