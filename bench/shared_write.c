/* shared_write OPS SIZE SEED - passive false sharing: one thread allocates small blocks and gives every other one to a
 * second thread; then both write to their own, and free and allocate anew. An allocator that gives a freed block to
 * the thread that freed it keeps both threads on the same cache lines forever. One operation is one write; OPS
 * counts over both threads and is rounded up. */
#include "writers.h"

enum { OPS, SIZE, SEED };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"SIZE", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, false, 0},
    ARGUMENT_SEED,
};

static void thread_run(void *context) { writer_run(context); }

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "shared_write", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct writer *writers = workload_map(WRITERS * sizeof *writers);
    uint64_t ops = writers_open(writers, value[OPS], value[SIZE], value[SEED]);

    workload_start(&workload);
    for (unsigned n = 0; n < WRITERS * WRITER_BLOCKS; n++)
        writer_block_make(&writers[n % WRITERS], n / WRITERS);
    workload_threads_run(WRITERS, thread_run, writers, sizeof *writers);
    workload_stop(&workload, ops);
    return writers_finish(&workload, writers);
}
