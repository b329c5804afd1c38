/* no_alloc OPS SEED - the negative control: random increments in a table of its own, and not one allocation.
 * No allocator can be faster or slower here; a laboratory that says so is wrong. */
#include "workload.h"

#define TABLE_WORDS (UINT64_C(1) << 15) /* 256 KiB: beyond the first-level cache, within the second */

enum { OPS, SEED };

static const struct workload_argument arguments[] = {ARGUMENT_OPS, ARGUMENT_SEED};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "no_alloc", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    uint64_t *table = workload_map(TABLE_WORDS * sizeof *table);
    uint64_t random = random_stream(value[SEED], 0);
    struct ledger ledger = {0, 0};

    workload_start(&workload);
    for (uint64_t i = 0; i < value[OPS]; i++) {
        uint64_t draw = random_next(&random);
        table[random_low(draw, TABLE_WORDS)] += draw;
        ledger.written += draw;
    }
    workload_stop(&workload, value[OPS]);

    for (uint64_t i = 0; i < TABLE_WORDS; i++) ledger.read += table[i];
    return workload_finish(&workload, &ledger);
}
