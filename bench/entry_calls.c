/* entry_calls CASE CALLS [SEED] - one entry point of malloc's family in one state, CALLS times: for counting instructions,
 * not for timing. CASE is a place in the table below; lab/hakmem_lab/studies/paths.py says what each is for. One operation
 * is one round of the case. */
#include "workload.h"

#include <malloc.h>
#include <pthread.h>
#include <string.h>

#define BLOCKS_MAX 16384

static void *blocks[BLOCKS_MAX];

static void *made(void *block) {
    if (block == NULL) workload_memory_refused(0);
    return block;
}

/* ---- at hand ------------------------------------------------------------------------------------------ */

static void pair(void) { free(made(malloc(64))); }

static void pair_calloc(void) { free(made(calloc(1, 64))); }

static void pair_aligned(void) { free(made(aligned_alloc(128, 128))); }

static void pair_posix_memalign(void) {
    void *block = NULL;
    if (posix_memalign(&block, 64, 64) != 0) workload_memory_refused(64);
    free(block);
}

static void pair_memalign(void) { free(made(memalign(64, 64))); }

static void realloc_stays(void) {
    static void *block;
    if (block == NULL) block = made(malloc(64));
    block = made(realloc(block, 60));
}

static void realloc_moves(void) { free(made(realloc(made(malloc(64)), 200))); }

static void usable_size(void) {
    static void *block;
    if (block == NULL) block = made(malloc(64));
    if (malloc_usable_size(block) < 64) workload_memory_refused(64);
}

static void null_freed(void) {
    static void *volatile nothing;
    free(nothing);
}

/* ---- the slow ways ------------------------------------------------------------------------------------ */

static void burst(unsigned count, size_t bytes) {
    for (unsigned i = 0; i < count; i++) blocks[i] = made(malloc(bytes));
    for (unsigned i = 0; i < count; i++) free(blocks[i]);
}

static void refill_and_spill(void) { burst(BLOCKS_MAX, 64); }

static void slabs(void) { burst(1024, 8192); }

static void large(void) { free(made(malloc(1 << 20))); }

static void large_aligned(void) { free(made(aligned_alloc(1 << 20, 1 << 20))); }

static void large_calloc(void) { free(made(calloc(1, 256 << 10))); }

static void large_growth(void) {
    void *block = made(malloc(128 << 10));
    for (size_t bytes = 192 << 10; bytes <= 2 << 20; bytes += 64 << 10) block = made(realloc(block, bytes));
    free(block);
}

/* ---- threads: one after the other, so that none waits --------------------------------------------------- */

static void thread_run(void *(*body)(void *)) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, body, NULL);
    if (error != 0) workload_fail("a thread cannot start: %s", strerror(error));
    pthread_join(thread, NULL);
}

static void *life(void *unused) {
    (void)unused;
    free(made(malloc(64)));
    return NULL;
}

static void thread_life(void) { thread_run(life); }

static void *free_all(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < 1024; i++) free(blocks[i]);
    return NULL;
}

static void remote_free(void) {
    for (unsigned i = 0; i < 1024; i++) blocks[i] = made(malloc(64));
    thread_run(free_all);
}

static void (*const cases[])(void) = {
    pair,
    pair_calloc,
    pair_aligned,
    pair_posix_memalign,
    pair_memalign,
    realloc_stays,
    realloc_moves,
    usable_size,
    null_freed,
    refill_and_spill,
    slabs,
    large,
    large_aligned,
    large_calloc,
    large_growth,
    thread_life,
    remote_free,
};

enum { CASE, CALLS, SEED };

static const struct workload_argument arguments[] = {
    {"CASE", 0, WORKLOAD_COUNT(cases) - 1, false, 0},
    {"CALLS", 1, UINT64_C(1) << 30, false, 0},
    ARGUMENT_SEED_OPTIONAL,
};

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "entry_calls", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct ledger ledger = {0, 0};

    workload_start(&workload);
    for (uint64_t i = 0; i < value[CALLS]; i++) cases[value[CASE]]();
    workload_stop(&workload, value[CALLS]);
    return workload_finish(&workload, &ledger);
}
