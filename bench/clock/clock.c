/* clock.c - to be preloaded before hakmem: the coarse clock, by which memory decays, goes one millisecond on each time it is
 * read. So decay goes by what a program does and not by when it does it, and two runs of the same work take the same
 * faults and the same memory. All other clocks are the kernel's. */
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t read_ms = 1000000;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC_COARSE) return (int)syscall(SYS_clock_gettime, clock, now);
    uint64_t ms = atomic_fetch_add_explicit(&read_ms, 1, memory_order_relaxed); /* any order of readers will do */
    *now = (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    return 0;
}
