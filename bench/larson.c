/* larson SECONDS MIN MAX BLOCKS ROUNDS SEED THREADS - a server that hands work on: each of THREADS chains owns
 * BLOCKS blocks and replaces random ones; after ROUNDS times BLOCKS replacements its thread starts a successor,
 * leaves it the blocks, and ends. So blocks outlive the thread that allocated them. Sizes are MIN to MAX - 1
 * bytes, as the classic program has it. It runs for SECONDS, so the checksum differs from run to run; the sums are
 * checked all the same. */
#include "turn_clock.h"
#include "workload.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define STOP_CHECK_OPS 256

enum { SECONDS, MIN, MAX, BLOCKS, ROUNDS, SEED, THREADS };

static const struct workload_argument arguments[] = {
    {"SECONDS", 1, 86400, false, 0},
    {"MIN", BLOCK_BYTES_MIN, WORKLOAD_SIZE_MAX, false, 0},
    {"MAX", BLOCK_BYTES_MIN + 1, WORKLOAD_SIZE_MAX, false, 0},
    {"BLOCKS", 1, WORKLOAD_SLOTS_MAX, false, 0},
    {"ROUNDS", 1, UINT64_C(1) << 30, false, 0},
    ARGUMENT_SEED,
    {"THREADS", 1, WORKLOAD_THREADS_MAX, false, 0},
};

/* Shared by all: written once by main, counted down by the last thread of each chain. Release and acquire
 * hand the chain's blocks and sums back to main. */
struct server {
    WORKLOAD_APART atomic_bool stop;
    WORKLOAD_APART _Atomic unsigned alive;
};

/* Belongs to the chain's present thread. */
struct chain {
    WORKLOAD_APART struct server *server;
    void **blocks;
    uint64_t block_count;
    uint64_t size_min;
    uint64_t size_count;
    uint64_t generation_ops;
    uint64_t random;
    uint64_t ops;
    uint64_t generations;
    struct ledger ledger;
};

static bool chain_stopped(const struct chain *chain) {
    return atomic_load_explicit(&chain->server->stop, memory_order_relaxed); /* a hint to end soon */
}

static void *chain_run(void *argument);

static void chain_thread_start(struct chain *chain) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, chain_run, chain);
    pthread_attr_destroy(&attributes);
    if (error != 0) workload_fail("a thread cannot start: %s", strerror(error));
}

static void *chain_run(void *argument) {
    struct chain *chain = argument;
    struct chain local = *chain;
    local.generations++;
    for (uint64_t i = 0; i < local.generation_ops; i++) {
        if (i % STOP_CHECK_OPS == 0 && chain_stopped(&local)) break;
        uint64_t draw = random_next(&local.random);
        void **slot = &local.blocks[random_low(draw, local.block_count)];
        block_drop(&local.ledger, *slot);
        *slot = block_make(&local.ledger, local.size_min + random_high(draw, local.size_count), draw);
        local.ops++;
    }
    *chain = local;
    if (chain_stopped(chain)) {
        atomic_fetch_sub_explicit(&chain->server->alive, 1, memory_order_release);
    } else {
        chain_thread_start(chain);
    }
    return NULL;
}

static void chain_open(struct chain *chain, struct server *server, const uint64_t *value, unsigned index) {
    *chain = (struct chain){
        .server = server,
        .blocks = workload_map(value[BLOCKS] * sizeof(void *)),
        .block_count = value[BLOCKS],
        .size_min = value[MIN],
        .size_count = value[MAX] - value[MIN],
        .generation_ops = value[ROUNDS] * value[BLOCKS],
        .random = random_stream(value[SEED], index),
    };
    for (uint64_t i = 0; i < chain->block_count; i++) {
        uint64_t draw = random_next(&chain->random);
        chain->blocks[i] = block_make(&chain->ledger, chain->size_min + random_high(draw, chain->size_count), draw);
    }
}

static void server_run(struct server *server, uint64_t seconds) {
    uint64_t end = turn_clock_ns() + seconds * NS_PER_SECOND;
    for (uint64_t now; (now = turn_clock_ns()) < end;) { /* the clock may have stood still meanwhile */
        uint64_t left = end - now;
        struct timespec rest = {.tv_sec = (time_t)(left / NS_PER_SECOND), .tv_nsec = (long)(left % NS_PER_SECOND)};
        nanosleep(&rest, NULL);
    }
    atomic_store_explicit(&server->stop, true, memory_order_relaxed);
    struct timespec moment = {.tv_sec = 0, .tv_nsec = 100000};
    while (atomic_load_explicit(&server->alive, memory_order_acquire) != 0) nanosleep(&moment, NULL);
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "larson", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    workload.by_clock = true;
    if (value[MIN] >= value[MAX]) workload_fail("MIN must be smaller than MAX");
    unsigned count = (unsigned)value[THREADS];
    struct server *server = workload_map(sizeof *server);
    struct chain *chains = workload_map(count * sizeof *chains);
    for (unsigned i = 0; i < count; i++) chain_open(&chains[i], server, value, i);
    atomic_store_explicit(&server->alive, count, memory_order_relaxed); /* no thread yet */

    workload_start(&workload);
    for (unsigned i = 0; i < count; i++) chain_thread_start(&chains[i]);
    server_run(server, value[SECONDS]);
    uint64_t ops = 0, generations = 0;
    for (unsigned i = 0; i < count; i++) {
        ops += chains[i].ops;
        generations += chains[i].generations;
    }
    workload_stop(&workload, ops);

    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < count; i++) {
        for (uint64_t n = 0; n < value[BLOCKS]; n++) block_drop(&chains[i].ledger, chains[i].blocks[n]);
        ledger_add(&ledger, &chains[i].ledger);
    }
    workload_figure_add(&workload, "thread_generations", generations);
    return workload_finish(&workload, &ledger);
}
