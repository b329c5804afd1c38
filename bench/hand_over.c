/* hand_over OPS BLOCKS SIZE SEED [WRITES] - two threads, two sets of BLOCKS blocks. In each round a thread replaces every
 * block of one set, in scattered order, writes to each WRITES times more, and then the sets change hands: so each
 * thread frees what the other allocated and allocates what the other will free. SIZE 0 draws 16 to 256 bytes. One operation is
 * one block replaced; OPS counts over both threads and is rounded up to whole rounds. */
#include "workload.h"

enum { OPS, BLOCKS, SIZE, SEED, WRITES };

static const struct workload_argument arguments[] = {
    ARGUMENT_OPS,
    {"BLOCKS", 1, WORKLOAD_SLOTS_MAX, false, 0},
    {"SIZE", 0, WORKLOAD_SIZE_MAX, false, 0},
    ARGUMENT_SEED,
    {"WRITES", 0, 1000, true, 0},
};

struct exchange {
    WORKLOAD_APART _Atomic uint64_t arrivals; /* threads that have finished a round, over all rounds */
    WORKLOAD_APART void **sets[2];
    uint64_t block_count;
    uint64_t round_count;
    uint64_t size;
    uint64_t write_count;
};

struct thread {
    WORKLOAD_APART struct exchange *exchange;
    unsigned index;
    uint64_t random;
    struct ledger ledger;
};

/* A step through COUNT places that visits each once: it has no divisor in common with COUNT. */
static uint64_t stride_draw(uint64_t *random, uint64_t count) {
    for (;;) {
        uint64_t stride = 1 + random_low(random_next(random), count);
        uint64_t a = stride, b = count;
        while (b != 0) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return stride;
    }
}

static void set_write(void **set, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        volatile uint64_t *tag = set[i];
        *tag = *tag;
    }
}

static void set_replace(struct thread *thread, void **set, const struct exchange *exchange) {
    struct ledger ledger = thread->ledger;
    uint64_t random = thread->random;
    uint64_t count = exchange->block_count;
    uint64_t stride = stride_draw(&random, count);
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t draw = random_next(&random);
        if (set[at] != NULL) block_drop(&ledger, set[at]);
        set[at] = block_make(&ledger, block_size_draw(exchange->size, draw), draw);
        at += stride;
        if (at >= count) at -= count;
    }
    thread->ledger = ledger;
    thread->random = random;
    for (uint64_t n = 0; n < exchange->write_count; n++) set_write(set, count);
}

static void thread_run(void *context) {
    struct thread *thread = context;
    struct exchange *exchange = thread->exchange;
    for (uint64_t round = 0; round < exchange->round_count; round++) {
        set_replace(thread, exchange->sets[(thread->index + round) % 2], exchange);
        /* Both directions: this thread's blocks become visible and the other's are seen. */
        atomic_fetch_add_explicit(&exchange->arrivals, 1, memory_order_acq_rel);
        unsigned spins = 0;
        while (atomic_load_explicit(&exchange->arrivals, memory_order_acquire) < 2 * (round + 1)) {
            workload_spin(&spins);
        }
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "hand_over", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    workload_size_check(&workload, SIZE);
    const uint64_t *value = workload.value;
    struct exchange *exchange = workload_map(sizeof *exchange);
    exchange->block_count = value[BLOCKS];
    exchange->round_count = (value[OPS] + 2 * value[BLOCKS] - 1) / (2 * value[BLOCKS]);
    exchange->size = value[SIZE];
    exchange->write_count = value[WRITES];
    struct thread *threads = workload_map(2 * sizeof *threads);
    for (unsigned i = 0; i < 2; i++) {
        exchange->sets[i] = workload_map(value[BLOCKS] * sizeof(void *));
        threads[i].exchange = exchange;
        threads[i].index = i;
        threads[i].random = random_stream(value[SEED], i);
    }

    workload_start(&workload);
    workload_threads_run(2, thread_run, threads, sizeof *threads);
    workload_stop(&workload, exchange->round_count * 2 * value[BLOCKS]);

    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < 2; i++) {
        for (uint64_t n = 0; n < value[BLOCKS]; n++) block_drop(&ledger, exchange->sets[i][n]);
        ledger_add(&ledger, &threads[i].ledger);
    }
    return workload_finish(&workload, &ledger);
}
