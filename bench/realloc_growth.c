/* realloc_growth ROUNDS BLOCKS STEP SEED - blocks grow from 4 KiB to 64 MiB by realloc, in turn, one step each: what
 * counts is whether a large block grows where it is, moves by its page tables, or is copied. STEP is in bytes; 0
 * grows by a quarter, rounded up to 64 KiB. A word of every 4 KiB of each new part is written: to write all of it would
 * cost every allocator the same, and more than the rest. After each step the words at both
 * ends of the old part are read back, and one of every 64 KiB before the block is freed. The seed draws what is
 * written. One operation is one realloc; a round takes every block from 4 KiB to 64 MiB and frees it. */
#include "workload.h"

#define SIZE_FIRST (UINT64_C(4) << 10)
#define SIZE_LAST (UINT64_C(64) << 20)
#define STEP_ROUND (UINT64_C(64) << 10)
#define TOUCH_BYTES 4096
#define BLOCKS_MAX 256

enum { ROUNDS, BLOCKS, STEP, SEED };

static const struct workload_argument arguments[] = {
    {"ROUNDS", 1, WORKLOAD_OPS_MAX, false, 0},
    {"BLOCKS", 1, BLOCKS_MAX, false, 0},
    {"STEP", 0, SIZE_LAST, false, 0},
    ARGUMENT_SEED,
};

struct growth {
    char *block; /* NULL before the first step of a round */
    uint64_t size;
    uint64_t tag; /* the word at offset N is TAG + N */
};

static uint64_t size_next(uint64_t size, uint64_t step) {
    uint64_t next = step != 0 ? size + step : (size + size / 4 + STEP_ROUND - 1) / STEP_ROUND * STEP_ROUND;
    return next < SIZE_LAST ? next : SIZE_LAST;
}

static volatile uint64_t *word_at(const struct growth *growth, uint64_t offset) {
    return (volatile uint64_t *)(void *)(growth->block + offset);
}

static uint64_t last_word(uint64_t size) {
    return (size - 1) / TOUCH_BYTES * TOUCH_BYTES;
}

static void part_write(const struct growth *growth, uint64_t from) {
    uint64_t offset = (from + TOUCH_BYTES - 1) / TOUCH_BYTES * TOUCH_BYTES;
    for (; offset + sizeof(uint64_t) <= growth->size; offset += TOUCH_BYTES) {
        *word_at(growth, offset) = growth->tag + offset;
    }
}

static void word_check(const struct growth *growth, struct ledger *ledger, uint64_t offset) {
    ledger->written += growth->tag + offset;
    ledger->read += *word_at(growth, offset);
}

static void block_open(struct growth *growth, uint64_t *random) {
    *growth = (struct growth){.block = malloc(SIZE_FIRST), .size = SIZE_FIRST, .tag = random_next(random)};
    if (growth->block == NULL) workload_memory_refused(SIZE_FIRST);
    part_write(growth, 0);
}

static void block_grow(struct growth *growth, struct ledger *ledger, uint64_t step) {
    uint64_t before = growth->size;
    growth->size = size_next(before, step);
    char *moved = realloc(growth->block, growth->size);
    if (moved == NULL) workload_memory_refused(growth->size);
    growth->block = moved;
    word_check(growth, ledger, 0);
    word_check(growth, ledger, last_word(before));
    part_write(growth, before);
}

/* Every part that one step wrote has survived the later ones: a word of each 64 KiB. */
static void block_close(const struct growth *growth, struct ledger *ledger) {
    for (uint64_t offset = 0; offset < growth->size; offset += STEP_ROUND) word_check(growth, ledger, offset);
    free(growth->block);
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "realloc_growth", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    if (value[STEP] % sizeof(uint64_t) != 0) workload_fail("STEP is a multiple of 8 bytes");
    struct growth *blocks = workload_map(value[BLOCKS] * sizeof *blocks);
    struct ledger ledger = {0, 0};
    uint64_t random = random_stream(value[SEED], 0), ops = 0;

    workload_start(&workload);
    for (uint64_t round = 0; round < value[ROUNDS]; round++) {
        for (uint64_t i = 0; i < value[BLOCKS]; i++) block_open(&blocks[i], &random);
        while (blocks[0].size < SIZE_LAST) {
            for (uint64_t i = 0; i < value[BLOCKS]; i++) block_grow(&blocks[i], &ledger, value[STEP]);
            ops += value[BLOCKS];
        }
        for (uint64_t i = 0; i < value[BLOCKS]; i++) block_close(&blocks[i], &ledger);
    }
    workload_stop(&workload, ops);
    return workload_finish(&workload, &ledger);
}
