/* cold_start [OPS] [SEED] - the first OPS operations (1 unless told otherwise) of each size class, in random
 * order of sizes, and the page faults each class's operations cost. Sizes are every 16 bytes up to 1 KiB and
 * eight to a doubling up to 64 KiB, so that no allocator's class is left out.
 *
 * Two numbers for each size: faults inside malloc, and those together with the write to the block's first
 * word. The process's very first allocation, which may set the allocator up, is counted apart.
 *
 * Before each size's calls of malloc stands a getrusage(RUSAGE_THREAD), which nothing else here uses, and after
 * them a getrusage(RUSAGE_SELF): between these two marks first_calls counts the system calls. */
#include "workload.h"

#include <sys/resource.h>

#define SIZES_MAX 256
#define OPS_LIMIT 4096

enum { OPS, SEED };

static const struct workload_argument arguments[] = {
    {"OPS", 1, OPS_LIMIT, true, 1},
    ARGUMENT_SEED_OPTIONAL,
};

static uint64_t faults_read(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

static void window_mark(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
}

static unsigned sizes_list(uint64_t *sizes) {
    unsigned count = 0;
    for (uint64_t bytes = 16; bytes <= 1024; bytes += 16) sizes[count++] = bytes;
    for (uint64_t octave = 1024; octave < 65536; octave *= 2) {
        for (unsigned step = 1; step <= 8; step++) sizes[count++] = octave + step * octave / 8;
    }
    return count;
}

static void sizes_shuffle(uint64_t *sizes, unsigned count, uint64_t *random) {
    for (unsigned i = count; i > 1; i--) {
        uint64_t other = random_low(random_next(random), i);
        uint64_t size = sizes[i - 1];
        sizes[i - 1] = sizes[other];
        sizes[other] = size;
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "cold_start", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    uint64_t ops = workload.value[OPS];
    uint64_t random = random_stream(workload.value[SEED], 0);
    uint64_t *sizes = workload_map(SIZES_MAX * sizeof *sizes);
    unsigned count = sizes_list(sizes);
    sizes_shuffle(sizes, count, &random);
    void **blocks = workload_map(count * ops * sizeof *blocks);
    struct ledger ledger = {0, 0};
    uint64_t most = 0, most_size = 0, total = 0, over_one = 0, most_in_malloc = 0;

    /* Binds the calls below and touches the stack, so that their faults are not counted as the allocator's. */
    faults_read();
    uint64_t before = faults_read();
    block_drop(&ledger, block_make(&ledger, 16, 1));
    uint64_t first = faults_read() - before;

    workload_start(&workload);
    for (unsigned n = 0; n < count; n++) {
        void **mine = &blocks[n * ops];
        uint64_t start = faults_read();
        window_mark();
        for (uint64_t i = 0; i < ops; i++) mine[i] = malloc(sizes[n]);
        uint64_t in_malloc = faults_read() - start;
        for (uint64_t i = 0; i < ops; i++) {
            if (mine[i] == NULL) workload_memory_refused(sizes[n]);
            *(uint64_t *)mine[i] = sizes[n];
            ledger.written += sizes[n];
        }
        uint64_t faults = faults_read() - start;
        total += faults;
        over_one += faults > 1;
        if (in_malloc > most_in_malloc) most_in_malloc = in_malloc;
        if (faults > most) {
            most = faults;
            most_size = sizes[n];
        }
    }
    workload_stop(&workload, count * ops);

    for (uint64_t i = 0; i < count * ops; i++) block_drop(&ledger, blocks[i]);
    workload_figure_add(&workload, "sizes", count);
    workload_figure_add(&workload, "first_allocation_faults", first);
    workload_figure_add(&workload, "most_faults", most);
    workload_figure_add(&workload, "most_faults_size", most_size);
    workload_figure_add(&workload, "most_faults_in_malloc", most_in_malloc);
    workload_figure_add(&workload, "sizes_over_one_fault", over_one);
    workload_figure_add(&workload, "total_faults", total);
    return workload_finish(&workload, &ledger);
}
