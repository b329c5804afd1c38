/* exchange THREADS OPS SLOTS SEED - threads replace blocks of 16 to 4096 bytes in random slots of their own, and leave every fourth
 * new one in a place that all share, in exchange for the block that lies there. So a quarter of the blocks is freed by some other
 * thread, some time after it was allocated, like messages, jobs and entries of caches. */
#include "workload.h"

#include <stdatomic.h>

#define BYTES_MIN 16
#define BYTES_MAX 4096
#define PLACES_PER_THREAD 8
#define OPS_PER_EXCHANGE 4

enum { THREADS, OPS, SLOTS, SEED };

static const struct workload_argument arguments[] = {
    {"THREADS", 1, WORKLOAD_THREADS_MAX, false, 0},
    ARGUMENT_OPS,
    ARGUMENT_SLOTS,
    ARGUMENT_SEED,
};

struct place {
    WORKLOAD_APART _Atomic(void *) block;
};

struct exchange_thread {
    WORKLOAD_APART struct place *places;
    uint64_t place_count;
    void **slots;
    uint64_t slot_count;
    uint64_t ops;
    uint64_t random;
    struct ledger ledger;
};

static void *block_draw(struct ledger *ledger, uint64_t *random) {
    uint64_t draw = random_next(random);
    return block_make(ledger, BYTES_MIN + random_high(draw, BYTES_MAX - BYTES_MIN + 1), draw);
}

static void exchange_run(void *context) {
    struct exchange_thread *thread = context;
    struct exchange_thread local = *thread;
    for (uint64_t i = 0; i < local.ops; i++) {
        uint64_t draw = random_next(&local.random);
        void **slot = &local.slots[random_low(draw, local.slot_count)];
        block_drop(&local.ledger, *slot);
        *slot = block_draw(&local.ledger, &local.random);
        if (i % OPS_PER_EXCHANGE != 0) continue;
        struct place *place = &local.places[random_high(draw, local.place_count)];
        /* acq_rel: what was written to either block comes with it. */
        *slot = atomic_exchange_explicit(&place->block, *slot, memory_order_acq_rel);
    }
    *thread = local;
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "exchange", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    unsigned count = (unsigned)value[THREADS];
    uint64_t share = (value[OPS] + count - 1) / count, place_count = (uint64_t)count * PLACES_PER_THREAD;
    struct exchange_thread *threads = workload_map(count * sizeof *threads);
    struct place *places = workload_map(place_count * sizeof *places);
    struct ledger ledger = {0, 0};
    uint64_t random = random_stream(value[SEED], count);
    for (uint64_t i = 0; i < place_count; i++) atomic_init(&places[i].block, block_draw(&ledger, &random));
    for (unsigned i = 0; i < count; i++) {
        threads[i] = (struct exchange_thread){
            .places = places,
            .place_count = place_count,
            .slots = workload_map(value[SLOTS] * sizeof(void *)),
            .slot_count = value[SLOTS],
            .ops = share,
            .random = random_stream(value[SEED], i),
        };
        for (uint64_t k = 0; k < value[SLOTS]; k++) threads[i].slots[k] = block_draw(&ledger, &random);
    }

    workload_start(&workload);
    workload_threads_run(count, exchange_run, threads, sizeof *threads);
    workload_stop(&workload, share * count);

    for (uint64_t i = 0; i < place_count; i++) block_drop(&ledger, atomic_load(&places[i].block));
    for (unsigned i = 0; i < count; i++) {
        for (uint64_t k = 0; k < value[SLOTS]; k++) block_drop(&ledger, threads[i].slots[k]);
        ledger_add(&ledger, &threads[i].ledger);
    }
    return workload_finish(&workload, &ledger);
}
