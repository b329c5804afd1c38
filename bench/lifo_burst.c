/* lifo_burst BLOCKS SIZE CYCLES SEED - one thread allocates BLOCKS blocks and frees them in reverse order,
 * CYCLES times. SIZE 0 draws 16 to 256 bytes for each block. With BLOCKS 1 it is the plain malloc and free
 * pair; with more blocks than a thread caches, every further block leaves the cache for the rest of the
 * allocator, and is fetched again. */
#include "workload.h"

enum { BLOCKS, SIZE, CYCLES, SEED };

static const struct workload_argument arguments[] = {
    {"BLOCKS", 1, WORKLOAD_SLOTS_MAX, false, 0},
    {"SIZE", 0, WORKLOAD_SIZE_MAX, false, 0},
    {"CYCLES", 1, UINT64_C(1) << 36, false, 0},
    ARGUMENT_SEED,
};

static void cycle_fixed(struct ledger *ledger, void **blocks, uint64_t count, size_t bytes, uint64_t tag) {
    for (uint64_t i = 0; i < count; i++) blocks[i] = block_make(ledger, bytes, tag + i);
    for (uint64_t i = count; i-- > 0;) block_drop(ledger, blocks[i]);
}

static void cycle_mixed(struct ledger *ledger, void **blocks, uint64_t count, uint64_t *random) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t draw = random_next(random);
        blocks[i] = block_make(ledger, block_size_draw(0, draw), draw);
    }
    for (uint64_t i = count; i-- > 0;) block_drop(ledger, blocks[i]);
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "lifo_burst", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    workload_size_check(&workload, SIZE);
    const uint64_t *value = workload.value;
    void **blocks = workload_map(value[BLOCKS] * sizeof *blocks);
    uint64_t random = random_stream(value[SEED], 0);
    struct ledger ledger = {0, 0};

    workload_start(&workload);
    if (value[SIZE] != 0) {
        uint64_t tag = random_next(&random);
        for (uint64_t i = 0; i < value[CYCLES]; i++) cycle_fixed(&ledger, blocks, value[BLOCKS], value[SIZE], tag + i);
    } else {
        for (uint64_t i = 0; i < value[CYCLES]; i++) cycle_mixed(&ledger, blocks, value[BLOCKS], &random);
    }
    workload_stop(&workload, value[BLOCKS] * value[CYCLES]);

    return workload_finish(&workload, &ledger);
}
