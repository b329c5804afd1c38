/* phase_change OPS SLOTS SEED - one thread whose sizes and lifetimes shift abruptly, as a program's do when it goes from
 * reading to computing to writing. Four phases follow each other in a circle:
 *
 *   16 to 256 B      over SLOTS slots          live long
 *   1 to 16 KiB      over SLOTS / 8 slots
 *   16 to 1024 B     over SLOTS / 64 slots     die young
 *   32 to 256 KiB    over SLOTS / 128 slots
 *
 * Within a phase the block in a random slot is replaced. When a phase ends, all its blocks are freed at once but one in
 * sixteen, drawn by the seed; these stay until the same phase comes again. So memory that was cut for one phase has to
 * serve the next around what was left. Sizes are drawn evenly; a byte in every 4 KiB is written. One operation is one
 * block replaced. */
#include "workload.h"

#define TOUCH_BYTES 4096
#define KEPT_ONE_IN 16

enum { OPS, SLOTS, SEED };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"SLOTS", 128, WORKLOAD_SLOTS_MAX, false, 0},
    ARGUMENT_SEED,
};

static const struct kind {
    uint64_t size_min;
    uint64_t size_max;
    uint64_t slots_divisor;
    uint64_t turns; /* operations for each slot: how long the phase is */
} kinds[] = {
    {16, 256, 1, 4},
    {1 << 10, 16 << 10, 8, 8},
    {16, 1 << 10, 64, 256},
    {32 << 10, 256 << 10, 128, 16},
};

#define KINDS WORKLOAD_COUNT(kinds)

struct phases {
    void **slots[KINDS];
    uint64_t slot_count[KINDS];
    uint64_t random;
    struct ledger ledger;
};

static void block_replace(struct phases *phases, void **slot, const struct kind *kind, uint64_t draw) {
    size_t bytes = kind->size_min + random_high(draw, kind->size_max - kind->size_min + 1);
    if (*slot != NULL) block_drop(&phases->ledger, *slot);
    *slot = block_make(&phases->ledger, bytes, draw);
    volatile char *block = *slot;
    for (size_t at = TOUCH_BYTES; at < bytes; at += TOUCH_BYTES) block[at] = (char)draw;
}

static void phase_run(struct phases *phases, unsigned kind, uint64_t ops) {
    for (uint64_t i = 0; i < ops; i++) {
        uint64_t draw = random_next(&phases->random);
        void **slot = &phases->slots[kind][random_low(draw, phases->slot_count[kind])];
        block_replace(phases, slot, &kinds[kind], draw);
    }
}

static void phase_end(struct phases *phases, unsigned kind) {
    for (uint64_t i = 0; i < phases->slot_count[kind]; i++) {
        void **slot = &phases->slots[kind][i];
        if (*slot == NULL || random_low(random_next(&phases->random), KEPT_ONE_IN) == 0) continue;
        block_drop(&phases->ledger, *slot);
        *slot = NULL;
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "phase_change", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct phases phases = {.random = random_stream(value[SEED], 0)};
    for (unsigned kind = 0; kind < KINDS; kind++) {
        phases.slot_count[kind] = value[SLOTS] / kinds[kind].slots_divisor;
        phases.slots[kind] = workload_map(phases.slot_count[kind] * sizeof(void *));
    }
    uint64_t phase_count = 0;

    workload_start(&workload);
    for (uint64_t done = 0; done < value[OPS]; phase_count++) {
        unsigned kind = phase_count % KINDS;
        uint64_t ops = phases.slot_count[kind] * kinds[kind].turns;
        if (ops > value[OPS] - done) ops = value[OPS] - done;
        phase_run(&phases, kind, ops);
        phase_end(&phases, kind);
        done += ops;
    }
    workload_stop(&workload, value[OPS]);

    for (unsigned kind = 0; kind < KINDS; kind++) {
        for (uint64_t i = 0; i < phases.slot_count[kind]; i++) {
            if (phases.slots[kind][i] != NULL) block_drop(&phases.ledger, phases.slots[kind][i]);
        }
    }
    workload_figure_add(&workload, "phases", phase_count);
    return workload_finish(&workload, &phases.ledger);
}
