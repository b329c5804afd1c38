/* latency.h - how long single calls of the allocator take, measured only where WORKLOAD_LATENCY=1 asks for it.
 *
 * Each workload is compiled twice into its program. The first object is the workload itself, and nothing of this
 * file is in it. The second, its twin, has WORKLOAD_LATENCY_TWIN defined: there every malloc, free, realloc and
 * aligned allocation stands between two readings of the clock, and main has another name, which workload_open
 * enters when asked. So the timed path has no test in it, and figures with and without this file are the same.
 *
 * Durations are counted in buckets at most 1/32 wide, in ticks of the processor's own counter, which workload_finish
 * turns into nanoseconds by the clock that ran beside it. A reading is ordered against the call on either side; what
 * it costs itself is reported and not subtracted. */
#ifndef BENCH_LATENCY_H
#define BENCH_LATENCY_H

#include "line.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* The twin's main; NULL in a program that has none. */
int workload_latency_main(int argc, char **argv) __attribute__((weak));

/* Calls count from here on, until latency_stop. */
void latency_start(void);
void latency_stop(void);

/* One call that took TICKS. Any thread; not part of what is measured. */
void latency_record(uint64_t ticks);

/* `,"latency_ns":{...}`, or null when there was no call. After latency_stop. */
void latency_line_add(struct line *line);

static inline uint64_t latency_ticks(void) {
#if defined(__x86_64__) || defined(__i386__)
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks)::"memory");
    return ticks;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
#endif
}

#ifdef WORKLOAD_LATENCY_TWIN

static inline void *latency_malloc(size_t bytes) {
    uint64_t start = latency_ticks();
    void *block = malloc(bytes);
    latency_record(latency_ticks() - start);
    return block;
}

static inline void latency_free(void *block) {
    uint64_t start = latency_ticks();
    free(block);
    latency_record(latency_ticks() - start);
}

static inline void *latency_realloc(void *block, size_t bytes) {
    uint64_t start = latency_ticks();
    void *moved = realloc(block, bytes);
    latency_record(latency_ticks() - start);
    return moved;
}

static inline void *latency_aligned_alloc(size_t alignment, size_t bytes) {
    uint64_t start = latency_ticks();
    void *block = aligned_alloc(alignment, bytes);
    latency_record(latency_ticks() - start);
    return block;
}

static inline int latency_posix_memalign(void **block, size_t alignment, size_t bytes) {
    uint64_t start = latency_ticks();
    int error = posix_memalign(block, alignment, bytes);
    latency_record(latency_ticks() - start);
    return error;
}

/* From here on, in the twin, the workload's own calls. */
#define main workload_latency_main
#define malloc latency_malloc
#define free latency_free
#define realloc latency_realloc
#define aligned_alloc latency_aligned_alloc
#define posix_memalign latency_posix_memalign

#endif

#endif
