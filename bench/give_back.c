/* give_back MIB SEED - what a process keeps after its load is gone: one thread allocates MIB MiB of blocks of 100 bytes
 * to 64 KiB and writes all of each, another frees 99 in 100 of them, drawn by the seed, and then both do nothing for ten
 * seconds. The JSON line has the resident memory 0, 1, 2, 5 and 10 s after the last free, before the first block and at
 * full load, and the pages that hold a byte of a live block, which no allocator can return; all in KiB. One operation is
 * one block. Sizes are drawn evenly on a logarithmic scale. */
#include "resident.h"
#include "workload.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BYTES_MIN 100
#define BYTES_MAX (UINT64_C(64) << 10)
#define MIB_MAX (UINT64_C(64) << 10)
#define KEPT_ONE_IN 100
#define BYTES_PER_BLOCK 2048 /* room in the table: a fifth of the mean size */
#define PAGE_BYTES 4096

enum { MIB, SEED };

static const struct workload_argument arguments[] = {{"MIB", 1, MIB_MAX, false, 0}, ARGUMENT_SEED};

static const struct {
    const char *name;
    unsigned second;
} moments[] = {
    {"rss_kib_after_0s", 0}, {"rss_kib_after_1s", 1},   {"rss_kib_after_2s", 2},
    {"rss_kib_after_5s", 5}, {"rss_kib_after_10s", 10},
};

struct held {
    void *block;
    uint64_t bytes;
};

/* Handed to the freeing thread by its creation, and back by the end of its work: release and acquire on DONE. The
 * thread then waits for the end of the process, so that its cache of blocks is not flushed by its exit. */
struct load {
    struct held *blocks;
    uint64_t room;
    uint64_t count;
    uint64_t random;
    struct ledger ledger;
    atomic_bool done;
};

static void load_make(struct load *load, uint64_t bytes) {
    for (uint64_t made = 0; made < bytes && load->count < load->room; load->count++) {
        struct held *held = &load->blocks[load->count];
        uint64_t draw = random_next(&load->random);
        held->bytes = random_log(draw, BYTES_MIN, BYTES_MAX);
        held->block = block_make(&load->ledger, held->bytes, draw);
        memset((char *)held->block + sizeof draw, 0xa5, held->bytes - sizeof draw);
        made += held->bytes;
    }
}

static void *most_free(void *argument) {
    struct load *load = argument;
    for (uint64_t i = 0; i < load->count; i++) {
        if (random_low(random_next(&load->random), KEPT_ONE_IN) == 0) continue;
        block_drop(&load->ledger, load->blocks[i].block);
        load->blocks[i].block = NULL;
    }
    atomic_store_explicit(&load->done, true, memory_order_release);
    for (;;) pause();
    return NULL;
}

static int number_compare(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* How many pages hold a byte of a live block. PAGES has room for the numbers of all of them. */
static uint64_t live_pages_count(const struct load *load, uint64_t *pages) {
    uint64_t count = 0, distinct = 0;
    for (uint64_t i = 0; i < load->count; i++) {
        uint64_t start = (uint64_t)(uintptr_t)load->blocks[i].block;
        if (start == 0) continue;
        for (uint64_t page = start / PAGE_BYTES; page <= (start + load->blocks[i].bytes - 1) / PAGE_BYTES; page++) {
            pages[count++] = page;
        }
    }
    qsort(pages, count, sizeof *pages, number_compare);
    for (uint64_t i = 0; i < count; i++) distinct += i == 0 || pages[i] != pages[i - 1];
    return distinct;
}

static uint64_t pages_max(const struct load *load) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < load->count; i++) {
        if (load->blocks[i].block != NULL) sum += load->blocks[i].bytes / PAGE_BYTES + 2;
    }
    return sum;
}

static void wait_until(const struct timespec *start, unsigned second) {
    struct timespec moment = {start->tv_sec + second, start->tv_nsec};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL) != 0) {}
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "give_back", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    uint64_t bytes = workload.value[MIB] << 20;
    static struct load load;
    load.room = bytes / BYTES_PER_BLOCK;
    load.blocks = workload_map(load.room * sizeof *load.blocks);
    load.random = random_stream(workload.value[SEED], 0);
    workload_figure_add(&workload, "rss_kib_before", rss_kib_read());

    workload_start(&workload);
    load_make(&load, bytes);
    workload_figure_add(&workload, "rss_kib_loaded", rss_kib_read());
    pthread_t thread;
    int error = pthread_create(&thread, NULL, most_free, &load);
    if (error != 0) workload_fail("a thread cannot start: %s", strerror(error));
    unsigned spins = 0;
    while (!atomic_load_explicit(&load.done, memory_order_acquire)) workload_spin(&spins);
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (unsigned i = 0; i < WORKLOAD_COUNT(moments); i++) {
        wait_until(&start, moments[i].second);
        workload_figure_add(&workload, moments[i].name, rss_kib_read());
    }
    workload_stop(&workload, load.count);

    uint64_t *pages = workload_map(pages_max(&load) * sizeof *pages);
    workload_figure_add(&workload, "live_pages_kib", live_pages_count(&load, pages) * (PAGE_BYTES / 1024));
    for (uint64_t i = 0; i < load.count; i++) {
        if (load.blocks[i].block != NULL) block_drop(&load.ledger, load.blocks[i].block);
    }
    return workload_finish(&workload, &load.ledger);
}
