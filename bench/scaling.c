/* scaling THREADS LIVE SIZE OPS SEED [WAY] - threads replace blocks in random slots of their own; together they hold
 * LIVE bytes in blocks of three quarters of SIZE up to SIZE. Shows the cost of an operation as a function of the number of
 * threads, of live memory and of block size.
 *
 * WAY 0 replaces the block. 1 keeps it and does the rest, the same draws and the same accesses to slot and block: the part
 * of the cost that is due to caches and not to the allocator. 2 replaces it and writes a byte in each 4 KiB of it, so that
 * its memory counts. Each thread fills its slots itself before the clock starts, and frees what is left after it
 * stopped. */
#include "workload.h"

#include <pthread.h>
#include <stdio.h>

#define TOUCH_BYTES 4096

enum { THREADS, LIVE, SIZE, OPS, SEED, WAY };
enum way { REPLACE, KEEP, REPLACE_AND_TOUCH };

static const struct workload_argument arguments[] = {
    {"THREADS", 1, WORKLOAD_THREADS_MAX, false, 0},
    {"LIVE", BLOCK_BYTES_MIN, UINT64_C(1) << 44, false, 0},
    {"SIZE", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, false, 0},
    ARGUMENT_OPS,
    ARGUMENT_SEED,
    {"WAY", REPLACE, REPLACE_AND_TOUCH, true, REPLACE},
};

struct scaling {
    struct workload *workload;
    pthread_barrier_t barrier;
    enum way way;
    uint64_t ops; /* of each thread */
    unsigned threads;
};

struct scaling_thread {
    WORKLOAD_APART struct scaling *scaling;
    bool first;
    void **slots;
    uint64_t slot_count;
    uint64_t size_min;
    uint64_t size_count;
    uint64_t random;
    struct ledger ledger;
};

static size_t size_draw(const struct scaling_thread *thread, uint64_t draw) {
    return thread->size_min + random_high(draw, thread->size_count);
}

static void pages_touch(char *block, size_t bytes, uint64_t draw) {
    volatile char *at = block;
    for (size_t offset = TOUCH_BYTES; offset < bytes; offset += TOUCH_BYTES) at[offset] = (char)draw;
}

static void slots_fill(struct scaling_thread *thread) {
    for (uint64_t i = 0; i < thread->slot_count; i++) {
        uint64_t draw = random_next(&thread->random);
        size_t bytes = size_draw(thread, draw);
        thread->slots[i] = block_make(&thread->ledger, bytes, draw);
        if (thread->scaling->way == REPLACE_AND_TOUCH) pages_touch(thread->slots[i], bytes, draw);
    }
}

static void slots_replace(struct scaling_thread *thread, bool touch) {
    struct scaling_thread local = *thread;
    for (uint64_t i = 0; i < local.scaling->ops; i++) {
        uint64_t draw = random_next(&local.random);
        void **slot = &local.slots[random_low(draw, local.slot_count)];
        size_t bytes = size_draw(&local, draw);
        block_drop(&local.ledger, *slot);
        *slot = block_make(&local.ledger, bytes, draw);
        if (touch) pages_touch(*slot, bytes, draw);
    }
    *thread = local;
}

static void slots_keep(struct scaling_thread *thread) {
    struct scaling_thread local = *thread;
    for (uint64_t i = 0; i < local.scaling->ops; i++) {
        uint64_t draw = random_next(&local.random);
        uint64_t *volatile *slot = (uint64_t *volatile *)&local.slots[random_low(draw, local.slot_count)];
        uint64_t *block = *slot;
        local.ledger.read += *block;
        *block = draw;
        local.ledger.written += draw;
        *slot = block; /* as if another block took its place */
    }
    *thread = local;
}

static void thread_run(void *context) {
    struct scaling_thread *thread = context;
    struct scaling *scaling = thread->scaling;
    slots_fill(thread);
    pthread_barrier_wait(&scaling->barrier);
    if (thread->first) workload_start(scaling->workload);
    pthread_barrier_wait(&scaling->barrier);
    if (scaling->way == KEEP)
        slots_keep(thread);
    else
        slots_replace(thread, scaling->way == REPLACE_AND_TOUCH);
    pthread_barrier_wait(&scaling->barrier);
    if (thread->first) workload_stop(scaling->workload, scaling->ops * scaling->threads);
    pthread_barrier_wait(&scaling->barrier);
    for (uint64_t i = 0; i < thread->slot_count; i++) block_drop(&thread->ledger, thread->slots[i]);
}

/* 0 where the kernel does not say. */
static uint64_t available_bytes(void) {
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL && sscanf(line, "MemAvailable: %llu", &kib) != 1) {}
    fclose(file);
    return kib << 10;
}

/* Of a block larger than a page only the first page is written, unless all are touched. */
static void fit_check(const struct scaling *scaling, uint64_t slots, uint64_t size) {
    uint64_t each = scaling->way == REPLACE_AND_TOUCH || size < TOUCH_BYTES ? size : TOUCH_BYTES;
    uint64_t needed = slots * (each + sizeof(void *)), available = available_bytes();
    if (available != 0 && needed > available)
        workload_fail("%llu MiB of blocks and slots do not fit: %llu MiB are available",
                      (unsigned long long)(needed >> 20), (unsigned long long)(available >> 20));
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "scaling", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    unsigned count = (unsigned)value[THREADS];
    uint64_t size_min = value[SIZE] * 3 / 4 < BLOCK_BYTES_MIN ? BLOCK_BYTES_MIN : value[SIZE] * 3 / 4;
    uint64_t slots = value[LIVE] / ((size_min + value[SIZE]) / 2) / count;
    if (slots == 0) workload_fail("LIVE is too little for a block of SIZE in each thread");
    if (slots > WORKLOAD_SLOTS_MAX) workload_fail("LIVE is too much for blocks of SIZE: more than 2^26 for a thread");
    struct scaling scaling = {
        .workload = &workload,
        .way = (enum way)value[WAY],
        .ops = (value[OPS] + count - 1) / count,
        .threads = count,
    };
    fit_check(&scaling, slots * count, value[SIZE]);
    pthread_barrier_init(&scaling.barrier, NULL, count);
    struct scaling_thread *threads = workload_map(count * sizeof *threads);
    for (unsigned i = 0; i < count; i++) {
        threads[i] = (struct scaling_thread){
            .scaling = &scaling,
            .first = i == 0,
            .slots = workload_map(slots * sizeof(void *)),
            .slot_count = slots,
            .size_min = size_min,
            .size_count = value[SIZE] - size_min + 1,
            .random = random_stream(value[SEED], i),
        };
    }
    workload_threads_run(count, thread_run, threads, sizeof *threads);
    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < count; i++) ledger_add(&ledger, &threads[i].ledger);
    workload_figure_add(&workload, "blocks", slots * count);
    return workload_finish(&workload, &ledger);
}
