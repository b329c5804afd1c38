/* workloads.c - what the threads do. Each workload reaches a steady state first; then the same is done again, and counted.
 *
 * The tables of blocks are the host's and not seen. Of a block the first word is written when it is made and read
 * before it is freed, as the workloads of bench/ do: the least that a program does with it. */
#include "sharing.h"

#include <stdio.h>
#include <stdlib.h>

struct task task;
uint64_t operations;

static uint64_t next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t *state, uint64_t limit) { return next(state) % limit; }

static uint64_t stream(unsigned core) {
    uint64_t state = task.seed ^ (uint64_t)(core + 1) << 48;
    return next(&state);
}

static _Noreturn void stop(const char *message) {
    fprintf(stderr, "sharing: %s\n", message);
    exit(2);
}

static void *room(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (memory == NULL) stop("out of memory");
    return memory;
}

static void *make(size_t bytes) {
    enum entry before = fibre_enter(ENTRY_MALLOC);
    uint64_t *block = task.allocator->malloc(bytes);
    fibre_enter(before);
    if (block == NULL) stop("the allocator returned NULL");
    fibre_touch(block, sizeof *block, true);
    *block = (uintptr_t)block;
    return block;
}

static void drop(void *block) {
    if (block == NULL) return;
    fibre_touch(block, sizeof(uint64_t), false);
    if (*(uint64_t *)block != (uintptr_t)block) stop("a block is not as it was left");
    enum entry before = fibre_enter(ENTRY_FREE);
    task.allocator->free(block);
    fibre_enter(before);
}

/* Runs WORK for OPS operations, twice; the second time counts. */
static void run_twice(unsigned core, void (*work)(unsigned core, uint64_t ops), uint64_t ops) {
    work(core, ops);
    fibre_barrier();
    if (core == 0) lines_measure();
    fibre_barrier();
    work(core, ops);
    operations += ops;
    fibre_barrier();
    if (core == 0) lines_stop();
    fibre_barrier();
}

/* ---- slots: each operation replaces the block in a random one ------------------------------------- */

static struct slots {
    void **blocks;
    size_t count, least, most;
    uint64_t random;
} slots[CORES_MAX];

static void slots_open(unsigned core, size_t count, size_t least, size_t most) {
    slots[core] = (struct slots){room(count, sizeof(void *)), count, least, most, stream(core)};
    for (size_t i = 0; i < count; i++)
        slots[core].blocks[i] = make(least + below(&slots[core].random, most - least + 1));
}

static void replace(unsigned core, uint64_t ops) {
    struct slots *own = &slots[core];
    for (uint64_t i = 0; i < ops; i++) {
        void **slot = &own->blocks[below(&own->random, own->count)];
        drop(*slot);
        *slot = make(own->least + below(&own->random, own->most - own->least + 1));
    }
}

/* A size for each thread, and never more blocks than it began with. */
static void run_private(unsigned core) {
    uint64_t random = stream(core);
    size_t size = 16 + below(&random, 1009);
    slots_open(core, 64, size, size);
    run_twice(core, replace, task.ops);
}

static void run_mixed(unsigned core) {
    slots_open(core, 256, 16, 1024);
    run_twice(core, replace, task.ops);
}

static void run_mid(unsigned core) {
    slots_open(core, 64, 1 << 10, 32 << 10);
    run_twice(core, replace, task.ops);
}

/* Each block has a span of its own: slow paths, so fewer operations. */
enum { LARGE_SHARE = 8 };

static void run_large(unsigned core) {
    slots_open(core, 8, 65 << 10, 1 << 20);
    run_twice(core, replace, (task.ops + LARGE_SHARE - 1) / LARGE_SHARE);
}

/* ---- producers and consumers: each core of one half with one of the other, far away --------------- */

enum { RING = 256 };

static struct ring {
    void *blocks[RING];
    uint64_t made, dropped;
} rings[CORES_MAX / 2];

static void produce(unsigned core, uint64_t ops) {
    struct ring *ring = &rings[core];
    for (uint64_t i = 0; i < ops; i++) {
        while (ring->made - ring->dropped == RING) fibre_yield();
        void *block = make(16 + below(&slots[core].random, 241));
        ring->blocks[ring->made % RING] = block;
        ring->made++;
    }
}

static void consume(unsigned core, uint64_t ops) {
    struct ring *ring = &rings[core - task.cores / 2];
    for (uint64_t i = 0; i < ops; i++) {
        while (ring->made == ring->dropped) fibre_yield();
        void *block = ring->blocks[ring->dropped % RING];
        ring->dropped++;
        drop(block);
    }
}

static void run_pairs(unsigned core) {
    slots[core].random = stream(core);
    run_twice(core, core < task.cores / 2 ? produce : consume, task.ops);
}

/* ---- blocks that are handed over ------------------------------------------------------------------ */

