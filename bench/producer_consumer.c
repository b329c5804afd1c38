/* producer_consumer OPS SIZE BATCH SEED - one thread allocates blocks and hands them over in batches through a
 * ring; the other frees them. Every free is of a foreign block. SIZE 0 draws 16 to 256 bytes. OPS is rounded
 * up to whole batches; one operation is one block allocated, handed over and freed. */
#include "workload.h"

#define RING_BATCHES 16

enum { OPS, SIZE, BATCH, SEED };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"SIZE", 0, WORKLOAD_SIZE_MAX, false, 0},
    {"BATCH", 1, UINT64_C(1) << 20, false, 0},
    ARGUMENT_SEED,
};

/* One writer for each count. Release on publishing and acquire on reading: the blocks and their contents
 * are seen by the other side. */
struct ring {
    WORKLOAD_APART _Atomic uint64_t produced; /* batches */
    WORKLOAD_APART _Atomic uint64_t consumed; /* batches */
    WORKLOAD_APART void **blocks;
    uint64_t batch;
    uint64_t batch_count; /* in all */
    uint64_t size;
    uint64_t random;
};

struct side {
    WORKLOAD_APART struct ring *ring;
    void (*run)(struct side *side);
    struct ledger ledger;
};

static void side_produce(struct side *side) {
    struct ring *ring = side->ring;
    struct ledger ledger = {0, 0};
    uint64_t random = ring->random;
    for (uint64_t n = 0; n < ring->batch_count; n++) {
        unsigned spins = 0;
        while (n - atomic_load_explicit(&ring->consumed, memory_order_acquire) >= RING_BATCHES) workload_spin(&spins);
        void **blocks = &ring->blocks[n % RING_BATCHES * ring->batch];
        for (uint64_t i = 0; i < ring->batch; i++) {
            uint64_t draw = random_next(&random);
            blocks[i] = block_make(&ledger, block_size_draw(ring->size, draw), draw);
        }
        atomic_store_explicit(&ring->produced, n + 1, memory_order_release);
    }
    side->ledger = ledger;
}

static void side_consume(struct side *side) {
    struct ring *ring = side->ring;
    struct ledger ledger = {0, 0};
    for (uint64_t n = 0; n < ring->batch_count; n++) {
        unsigned spins = 0;
        while (atomic_load_explicit(&ring->produced, memory_order_acquire) <= n) workload_spin(&spins);
        void **blocks = &ring->blocks[n % RING_BATCHES * ring->batch];
        for (uint64_t i = 0; i < ring->batch; i++) block_drop(&ledger, blocks[i]);
        atomic_store_explicit(&ring->consumed, n + 1, memory_order_release);
    }
    side->ledger = ledger;
}

static void side_enter(void *context) {
    struct side *side = context;
    side->run(side);
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "producer_consumer", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    workload_size_check(&workload, SIZE);
    const uint64_t *value = workload.value;
    struct ring *ring = workload_map(sizeof *ring);
    ring->blocks = workload_map(RING_BATCHES * value[BATCH] * sizeof(void *));
    ring->batch = value[BATCH];
    ring->batch_count = (value[OPS] + value[BATCH] - 1) / value[BATCH];
    ring->size = value[SIZE];
    ring->random = random_stream(value[SEED], 0);
    struct side *sides = workload_map(2 * sizeof *sides);
    sides[0].ring = sides[1].ring = ring;
    sides[0].run = side_produce;
    sides[1].run = side_consume;

    workload_start(&workload);
    workload_threads_run(2, side_enter, sides, sizeof *sides);
    workload_stop(&workload, ring->batch_count * ring->batch);

    struct ledger ledger = {0, 0};
    ledger_add(&ledger, &sides[0].ledger);
    ledger_add(&ledger, &sides[1].ledger);
    return workload_finish(&workload, &ledger);
}
