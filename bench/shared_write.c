/* shared_write OPS SIZE SEED - one thread allocates small blocks and gives every other one to a second thread;
 * then both write to their own. Each frees one block and allocates another after every WRITES_PER_BLOCK
 * writes. An allocator that hands a freed block to whichever thread freed it keeps both threads on the same
 * cache lines for ever (passive false sharing). One operation is one write; OPS counts over both threads and
 * is rounded up. */
#include "workload.h"

#define BLOCKS 16
#define WRITES_PER_BLOCK 64

enum { OPS, SIZE, SEED };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"SIZE", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, false, 0},
    ARGUMENT_SEED,
};

struct thread {
    WORKLOAD_APART void *blocks[BLOCKS];
    uint64_t round_count;
    uint64_t size;
    uint64_t random;
    struct ledger ledger;
};

static void thread_run(void *context) {
    struct thread *thread = context;
    struct thread local = *thread;
    for (uint64_t round = 0; round < local.round_count; round++) {
        for (unsigned i = 0; i < WRITES_PER_BLOCK; i++) {
            volatile uint64_t *block = local.blocks[i % BLOCKS];
            *block += 1;
        }
        local.ledger.written += WRITES_PER_BLOCK;
        unsigned turn = round % BLOCKS;
        block_drop(&local.ledger, local.blocks[turn]);
        local.blocks[turn] = block_make(&local.ledger, local.size, random_next(&local.random));
    }
    *thread = local;
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "shared_write", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct thread *threads = workload_map(2 * sizeof *threads);
    uint64_t per_round = 2 * WRITES_PER_BLOCK;
    for (unsigned i = 0; i < 2; i++) {
        threads[i].round_count = (value[OPS] + per_round - 1) / per_round;
        threads[i].size = value[SIZE];
        threads[i].random = random_stream(value[SEED], i);
    }

    workload_start(&workload);
    for (unsigned n = 0; n < 2 * BLOCKS; n++) {
        struct thread *thread = &threads[n % 2];
        thread->blocks[n / 2] = block_make(&thread->ledger, value[SIZE], random_next(&thread->random));
    }
    workload_threads_run(2, thread_run, threads, sizeof *threads);
    workload_stop(&workload, threads[0].round_count * per_round);

    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned n = 0; n < BLOCKS; n++) block_drop(&threads[i].ledger, threads[i].blocks[n]);
        ledger_add(&ledger, &threads[i].ledger);
    }
    return workload_finish(&workload, &ledger);
}
