/* random_mixed OPS SLOTS SEED [MIN MAX [ALLOCATING]] - one thread replaces the block in a random slot by one of a random
 * size, 16 to 1024 bytes unless told otherwise. One operation is one block replaced.
 *
 * ALLOCATING is the share of operations that allocate, in per cent. With 50, the default, each is a replacement. With
 * more, an operation either allocates a block or frees a random one, so that memory grows until all slots are
 * full; then everything is freed, outside the count of operations, and the next round begins. */
#include "replace.h"

#define ALLOCATING_REPLACE 50

enum { OPS, SLOTS, SEED, MIN, MAX, ALLOCATING };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    ARGUMENT_SLOTS,
    ARGUMENT_SEED,
    {"MIN", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, true, 16},
    {"MAX", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, true, 1024},
    {"ALLOCATING", ALLOCATING_REPLACE, 100, true, ALLOCATING_REPLACE},
};

/* Live blocks fill the slots from the first on. Not inlined, so that the loop of replacements stays as it is. */
static __attribute__((noinline)) void grow_run(struct replace *replace, uint64_t allocating) {
    struct replace local = *replace;
    uint64_t live = 0;
    for (uint64_t i = 0; i < local.ops; i++) {
        uint64_t draw = random_next(&local.random);
        if (live == 0 || random_low(draw, 100) < allocating) {
            if (live == local.slot_count) {
                while (live > 0) block_drop(&local.ledger, local.slots[--live]);
            }
            size_t bytes = local.size_min + random_high(draw, local.size_count);
            local.slots[live++] = block_make(&local.ledger, bytes, draw);
        } else {
            void **slot = &local.slots[random_high(draw, live)];
            block_drop(&local.ledger, *slot);
            *slot = local.slots[--live];
        }
    }
    local.slot_count = live; /* the rest is not to be freed */
    *replace = local;
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "random_mixed", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct replace replace;
    replace_open(&replace, value[SLOTS], value[MIN], value[MAX], value[SEED], 0, value[OPS]);

    workload_start(&workload);
    if (value[ALLOCATING] == ALLOCATING_REPLACE) {
        replace_run(&replace, 0);
    } else {
        grow_run(&replace, value[ALLOCATING]);
    }
    workload_stop(&workload, replace.ops);

    replace_close(&replace);
    return workload_finish(&workload, &replace.ledger);
}
