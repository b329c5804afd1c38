/* producer_consumer OPS SIZE BATCH SEED [CONSUMERS] - one thread allocates blocks and hands them over in batches, to each
 * consumer in turn through a ring of its own; consumers (1 unless told otherwise) free them. Every free is of another
 * thread's block. SIZE 0 draws 16 to 256 bytes. OPS is rounded up to whole batches; one operation is one block allocated,
 * handed over and freed. */
#include "workload.h"

#define RING_BATCHES 16

enum { OPS, SIZE, BATCH, SEED, CONSUMERS };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"SIZE", 0, WORKLOAD_SIZE_MAX, false, 0},
    {"BATCH", 1, UINT64_C(1) << 20, false, 0},
    ARGUMENT_SEED,
    {"CONSUMERS", 1, WORKLOAD_THREADS_MAX - 1, true, 1},
};

/* One writer for each count. Release on publishing and acquire on reading: the blocks and their contents
 * are seen by the other side. */
struct ring {
    WORKLOAD_APART _Atomic uint64_t produced; /* batches */
    WORKLOAD_APART _Atomic uint64_t consumed; /* batches */
    WORKLOAD_APART void **blocks;
};

/* What all sides read and none writes. */
struct trade {
    struct ring *rings; /* one for each consumer */
    uint64_t consumer_count;
    uint64_t batch;
    uint64_t batch_count; /* in all */
    uint64_t size;
    uint64_t random; /* the producer's */
};

/* The first is the producer's; the others are the consumers', in the order of their rings. */
struct side {
    WORKLOAD_APART const struct trade *trade;
    uint64_t index;
    struct ledger ledger;
};

static void **batch_at(const struct trade *trade, const struct ring *ring, uint64_t turn) {
    return &ring->blocks[turn % RING_BATCHES * trade->batch];
}

static void side_produce(struct side *side) {
    const struct trade *trade = side->trade;
    struct ledger ledger = {0, 0};
    uint64_t random = trade->random;
    for (uint64_t n = 0; n < trade->batch_count; n++) {
        struct ring *ring = &trade->rings[n % trade->consumer_count];
        uint64_t turn = n / trade->consumer_count;
        unsigned spins = 0;
        while (turn - atomic_load_explicit(&ring->consumed, memory_order_acquire) >= RING_BATCHES) {
            workload_spin(&spins);
        }
        void **blocks = batch_at(trade, ring, turn);
        for (uint64_t i = 0; i < trade->batch; i++) {
            uint64_t draw = random_next(&random);
            blocks[i] = block_make(&ledger, block_size_draw(trade->size, draw), draw);
        }
        atomic_store_explicit(&ring->produced, turn + 1, memory_order_release);
    }
    side->ledger = ledger;
}

static void side_consume(struct side *side) {
    const struct trade *trade = side->trade;
    struct ring *ring = &trade->rings[side->index - 1];
    struct ledger ledger = {0, 0};
    for (uint64_t n = side->index - 1; n < trade->batch_count; n += trade->consumer_count) {
        uint64_t turn = n / trade->consumer_count;
        unsigned spins = 0;
        while (atomic_load_explicit(&ring->produced, memory_order_acquire) <= turn) workload_spin(&spins);
        void **blocks = batch_at(trade, ring, turn);
        for (uint64_t i = 0; i < trade->batch; i++) block_drop(&ledger, blocks[i]);
        atomic_store_explicit(&ring->consumed, turn + 1, memory_order_release);
    }
    side->ledger = ledger;
}

static void side_enter(void *context) {
    struct side *side = context;
    if (side->index == 0) {
        side_produce(side);
    } else {
        side_consume(side);
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "producer_consumer", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    workload_size_check(&workload, SIZE);
    const uint64_t *value = workload.value;
    struct trade trade = {
        .rings = workload_map(value[CONSUMERS] * sizeof(struct ring)),
        .consumer_count = value[CONSUMERS],
        .batch = value[BATCH],
        .batch_count = (value[OPS] + value[BATCH] - 1) / value[BATCH],
        .size = value[SIZE],
        .random = random_stream(value[SEED], 0),
    };
    unsigned side_count = 1 + (unsigned)value[CONSUMERS];
    struct side *sides = workload_map(side_count * sizeof *sides);
    for (unsigned i = 0; i < side_count; i++) sides[i] = (struct side){.trade = &trade, .index = i};
    for (unsigned i = 0; i < value[CONSUMERS]; i++) {
        trade.rings[i].blocks = workload_map(RING_BATCHES * value[BATCH] * sizeof(void *));
    }

    workload_start(&workload);
    workload_threads_run(side_count, side_enter, sides, sizeof *sides);
    workload_stop(&workload, trade.batch_count * trade.batch);

    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < side_count; i++) ledger_add(&ledger, &sides[i].ledger);
    return workload_finish(&workload, &ledger);
}
