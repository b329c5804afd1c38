/* turn_clock.h - a clock that stands still while it is another process's turn.
 *
 * The laboratory runs the processes that it compares in turns of some milliseconds, and stops those whose turn it is not
 * (lab/hakmem_lab/measure/turns.py). It gives each a descriptor, in LAB_TURNS: a file of 8 bytes, which hold for how many
 * nanoseconds it was stopped so far. Without the variable this is the monotonic clock. */
#ifndef BENCH_TURN_CLOCK_H
#define BENCH_TURN_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TURN_CLOCK_VARIABLE "LAB_TURNS"
#define NS_PER_SECOND UINT64_C(1000000000)

/* The first call maps the file: make it while there is one thread. Ends the process with 1 and a line on stderr if the
 * variable names no such descriptor. */
uint64_t turn_clock_ns(void);

static inline double turn_clock_seconds(void) { return (double)turn_clock_ns() / (double)NS_PER_SECOND; }

static inline uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

#endif
