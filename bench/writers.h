/* writers.h - two threads that write small blocks, over and over, each to its own: what counts is whether the allocator
 * puts blocks of different threads on the same cache line. Each thread frees one block and allocates another after
 * every WRITES_PER_BLOCK writes. */
#ifndef BENCH_WRITERS_H
#define BENCH_WRITERS_H

#include "workload.h"

#define WRITERS 2
#define WRITER_BLOCKS 16
#define WRITES_PER_BLOCK 64

struct writer {
    WORKLOAD_APART void *blocks[WRITER_BLOCKS];
    uint64_t round_count;
    uint64_t size;
    uint64_t random;
    struct ledger ledger;
};

static inline void writer_run(struct writer *writer) {
    struct writer local = *writer;
    for (uint64_t round = 0; round < local.round_count; round++) {
        for (unsigned i = 0; i < WRITES_PER_BLOCK; i++) {
            volatile uint64_t *block = local.blocks[i % WRITER_BLOCKS];
            *block += 1;
        }
        local.ledger.written += WRITES_PER_BLOCK;
        unsigned turn = round % WRITER_BLOCKS;
        block_drop(&local.ledger, local.blocks[turn]);
        local.blocks[turn] = block_make(&local.ledger, local.size, random_next(&local.random));
    }
    *writer = local;
}

static inline void writer_block_make(struct writer *writer, unsigned place) {
    writer->blocks[place] = block_make(&writer->ledger, writer->size, random_next(&writer->random));
}

/* OPS writes over both threads, rounded up to whole rounds; returns how many that is. */
static inline uint64_t writers_open(struct writer *writers, uint64_t ops, uint64_t size, uint64_t seed) {
    uint64_t per_round = WRITERS * WRITES_PER_BLOCK;
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i].round_count = (ops + per_round - 1) / per_round;
        writers[i].size = size;
        writers[i].random = random_stream(seed, i);
    }
    return writers[0].round_count * per_round;
}

/* Frees what is left; returns main's exit status. */
static inline int writers_finish(struct workload *workload, struct writer *writers) {
    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < WRITERS; i++) {
        for (unsigned n = 0; n < WRITER_BLOCKS; n++) block_drop(&writers[i].ledger, writers[i].blocks[n]);
        ledger_add(&ledger, &writers[i].ledger);
    }
    return workload_finish(workload, &ledger);
}

#endif
