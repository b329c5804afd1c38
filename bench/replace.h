/* replace.h - the loop behind most workloads: a table of slots, and each operation frees what a random
 * slot holds and puts a new block of a random size there. One operation is one malloc and, once the
 * slots have filled, one free. */
#ifndef BENCH_REPLACE_H
#define BENCH_REPLACE_H

#include "workload.h"

struct replace {
    void **slots;
    uint64_t slot_count;
    uint64_t size_min;
    uint64_t size_count; /* sizes are SIZE_MIN to SIZE_MIN + SIZE_COUNT - 1 */
    uint64_t random;
    uint64_t ops;
    struct ledger ledger;
};

static inline void replace_open(struct replace *replace, uint64_t slot_count, uint64_t size_min, uint64_t size_max,
                                uint64_t seed, unsigned thread, uint64_t ops) {
    if (size_min > size_max) workload_fail("MIN is larger than MAX");
    *replace = (struct replace){
        .slots = workload_map(slot_count * sizeof(void *)),
        .slot_count = slot_count,
        .size_min = size_min,
        .size_count = size_max - size_min + 1,
        .random = random_stream(seed, thread),
        .ops = ops,
    };
}

/* TOUCH_BYTES: one byte is written at each multiple of it inside the block; 0 for none. A constant. */
static inline __attribute__((always_inline)) void replace_run(struct replace *replace, size_t touch_bytes) {
    struct replace local = *replace;
    for (uint64_t i = 0; i < local.ops; i++) {
        uint64_t draw = random_next(&local.random);
        void **slot = &local.slots[random_low(draw, local.slot_count)];
        size_t bytes = local.size_min + random_high(draw, local.size_count);
        if (*slot != NULL) block_drop(&local.ledger, *slot);
        *slot = block_make(&local.ledger, bytes, draw);
        if (touch_bytes != 0) {
            volatile char *block = *slot;
            for (size_t at = touch_bytes; at < bytes; at += touch_bytes) block[at] = (char)draw;
        }
    }
    *replace = local;
}

/* Frees what the slots still hold; not part of the measured time. */
static inline void replace_close(struct replace *replace) {
    for (uint64_t i = 0; i < replace->slot_count; i++) {
        if (replace->slots[i] != NULL) block_drop(&replace->ledger, replace->slots[i]);
    }
}

#endif
