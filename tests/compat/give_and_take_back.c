/* give_and_take_back.c - memory of all sizes is taken, freed, given back to the kernel and taken again: every call that
 * hakmem makes of the kernel is made, with the contents of what stays live verified.
 *
 * tests/system/test_page_size.py and test_address_space.py run it on kernels of other kinds.
 *
 * Planted defect that it catches there: tests/defects/pages_of_4_kib.toml.
 */
#include "../preload/served.h" /* first: it says _GNU_SOURCE */
#include "blocks.h"

#include <malloc.h>

extern int malloc_trim(size_t pad) __attribute__((weak)); /* musl has none */

enum { BLOCKS = 4000, ROUNDS = 6 };

static struct {
    char *block;
    size_t bytes;
} held[BLOCKS];

static void take(size_t i, struct rng *rng) {
    held[i].bytes = rng_size(rng, 60);
    held[i].block = i % 5 == 0 ? calloc(1, held[i].bytes) : malloc(held[i].bytes);
    CHECK(held[i].block != NULL);
    if (i % 5 == 0) CHECK(block_is_zero(held[i].block, held[i].bytes));
    block_fill(held[i].block, held[i].bytes, block_key(held[i].block, i));
}

static void give(size_t i) {
    CHECK_AT(block_holds(held[i].block, held[i].bytes, block_key(held[i].block, i)), i);
    free(held[i].block);
    held[i].block = NULL;
}

TEST(memory_goes_to_the_kernel_and_comes_again) {
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < BLOCKS; i++) take(i, &rng);
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < BLOCKS; i++)
            if (rng_below(&rng, 10) != 0) give(i);
        if (malloc_trim != NULL) malloc_trim(0);
        for (size_t i = 0; i < BLOCKS; i++)
            if (held[i].block == NULL) take(i, &rng);
    }
    for (size_t i = 0; i < BLOCKS; i++) give(i);
}

TEST(large_blocks_grow) {
    for (size_t first = KIB(70); first < MIB(4); first *= 3) {
        char *block = malloc(first), *wall = malloc(first);
        CHECK(block != NULL && wall != NULL);
        block_fill(block, first, 7);
        for (size_t bytes = first + 1; bytes < first * 20; bytes += bytes / 3) {
            block = realloc(block, bytes);
            CHECK(block != NULL && block_holds(block, first, 7));
            block[bytes - 1] = 1;
        }
        free(block);
        free(wall);
    }
}

TEST(aligned_blocks_of_every_page_size) {
    for (size_t alignment = 4096; alignment <= MIB(2); alignment *= 2) {
        void *blocks[20];
        for (size_t i = 0; i < 20; i++) {
            blocks[i] = memalign(alignment, alignment / 3 + i * 1000);
            CHECK(blocks[i] != NULL && is_aligned(blocks[i], alignment));
            memset(blocks[i], 1, alignment / 3 + i * 1000);
        }
        for (size_t i = 0; i < 20; i++) free(blocks[i]);
    }
}

/* By pages, whatever they are. */
TEST(valloc_is_aligned_to_a_page) {
    void *block = valloc(100);
    CHECK(block != NULL && is_aligned(block, (size_t)sysconf(_SC_PAGESIZE)));
    free(block);
}

static void *use_memory(void *number) {
    struct rng rng = {(uintptr_t)number};
    for (size_t i = 0; i < 3000; i++) {
        size_t bytes = rng_size(&rng, 100);
        char *block = malloc(bytes);
        CHECK(block != NULL);
        memset(block, 1, bytes);
        free(block);
    }
    return NULL;
}

TEST(the_purge_thread_gives_back) {
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, use_memory, (void *)i), 0);
    for (size_t i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    char *large = malloc(MIB(64));
    CHECK(large != NULL);
    memset(large, 1, MIB(64));
    free(large);
    use_memory(NULL);
    usleep(300 * 1000);
    use_memory(NULL);
}
