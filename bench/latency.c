/* latency.c - see latency.h. Histograms in the manner of HDR: 32 buckets to a doubling, exact below 64 ticks. Threads
 * take turns in choosing one of a few, so that two seldom write to the same; counts are atomic, because with more
 * threads than histograms they do. All memory is static and untouched until a call is counted. */
#include "latency.h"

#include "turn_clock.h"
#include "workload.h"

#include <inttypes.h>

#define HISTOGRAMS 64
#define EXACT 64 /* below this many ticks each has a bucket of its own */
#define STEPS 32 /* buckets to a doubling above that */
#define EXACT_LOG2 6
#define BUCKETS (EXACT + (64 - EXACT_LOG2) * STEPS)

#define TICKS_BASE_NS UINT64_C(20000000) /* the rate of ticks is known to a few in a million after 20 ms */
#define CLOCK_TRIALS 1000

struct histogram {
    WORKLOAD_APART _Atomic uint64_t max;
    _Atomic uint64_t counts[BUCKETS];
};

static struct histogram histograms[HISTOGRAMS];
static _Atomic unsigned histogram_next;
static _Thread_local struct histogram *histogram_mine;

/* Written by the main thread around the measured part; read by others as a hint, hence relaxed. */
static atomic_bool recording;
static uint64_t start_ticks, start_ns; /* both go on while the process is stopped: such runs take no turns */

void latency_start(void) {
    start_ns = clock_ns(CLOCK_MONOTONIC);
    start_ticks = latency_ticks();
    atomic_store_explicit(&recording, true, memory_order_relaxed);
}

void latency_stop(void) { atomic_store_explicit(&recording, false, memory_order_relaxed); }

/* ---- buckets ----------------------------------------------------------------------------------------- */

static unsigned bucket_of(uint64_t ticks) {
    if (ticks < EXACT) return (unsigned)ticks;
    unsigned doubling = 63 - (unsigned)__builtin_clzll(ticks);
    unsigned step = (unsigned)(ticks >> (doubling - EXACT_LOG2 + 1)) - STEPS;
    return EXACT + (doubling - EXACT_LOG2) * STEPS + step;
}

/* The most ticks that bucket INDEX counts. */
static uint64_t bucket_last(unsigned index) {
    if (index < EXACT) return index;
    unsigned shift = (index - EXACT) / STEPS + 1;
    uint64_t step = STEPS + (index - EXACT) % STEPS;
    return (step << shift) + ((UINT64_C(1) << shift) - 1);
}

void latency_record(uint64_t ticks) {
    if (!atomic_load_explicit(&recording, memory_order_relaxed)) return;
    if ((int64_t)ticks < 0) ticks = 0; /* moved to a processor whose counter is a little behind */
    if (histogram_mine == NULL) {
        unsigned turn = atomic_fetch_add_explicit(&histogram_next, 1, memory_order_relaxed);
        histogram_mine = &histograms[turn % HISTOGRAMS];
    }
    atomic_fetch_add_explicit(&histogram_mine->counts[bucket_of(ticks)], 1, memory_order_relaxed);
    uint64_t max = atomic_load_explicit(&histogram_mine->max, memory_order_relaxed);
    while (ticks > max) {
        if (atomic_compare_exchange_weak_explicit(&histogram_mine->max, &max, ticks, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            break;
        }
    }
}

/* ---- the report: threads have ended or been waited for ------------------------------------------------- */

struct summary {
    uint64_t calls;
    uint64_t max;
    uint64_t counts[BUCKETS];
};

static void summary_make(struct summary *summary) {
    for (unsigned h = 0; h < HISTOGRAMS; h++) {
        uint64_t max = atomic_load_explicit(&histograms[h].max, memory_order_relaxed);
        if (max > summary->max) summary->max = max;
        for (unsigned i = 0; i < BUCKETS; i++) {
            uint64_t count = atomic_load_explicit(&histograms[h].counts[i], memory_order_relaxed);
            summary->counts[i] += count;
            summary->calls += count;
        }
    }
}

/* The least number of ticks that PER_MILLE of all calls did not exceed, by the end of its bucket. */
static uint64_t quantile(const struct summary *summary, uint64_t per_mille) {
    uint64_t rank = (summary->calls * per_mille + 999) / 1000, seen = 0;
    unsigned i = 0;
    while ((seen += summary->counts[i]) < rank) i++;
    return bucket_last(i) < summary->max ? bucket_last(i) : summary->max;
}

static double ns_per_tick(void) {
    uint64_t ns;
    do {
        ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
    } while (ns < TICKS_BASE_NS);
    return (double)ns / (double)(latency_ticks() - start_ticks);
}

/* What an empty measurement shows. */
static uint64_t clock_ticks_measure(void) {
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < CLOCK_TRIALS; i++) {
        uint64_t start = latency_ticks(), ticks = latency_ticks() - start;
        if (ticks < least) least = ticks;
    }
    return least;
}

void latency_line_add(struct line *line) {
    static struct summary summary;
    summary_make(&summary);
    if (summary.calls == 0) {
        line_add(line, ",\"latency_ns\":null");
        return;
    }
    double ns = ns_per_tick();
    static const struct {
        const char *name;
        uint64_t per_mille;
    } quantiles[] = {{"p50", 500}, {"p99", 990}, {"p999", 999}};
    line_add(line, ",\"latency_ns\":{");
    for (unsigned i = 0; i < WORKLOAD_COUNT(quantiles); i++) {
        double value = (double)quantile(&summary, quantiles[i].per_mille) * ns;
        line_add(line, "\"%s\":%.1f,", quantiles[i].name, value);
    }
    line_add(line, "\"max\":%.1f,\"clock\":%.1f,\"calls\":%" PRIu64 ",\"histogram\":[",
             (double)summary.max * ns, (double)clock_ticks_measure() * ns, summary.calls);
    const char *comma = "";
    for (unsigned i = 0; i < BUCKETS; i++) {
        if (summary.counts[i] == 0) continue;
        line_add(line, "%s[%.1f,%" PRIu64 "]", comma, (double)bucket_last(i) * ns, summary.counts[i]);
        comma = ",";
    }
    line_add(line, "]}");
}
