/* mid_mt_gap OPS SLOTS SEED - two threads replace blocks of 1 to 8 KiB in random slots of their own: the gap
 * between what allocators treat as small and as large. */
#include "replace_threads.h"

enum { OPS, SLOTS, SEED };

static const struct workload_argument arguments[] = {ARGUMENT_OPS, ARGUMENT_SLOTS, ARGUMENT_SEED};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "mid_mt_gap", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    return replace_threads_main(&workload, 2, value[OPS], value[SLOTS], 1 << 10, 8 << 10, value[SEED]);
}
