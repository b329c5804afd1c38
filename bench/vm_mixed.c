/* vm_mixed OPS SLOTS SEED [MIN MAX] - one thread replaces the block in a random slot by one of 512 KiB to 2 MiB, unless told
 * otherwise, and touches every 4 KiB of it: what counts is whether large memory is reused or asked for and faulted anew. One
 * operation is one block replaced. The first half of OPS only warms up, and the second is counted: by then the slots have
 * long filled if OPS is several times SLOTS. The cost of the first touch of memory is left to other workloads. */
#include "replace.h"

#define TOUCH_BYTES 4096

enum { OPS, SLOTS, SEED, MIN, MAX };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    ARGUMENT_SLOTS,
    ARGUMENT_SEED,
    {"MIN", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, true, UINT64_C(512) << 10},
    {"MAX", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, true, UINT64_C(2) << 20},
};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "vm_mixed", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    uint64_t steady_ops = value[OPS] / 2;
    struct replace replace;
    replace_open(&replace, value[SLOTS], value[MIN], value[MAX], value[SEED], 0, value[OPS] - steady_ops);

    replace_run(&replace, TOUCH_BYTES);
    replace.ops = steady_ops;
    workload_start(&workload);
    replace_run(&replace, TOUCH_BYTES);
    workload_stop(&workload, steady_ops);
    replace_close(&replace);
    return workload_finish(&workload, &replace.ledger);
}
