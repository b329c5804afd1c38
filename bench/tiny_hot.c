/* tiny_hot SIZE BATCH CYCLES [SEED] - one thread allocates BATCH blocks of one size and frees them in the order
 * they were allocated, CYCLES times: a first-in first-out burst. */
#include "workload.h"

enum { SIZE, BATCH, CYCLES, SEED };

static const struct workload_argument arguments[] = {
    {"SIZE", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, false, 0},
    {"BATCH", 1, WORKLOAD_SLOTS_MAX, false, 0},
    {"CYCLES", 1, UINT64_C(1) << 36, false, 0},
    ARGUMENT_SEED_OPTIONAL,
};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "tiny_hot", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    void **blocks = workload_map(value[BATCH] * sizeof *blocks);
    uint64_t tag = random_stream(value[SEED], 0);
    struct ledger ledger = {0, 0};

    workload_start(&workload);
    for (uint64_t cycle = 0; cycle < value[CYCLES]; cycle++) {
        for (uint64_t i = 0; i < value[BATCH]; i++) blocks[i] = block_make(&ledger, value[SIZE], tag + cycle + i);
        for (uint64_t i = 0; i < value[BATCH]; i++) block_drop(&ledger, blocks[i]);
    }
    workload_stop(&workload, value[BATCH] * value[CYCLES]);

    return workload_finish(&workload, &ledger);
}
