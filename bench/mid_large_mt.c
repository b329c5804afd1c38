/* mid_large_mt THREADS OPS SLOTS SEED - threads replace blocks of 8 to 32 KiB in random slots of their own. */
#include "replace_threads.h"

enum { THREADS, OPS, SLOTS, SEED };

static const struct workload_argument arguments[] = {
    {"THREADS", 1, WORKLOAD_THREADS_MAX, false, 0},
    ARGUMENT_OPS,
    ARGUMENT_SLOTS,
    ARGUMENT_SEED,
};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "mid_large_mt", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    return replace_threads_main(&workload, (unsigned)value[THREADS], value[OPS], value[SLOTS], 8 << 10, 32 << 10,
                                value[SEED]);
}
