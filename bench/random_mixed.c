/* random_mixed OPS SLOTS SEED [MIN MAX] - one thread replaces the block in a random slot by one of a random
 * size, 16 to 1024 bytes unless told otherwise. */
#include "replace.h"

enum { OPS, SLOTS, SEED, MIN, MAX };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    ARGUMENT_SLOTS,
    ARGUMENT_SEED,
    {"MIN", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, true, 16},
    {"MAX", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, true, 1024},
};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "random_mixed", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    if (value[MIN] > value[MAX]) workload_fail("MIN is larger than MAX");
    struct replace replace;
    replace_open(&replace, value[SLOTS], value[MIN], value[MAX], value[SEED], 0, value[OPS]);

    workload_start(&workload);
    replace_run(&replace, 0);
    workload_stop(&workload, replace.ops);

    replace_close(&replace);
    return workload_finish(&workload, &replace.ledger);
}
