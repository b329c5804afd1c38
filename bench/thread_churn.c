/* thread_churn OPS BLOCKS SIZE SEED - threads that live for a moment: each frees the BLOCKS blocks that its predecessor
 * left, allocates as many for its successor, and ends. Two chains of them run side by side, each with one thread at a
 * time. So what an allocator sets up for a thread, and what it does with the blocks of one that is gone, is paid for
 * every BLOCKS blocks. SIZE 0 draws 16 to 256 bytes. One operation is one thread's life; OPS counts over both chains
 * and is rounded up. */
#include "workload.h"

#include <pthread.h>
#include <string.h>

#define CHAINS 2

enum { OPS, BLOCKS, SIZE, SEED };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"BLOCKS", 1, WORKLOAD_SLOTS_MAX, false, 0},
    {"SIZE", 0, WORKLOAD_SIZE_MAX, false, 0},
    ARGUMENT_SEED,
};

/* Belongs to the chain's present thread: the creation of a thread and the wait for its end hand it over. */
struct chain {
    WORKLOAD_APART void **blocks;
    uint64_t block_count;
    uint64_t size;
    uint64_t lives;
    uint64_t random;
    struct ledger ledger;
};

static void *life_run(void *argument) {
    struct chain *chain = argument;
    struct chain local = *chain;
    for (uint64_t i = 0; i < local.block_count; i++) {
        if (local.blocks[i] != NULL) block_drop(&local.ledger, local.blocks[i]);
    }
    for (uint64_t i = 0; i < local.block_count; i++) {
        uint64_t draw = random_next(&local.random);
        local.blocks[i] = block_make(&local.ledger, block_size_draw(local.size, draw), draw);
    }
    *chain = local;
    return NULL;
}

static void chain_run(void *context) {
    struct chain *chain = context;
    for (uint64_t i = 0; i < chain->lives; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, NULL, life_run, chain);
        if (error != 0) workload_fail("a thread cannot start: %s", strerror(error));
        pthread_join(thread, NULL);
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "thread_churn", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    workload_size_check(&workload, SIZE);
    const uint64_t *value = workload.value;
    struct chain *chains = workload_map(CHAINS * sizeof *chains);
    for (unsigned i = 0; i < CHAINS; i++) {
        chains[i] = (struct chain){
            .blocks = workload_map(value[BLOCKS] * sizeof(void *)),
            .block_count = value[BLOCKS],
            .size = value[SIZE],
            .lives = (value[OPS] + CHAINS - 1) / CHAINS,
            .random = random_stream(value[SEED], i),
        };
    }

    workload_start(&workload);
    workload_threads_run(CHAINS, chain_run, chains, sizeof *chains);
    workload_stop(&workload, CHAINS * chains[0].lives);

    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < CHAINS; i++) {
        for (uint64_t n = 0; n < value[BLOCKS]; n++) block_drop(&chains[i].ledger, chains[i].blocks[n]);
        ledger_add(&ledger, &chains[i].ledger);
    }
    return workload_finish(&workload, &ledger);
}
