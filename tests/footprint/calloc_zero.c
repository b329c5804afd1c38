/* calloc_zero.c - calloc gives zeros, whatever happened to the memory before.
 *
 *     calloc_zero SECONDS [SEED]
 *
 * Two threads fill, resize, free and exchange blocks of 16 bytes to 8 MiB; now and then they free nearly
 * all they have, rest, or have everything given back. Every calloc is looked at to its last byte.
 *
 * Planted defects it is to catch: "fresh from the kernel" believed of a slab's hole, of a span that a
 * realloc moved away or cut off, of pages whose return to the kernel failed or was only begun.
 */
#define CHECK_NO_MAIN
#include "footprint.h"

enum { THREADS = 2, SLOTS = 700, LOOKED_AT_LEAST = 5000 /* on a busy machine, too */ };

#define LEAST 16
#define MOST MIB(8)
#define HELD_MOST MIB(64) /* of each thread */

struct held {
    void *block;
    size_t size;
};

static uint64_t first_seed = 1, end_ms;
static void *exchanged[64];
static volatile size_t looked_at;

static void dirty(void *block, size_t size) { memset(block, 0xff, size); }

static void *zeroed(size_t size, struct rng *rng) {
    size_t count = rng_below(rng, 3) ? 1 : size % 8 == 0 ? 8 : size % 3 == 0 ? 3 : 1;
    void *block = calloc(count, size / count);
    CHECK(block != NULL);
    CHECK_AT(block_is_zero(block, size), size);
    __atomic_fetch_add(&looked_at, 1, __ATOMIC_RELAXED);
    dirty(block, size);
    return block;
}

/* Frees nearly everything, so that what stays keeps holes open. */
static void free_nearly_all(struct held *held, size_t *bytes, struct rng *rng) {
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (held[slot].block == NULL || rng_below(rng, 50) == 0) continue;
        free(held[slot].block);
        *bytes -= held[slot].size;
        held[slot] = (struct held){NULL, 0};
    }
    if (rng_below(rng, 2)) sleep_ms(rng_below(rng, 60));
    if (hak_collect && rng_below(rng, 3) == 0) hak_collect();
    if (malloc_trim && rng_below(rng, 8) == 0) malloc_trim(0);
}

/* So long a block is moved by the kernel when it grows beside another. */
static void grow_one(struct rng *rng) {
    const size_t size = MIB(5) + rng_below(rng, MIB(4));
    void *block = malloc(size), *behind = malloc(MIB(1));
    CHECK(block != NULL && behind != NULL);
    dirty(block, size);
    CHECK((block = realloc(block, 2 * size)) != NULL);
    dirty(block, 2 * size);
    free(behind);
    free(block);
}

static void *work(void *argument) {
    struct rng rng = {mix64(first_seed) + ((uint64_t)(uintptr_t)argument << 40)};
    struct held held[SLOTS] = {{NULL, 0}};
    size_t bytes = 0;
    /* The size of this while: one size makes slabs full of holes, all sizes make spans split and merge. */
    size_t usual = 0;
    while (now_ms() < end_ms || looked_at < LOOKED_AT_LEAST) {
        if (rng_below(&rng, 300) == 0) usual = rng_below(&rng, 2) ? rng_log(&rng, LEAST, KIB(64)) : 0;
        size_t slot = rng_below(&rng, SLOTS), dice = rng_below(&rng, 100);
        size_t size = usual && dice % 8 ? usual : rng_log(&rng, LEAST, MOST);
        struct held *at = &held[slot];
        if (rng_below(&rng, 400) == 0) grow_one(&rng);
        if (bytes > HELD_MOST || rng_below(&rng, 2000) == 0) free_nearly_all(held, &bytes, &rng);
        if (at->block != NULL && dice < 35) { /* larger or smaller, often moved */
            size = dice < 10 ? at->size / 2 + 1 : size;
            CHECK((at->block = realloc(at->block, size)) != NULL);
            dirty(at->block, size);
            bytes += size - at->size;
            at->size = size;
        } else if (at->block != NULL && dice < 45) { /* freed by the other thread */
            free(__atomic_exchange_n(&exchanged[slot % 64], at->block, __ATOMIC_ACQ_REL));
            bytes -= at->size;
            *at = (struct held){NULL, 0};
        } else {
            free(at->block);
            bytes -= at->size;
            if (dice < 85) {
                at->block = zeroed(size, &rng);
            } else {
                CHECK((at->block = malloc(size)) != NULL);
                dirty(at->block, size);
            }
            at->size = size;
            bytes += size;
        }
    }
    for (size_t slot = 0; slot < SLOTS; slot++) free(held[slot].block);
    return NULL;
}

int main(int argc, char **argv) {
    check_now.name = "calloc_zero";
    uint64_t seconds = argc > 1 ? strtoul(argv[1], NULL, 10) : 5;
    if (argc > 2) first_seed = strtoul(argv[2], NULL, 10);
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    alarm((unsigned)seconds + 60);
    end_ms = now_ms() + seconds * 1000;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)(i + 1)), 0);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < 64; i++) free(exchanged[i]);
    check_say("ok calloc_zero: %zu blocks, seed %llu", looked_at, (unsigned long long)first_seed);
    return 0;
}