enum { HANDED = 128 };
static unsigned handed_by; /* how many cores further the slots go next */

/* As larson: a thread replaces random blocks of those it was handed, and hands all to another. */
static void hand_over(unsigned core, uint64_t ops) {
    static struct slots passed[CORES_MAX];
    for (uint64_t done = 0; done < ops; done += HANDED) {
        replace(core, HANDED);
        passed[core] = slots[core];
        fibre_barrier();
        if (core == 0) handed_by = 1 + (unsigned)below(&passed[0].random, task.cores - 1);
        fibre_barrier();
        slots[core] = passed[(core + handed_by) % task.cores];
        fibre_barrier();
    }
}

static void run_larson(unsigned core) {
    slots_open(core, HANDED, 8, 128);
    run_twice(core, hand_over, (task.ops + HANDED - 1) / HANDED * HANDED);
}

/* ---- threads that come and go --------------------------------------------------------------------- */

enum { LIFE = 100 };

/* Frees what the one before left, allocates as much for the next, and ends. */
static void live(unsigned core, uint64_t lives) {
    struct slots *own = &slots[core];
    for (uint64_t life = 0; life < lives; life++) {
        for (size_t i = 0; i < LIFE; i++) {
            drop(own->blocks[i]);
            own->blocks[i] = make(16 + below(&own->random, 241));
        }
        fibre_renew();
    }
}

static void run_churn(unsigned core) {
    slots_open(core, LIFE, 16, 256);
    run_twice(core, live, (task.ops + LIFE - 1) / LIFE);
}

/* ---- one size, whose blocks all threads free ------------------------------------------------------ */

static void *hot[4 * CORES_MAX];

static void use_hot(unsigned core, uint64_t ops) {
    uint64_t *random = &slots[core].random;
    for (uint64_t i = 0; i < ops; i++) {
        void **slot = &hot[below(random, 4 * (uint64_t)task.cores)];
        void *block = *slot;
        *slot = NULL;
        drop(block);
        block = make(64);
        void *other = *slot; /* put there meanwhile */
        *slot = block;
        drop(other);
    }
}

static void run_hot(unsigned core) {
    slots[core].random = stream(core);
    run_twice(core, use_hot, task.ops);
}

/* ---- what must be true of the simulator itself ---------------------------------------------------- */

static _Alignas(128) uint64_t word;
static unsigned turn;

/* The first and the last core write to one line in turns: each turn moves it once. */
static void ping_pong(unsigned core, uint64_t ops) {
    if (core != 0 && core != task.cores - 1) return;
    for (uint64_t i = 0; i < ops; i++) {
        while (turn != core) fibre_yield();
        fibre_touch(&word, sizeof word, true);
        turn = core == 0 ? task.cores - 1 : 0;
    }
}

static void run_ping_pong(unsigned core) { run_twice(core, ping_pong, task.ops); }

/* One writes, then all others read: each needs the line once, and the next write takes all copies away. */
static void tell_all(unsigned core, uint64_t ops) {
    for (uint64_t i = 0; i < ops; i++) {
        if (core == 0) fibre_touch(&word, sizeof word, true);
        fibre_barrier();
        if (core != 0) fibre_touch(&word, sizeof word, false);
        fibre_barrier();
    }
}

static void run_readers(unsigned core) { run_twice(core, tell_all, task.ops); }

/* Each core writes a word of its own, all on one pair of lines. */
static void write_neighbours(unsigned core, uint64_t ops) {
    static _Alignas(128) uint64_t words[CORES_MAX];
    for (uint64_t i = 0; i < ops; i++) fibre_touch(&words[core], sizeof words[core], true);
}

static void run_neighbours(unsigned core) { run_twice(core, write_neighbours, task.ops); }

const struct workload workloads[] = {
    {"private", run_private, "64 blocks of one size each, replaced at random"},
    {"mixed", run_mixed, "256 blocks of 16 to 1024 B each, replaced at random"},
    {"mid", run_mid, "64 blocks of 1 to 32 KiB each, replaced at random"},
    {"large", run_large, "8 blocks of 65 KiB to 1 MiB each, replaced at random"},
    {"pairs", run_pairs, "half of the cores allocate 16 to 256 B, the other half free"},
    {"larson", run_larson, "128 blocks of 8 to 128 B each, replaced, then handed to another"},
    {"churn", run_churn, "threads that replace 100 blocks of 16 to 256 B, and end"},
    {"hot", run_hot, "blocks of 64 B, freed by whoever draws them"},
    {"ping-pong", run_ping_pong, "no allocation: two cores write one line in turns"},
    {"readers", run_readers, "no allocation: one core writes, all others read"},
    {"neighbours", run_neighbours, "no allocation: cores write words of one line"},
};
const unsigned workload_count = sizeof workloads / sizeof workloads[0];
