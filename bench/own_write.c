/* own_write OPS SIZE SEED - active false sharing: two threads allocate small blocks at the same time, each its own, and
 * write to them, free them and allocate anew. An allocator that serves both threads from one line makes each wait for
 * the other. One operation is one write; OPS counts over both threads and is rounded up. shared_write is the passive
 * kind, in which blocks change hands first. */
#include "writers.h"

enum { OPS, SIZE, SEED };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"SIZE", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, false, 0},
    ARGUMENT_SEED,
};

/* The threads make their first blocks in turns: so neighbours in the order of allocation are of different threads. */
struct table {
    struct writer writers[WRITERS];
    WORKLOAD_APART _Atomic unsigned made; /* release and acquire order the turns; nothing else is shared */
};

struct thread {
    WORKLOAD_APART struct table *table;
    unsigned index;
};

static void thread_run(void *context) {
    const struct thread *thread = context;
    struct table *table = thread->table;
    struct writer *writer = &table->writers[thread->index];
    for (unsigned n = 0; n < WRITER_BLOCKS; n++) {
        unsigned spins = 0;
        while (atomic_load_explicit(&table->made, memory_order_acquire) % WRITERS != thread->index) {
            workload_spin(&spins);
        }
        writer_block_make(writer, n);
        atomic_fetch_add_explicit(&table->made, 1, memory_order_release);
    }
    writer_run(writer);
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "own_write", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct table *table = workload_map(sizeof *table);
    uint64_t ops = writers_open(table->writers, value[OPS], value[SIZE], value[SEED]);
    struct thread *threads = workload_map(WRITERS * sizeof *threads);
    for (unsigned i = 0; i < WRITERS; i++) threads[i] = (struct thread){table, i};

    workload_start(&workload);
    workload_threads_run(WRITERS, thread_run, threads, sizeof *threads);
    workload_stop(&workload, ops);
    return writers_finish(&workload, table->writers);
}
