/* steady.c - to be preloaded before hakmem, so that two runs of the same work take the same instructions, faults and memory.
 *
 * The coarse clock, by which memory decays, advances by one millisecond each time it is read: decay follows what a program does, and
 * not when. All other clocks are the kernel's. And the random bytes of the process, from which the place of the window is drawn, are
 * always these, since where blocks begin in a page depends on the page's address. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static _Atomic uint64_t read_ms = 1000000;

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC_COARSE) return (int)syscall(SYS_clock_gettime, clock, now);
    uint64_t ms = atomic_fetch_add_explicit(&read_ms, 1, memory_order_relaxed); /* any order of readers will do */
    *now = (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    return 0;
}

EXPORT unsigned long getauxval(unsigned long type) {
    static const unsigned char random_bytes[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    if (type == AT_RANDOM) return (unsigned long)(uintptr_t)random_bytes;
    unsigned long (*const next)(unsigned long) = (unsigned long (*)(unsigned long))dlsym(RTLD_NEXT, "getauxval");
    return next(type);
}
