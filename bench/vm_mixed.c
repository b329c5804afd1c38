/* vm_mixed OPS SLOTS SEED - one thread replaces the block in a random slot by one of 512 KiB to 2 MiB and
 * touches every 4 KiB of it: what counts is whether large memory is reused or asked for and faulted anew. */
#include "replace.h"

#define BLOCK_MIN (UINT64_C(512) << 10)
#define BLOCK_MAX (UINT64_C(2) << 20)
#define TOUCH_BYTES 4096

enum { OPS, SLOTS, SEED };

static const struct workload_argument arguments[] = {ARGUMENT_OPS, ARGUMENT_SLOTS, ARGUMENT_SEED};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "vm_mixed", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct replace replace;
    replace_open(&replace, value[SLOTS], BLOCK_MIN, BLOCK_MAX, value[SEED], 0, value[OPS]);

    workload_start(&workload);
    replace_run(&replace, TOUCH_BYTES);
    workload_stop(&workload, replace.ops);

    replace_close(&replace);
    return workload_finish(&workload, &replace.ledger);
}
