/* fixed_size OPS SIZE SLOTS [SEED] - one thread replaces the block in a random slot by one of the same size. */
#include "replace.h"

enum { OPS, SIZE, SLOTS, SEED };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"SIZE", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, false, 0},
    ARGUMENT_SLOTS,
    ARGUMENT_SEED_OPTIONAL,
};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "fixed_size", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct replace replace;
    replace_open(&replace, value[SLOTS], value[SIZE], value[SIZE], value[SEED], 0, value[OPS]);

    workload_start(&workload);
    replace_run(&replace, 0);
    workload_stop(&workload, replace.ops);

    replace_close(&replace);
    return workload_finish(&workload, &replace.ledger);
}
