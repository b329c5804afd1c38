/* usable_size_test.c - malloc_usable_size: enough, writable, the same for the block's life.
 *
 * Planted defects it was seen to catch:
 *   16 bytes too long                     all_that_is_usable_belongs_to_the_block
 *   follows the last request of the class the_size_stays_the_same_while_others_come_and_go
 *   crash on NULL                         null_has_no_bytes
 */
#include "blocks.h"

static size_t sizes[5000];

TEST(null_has_no_bytes) { CHECK_EQ(hak_usable_size(NULL), 0); }

/* Three blocks taken in turn lie side by side in most classes: the middle one is written whole. */
TEST(all_that_is_usable_belongs_to_the_block) {
    size_t count = class_sizes(sizes, check_count(3000), KIB(256));
    for (size_t i = 0; i < count; i++) {
        void *blocks[3];
        for (int j = 0; j < 3; j++) {
            blocks[j] = hak_malloc(sizes[i]);
            CHECK(blocks[j] != NULL);
            block_fill(blocks[j], hak_usable_size(blocks[j]), (uint64_t)j);
        }
        memset(blocks[1], 0xff, hak_usable_size(blocks[1]));
        CHECK_AT(block_holds(blocks[0], hak_usable_size(blocks[0]), 0), sizes[i]);
        CHECK_AT(block_holds(blocks[2], hak_usable_size(blocks[2]), 2), sizes[i]);
        for (int j = 0; j < 3; j++) hak_free(blocks[j]);
    }
}

#ifndef TEST_AGAINST_LIBC /* glibc's heap and its mappings round differently */
TEST(a_larger_request_is_never_given_less) {
    size_t before = 0;
    for (size_t request = 0; request <= KIB(64); request++) {
        void *block = hak_malloc(request);
        size_t usable = hak_usable_size(block);
        CHECK_AT(usable >= before, request);
        hak_free(block);
        before = usable;
    }
}
#endif

enum { WATCHED = 300 };
static struct {
    void *block;
    size_t usable;
} watched[WATCHED];

static void check_watched(void) {
    for (size_t i = 0; i < WATCHED; i++) CHECK_AT(hak_usable_size(watched[i].block) == watched[i].usable, i);
}

static void *check_from_elsewhere(void *unused) {
    check_watched();
    for (size_t size = 1; size < MIB(1); size += 1 + size / 8) hak_free(hak_malloc(size));
    check_watched();
    return unused;
}

TEST(the_size_stays_the_same_while_others_come_and_go) {
    enum { SLOTS = 500 };
    static void *others[SLOTS];
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < WATCHED; i++) {
        size_t size = rng_size(&rng, 20);
        watched[i].block = i % 3 == 0   ? hak_memalign((size_t)32 << (i % 8), size)
                           : i % 3 == 1 ? hak_calloc(size, 1)
                                        : hak_malloc(size);
        CHECK(watched[i].block != NULL);
        watched[i].usable = hak_usable_size(watched[i].block);
        CHECK(watched[i].usable >= size);
        block_fill(watched[i].block, watched[i].usable, i);
    }
    for (size_t round = 0; round < check_count(200); round++) {
        for (size_t j = 0; j < SLOTS; j++) {
            others[j] = hak_realloc(others[j], rng_size(&rng, 200));
            CHECK(others[j] != NULL);
        }
        check_watched();
        for (size_t j = 0; j < SLOTS; j++) {
            hak_free(others[j]);
            others[j] = NULL;
        }
        check_watched();
    }
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, check_from_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    check_watched();
    for (size_t i = 0; i < WATCHED; i++) {
        CHECK_AT(block_holds(watched[i].block, watched[i].usable, i), i);
        hak_free(watched[i].block);
    }
}

TEST(a_resized_block_says_its_new_size) {
    struct rng rng = {check_now.seed};
    void *block = NULL;
    for (size_t round = 0; round < check_count(50000); round++) {
        size_t size = rng_size(&rng, 100);
        block = hak_realloc(block, size);
        CHECK(block != NULL);
        CHECK_AT(hak_usable_size(block) >= size, size);
        if (round % 16 == 0) block_fill(block, hak_usable_size(block), size);
    }
    hak_free(block);
}
