/* replace_threads.h - the loop of replace.h on several threads at once, each with slots of its own. */
#ifndef BENCH_REPLACE_THREADS_H
#define BENCH_REPLACE_THREADS_H

#include "replace.h"

struct replace_thread {
    WORKLOAD_APART struct replace replace;
};

static void replace_thread_run(void *context) {
    struct replace_thread *thread = context;
    replace_run(&thread->replace, 0);
}

/* OPS counts over all threads and is rounded up to a multiple of them. Returns main's exit status. */
static inline int replace_threads_main(struct workload *workload, unsigned count, uint64_t ops, uint64_t slot_count,
                                       uint64_t size_min, uint64_t size_max, uint64_t seed) {
    struct replace_thread *threads = workload_map(count * sizeof *threads);
    uint64_t share = (ops + count - 1) / count;
    for (unsigned i = 0; i < count; i++) {
        replace_open(&threads[i].replace, slot_count, size_min, size_max, seed, i, share);
    }

    workload_start(workload);
    workload_threads_run(count, replace_thread_run, threads, sizeof *threads);
    workload_stop(workload, share * count);

    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < count; i++) {
        replace_close(&threads[i].replace);
        ledger_add(&ledger, &threads[i].replace.ledger);
    }
    return workload_finish(workload, &ledger);
}

#endif
