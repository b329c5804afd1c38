/* reallocarray_test.c - reallocarray: the product is exact or refused, and a refusal leaves the block as it was.
 *
 * Planted defect it was seen to catch: the product wraps around.
 */
#include "blocks.h"

TEST(grows_and_shrinks_like_realloc) {
    uint64_t *block = NULL;
    struct rng rng = {check_now.seed};
    size_t kept = 0;
    for (size_t round = 0; round < check_count(3000); round++) {
        size_t count = 1 + rng_below(&rng, rng_below(&rng, 50) ? 3000 : 200000);
        block = hak_reallocarray(block, count, sizeof *block);
        CHECK(block != NULL);
        CHECK_AT(hak_usable_size(block) >= count * sizeof *block, count);
        size_t same = kept < count ? kept : count;
        CHECK_AT(block_holds(block, same * sizeof *block, 5), round);
        block_fill(block, count * sizeof *block, 5);
        kept = count;
    }
    hak_free(block);
}

TEST(an_empty_product_frees) {
    size_t before = 0;
    for (size_t i = 0; i < check_count(2000) + 10; i++) {
        void *block = hak_reallocarray(NULL, 1000, 100);
        CHECK(block != NULL);
        memset(block, 1, 100000);
        CHECK(hak_reallocarray(block, i % 2 ? 0 : 7, i % 2 ? 7 : 0) == NULL);
        if (i == 10) before = resident_bytes();
    }
    CHECK_RESIDENT(before, MIB(16));
}

static void must_fail(void *block, size_t count, size_t size) {
    errno = 0;
    void *volatile result = hak_reallocarray(block, count, size);
    CHECK_AT(result == NULL, count);
    CHECK_EQ(errno, ENOMEM);
}

TEST(overflow_fails_with_enomem_and_keeps_the_block) {
    static const size_t half = (size_t)1 << 32;
    void *block = hak_malloc(1000);
    CHECK(block != NULL);
    block_fill(block, 1000, 1);
    for (int i = 0; i < 2; i++) {
        void *given = i ? block : NULL;
        for (size_t size = 3; size < 100000; size = size * 2 + 1) {
            must_fail(given, SIZE_MAX, size);
            must_fail(given, size, SIZE_MAX);
            must_fail(given, SIZE_MAX / size + 1, size + 1); /* wraps to a small product */
            must_fail(given, (size_t)PTRDIFF_MAX / size + 1, size);
        }
        must_fail(given, half, half);                /* wraps to 0 */
        must_fail(given, ((size_t)1 << 60) + 1, 16); /* wraps to 16 */
        must_fail(given, SIZE_MAX, SIZE_MAX);
    }
    CHECK(block_holds(block, 1000, 1));
    hak_free(block);
}
