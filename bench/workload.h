/* workload.h - what every workload shares: arguments, random numbers, blocks, clock, one JSON line.
 *
 * A workload is one small program for any allocator. It calls plain malloc and free through the PLT, as
 * programs do, and the allocator comes by preload. Between workload_start and workload_stop all faults
 * and footprint are the allocator's: a workload's own tables come from workload_map, which asks the
 * kernel and touches every page before the clock starts.
 *
 * Every block carries a tag in its first word from block_make to block_drop. What was written and what
 * was read back are summed; workload_finish refuses to report when the sums differ. So work cannot be
 * skipped, and an allocator that hands one block out twice is caught. Blocks are at least 8 bytes.
 *
 * It ends with the process that started it: if that is killed, nobody would end it.
 */
#ifndef BENCH_WORKLOAD_H
#define BENCH_WORKLOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef WORKLOAD_LATENCY_TWIN
#include "latency.h"
#endif

#define WORKLOAD_ARGUMENTS_MAX 8
#define WORKLOAD_FIGURES_MAX 12
#define WORKLOAD_SERIES_MAX 4
#define WORKLOAD_THREADS_MAX 256

/* Limits that keep every product of two arguments inside 64 bits. */
#define WORKLOAD_OPS_MAX (UINT64_C(1) << 40)
#define WORKLOAD_SLOTS_MAX (UINT64_C(1) << 26)
#define WORKLOAD_SIZE_MAX (UINT64_C(1) << 31)

#define BLOCK_BYTES_MIN 8

/* Apart from other threads' words: two lines, because the hardware fetches them in pairs. */
#define WORKLOAD_APART _Alignas(128)

/* ---- the program ---------------------------------------------------------------------------------- */

struct workload_argument {
    const char *name; /* as in the usage line: "OPS" */
    uint64_t minimum;
    uint64_t maximum;
    bool optional;
    uint64_t fallback; /* the value of an optional argument that is not given */
};

struct workload_figure {
    const char *name;
    uint64_t value;
};

/* A figure over time. */
struct workload_series {
    const char *name;
    const uint64_t *values;
    unsigned count;
};

struct workload_usage {
    uint64_t wall_ns;
    uint64_t cpu_ns;
    uint64_t minor_faults;
    uint64_t major_faults;
    uint64_t involuntary_switches;
};

struct workload {
    const char *name;
    const struct workload_argument *arguments;
    unsigned argument_count;
    uint64_t value[WORKLOAD_ARGUMENTS_MAX]; /* in the order of ARGUMENTS */
    unsigned figure_count;
    struct workload_figure figures[WORKLOAD_FIGURES_MAX];
    unsigned series_count;
    struct workload_series series[WORKLOAD_SERIES_MAX];
    bool by_clock; /* ends after a given time: the same arguments do not give the same checksum */
    bool paced; /* waits by the clock: its measure is processor time, and WORKLOAD_SLOWDOWN is a share of that */
    uint64_t ops;
    uint64_t peak_rss_kib;
    struct workload_usage started;
    struct workload_usage stopped;
};

/* Reads the command line; on a wrong one prints what is wrong, and exits with 2. */
void workload_open(struct workload *workload, const char *name, const struct workload_argument *arguments,
                   unsigned argument_count, int argc, char **argv);

/* Zeroed, touched memory of the workload's own. */
void *workload_map(size_t bytes);

void workload_start(struct workload *workload);

/* OPS is what the workload did since its start. When WORKLOAD_SLOWDOWN=PERCENT is set, the clock runs on
 * for that share of the time: the known slowdown that a laboratory must be able to see. */
void workload_stop(struct workload *workload, uint64_t ops);

/* One more number for the JSON line. */
void workload_figure_add(struct workload *workload, const char *name, uint64_t value);

/* One more array of numbers for it; VALUES are read by workload_finish. */
void workload_series_add(struct workload *workload, const char *name, const uint64_t *values, unsigned count);

/* What the process has used until now. */
void workload_usage_read(struct workload_usage *usage);

/* Runs BODY on COUNT contexts, CONTEXT_BYTES apart, each on a thread of its own (the first on the caller's), and
 * returns when all are done. Threads are dealt out to the processors in turn and stay there, each on one of its own where
 * there are enough: left alone, the kernel keeps all threads of a short run on one processor now and then. */
void workload_threads_run(unsigned count, void (*body)(void *context), void *contexts, size_t context_bytes);

/* One line to stderr with the workload's name, then exit with 1. */
_Noreturn void workload_fail(const char *format, ...) __attribute__((format(printf, 1, 2), cold));
_Noreturn void workload_memory_refused(size_t bytes) __attribute__((cold));

/* Waits a moment for another thread; yields the processor from time to time, since there may be only one. */
void workload_spin(unsigned *spins);

/* ---- random numbers: splitmix64, one draw serves a slot and a size ------------------------------------ */

static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Two independent numbers below LIMIT (at most 2^32) from the halves of one draw. */
static inline uint64_t random_low(uint64_t draw, uint64_t limit) {
    return ((draw & UINT32_MAX) * limit) >> 32;
}
static inline uint64_t random_high(uint64_t draw, uint64_t limit) {
    return ((draw >> 32) * limit) >> 32;
}

/* From MINIMUM to MAXIMUM, evenly on a logarithmic scale, from the high half of DRAW. */
uint64_t random_log(uint64_t draw, uint64_t minimum, uint64_t maximum);

/* An independent stream for each thread. */
static inline uint64_t random_stream(uint64_t seed, unsigned thread) {
    uint64_t state = seed ^ ((uint64_t)thread << 56);
    return random_next(&state);
}

/* ---- blocks ------------------------------------------------------------------------------------------- */

struct ledger {
    uint64_t written;
    uint64_t read;
};

static inline void *block_make(struct ledger *ledger, size_t bytes, uint64_t tag) {
    uint64_t *block = malloc(bytes);
    if (__builtin_expect(block == NULL, 0)) workload_memory_refused(bytes);
    *block = tag;
    ledger->written += tag;
    return block;
}

static inline void block_drop(struct ledger *ledger, void *block) {
    ledger->read += *(uint64_t *)block;
    free(block);
}

static inline void ledger_add(struct ledger *sum, const struct ledger *part) {
    sum->written += part->written;
    sum->read += part->read;
}

/* SIZE, or 16 to 256 bytes when it is 0. */
static inline size_t block_size_draw(uint64_t size, uint64_t draw) {
    return size != 0 ? size : 16 + random_high(draw, 241);
}

/* A size argument that takes 0 for mixed sizes must not be 1 to 7. */
void workload_size_check(const struct workload *workload, unsigned argument);

/* Checks the sums, prints the JSON line and returns the exit status of main. */
int workload_finish(struct workload *workload, const struct ledger *ledger);

#define WORKLOAD_COUNT(array) ((unsigned)(sizeof(array) / sizeof((array)[0])))

#define ARGUMENT_OPS \
    { "OPS", 1, WORKLOAD_OPS_MAX, false, 0 }
#define ARGUMENT_SLOTS \
    { "SLOTS", 1, WORKLOAD_SLOTS_MAX, false, 0 }
#define ARGUMENT_SEED \
    { "SEED", 0, UINT64_MAX, false, 0 }
#define ARGUMENT_SEED_OPTIONAL \
    { "SEED", 0, UINT64_MAX, true, 1 }

#endif
