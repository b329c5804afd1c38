/* calloc_test.c - calloc: zero whatever the memory held before, the exact product, overflow.
 *
 * Planted defects it was seen to catch:
 *   no clearing of reused blocks         every_class_..., aligned_blocks_..., what_a_dead_thread_...
 *   no clearing of reused spans          spans_..., tails_of_shrunk_blocks_..., zero_after_any_history
 *   clearing one word too few            every_class_is_zero_after_dirty_reuse
 *   the product is not checked           overflow_fails_with_enomem
 *   the product is rounded before use    the_product_is_exact
 */
#include "blocks.h"

static size_t sizes[5000];

static void *zeroed(size_t count, size_t size) {
    unsigned char *block = hak_calloc(count, size);
    CHECK_AT(block != NULL, count * size);
    CHECK_AT(is_aligned(block, 16), count * size);
    CHECK_AT(hak_usable_size(block) >= count * size, count * size);
    CHECK_AT(block_is_zero(block, count * size), count * size);
    return block;
}

static void make_dirty(void *block) { memset(block, 0xa5, hak_usable_size(block)); }

/* Allocates COUNT blocks of SIZE bytes dirty, frees them, and takes as many zeroed. */
static void reuse_dirty(size_t size, size_t count) {
    static void *blocks[512];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = hak_malloc(size);
        CHECK_AT(blocks[i] != NULL, size);
        make_dirty(blocks[i]);
    }
    for (size_t i = 0; i < count; i++) hak_free(blocks[i]);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = zeroed(1, size);
        make_dirty(blocks[i]);
    }
    for (size_t i = 0; i < count; i++) hak_free(blocks[i]);
}

TEST(fresh_blocks_are_zero) {
    for (size_t size = 0; size <= 70000; size += 1 + size / 64) hak_free(zeroed(1, size));
}

/* First few blocks, which stay in a cache, then more than any cache of a thread would keep. */
TEST(every_class_is_zero_after_dirty_reuse) {
    size_t count = class_sizes(sizes, check_count(2000), 70000);
    for (size_t i = 0; i < count; i++) {
        reuse_dirty(sizes[i], 3);
        reuse_dirty(sizes[i] - 1, sizes[i] < 4096 ? 512 : MIB(2) / sizes[i]);
    }
}

TEST(spans_are_zero_after_dirty_reuse) {
    for (size_t power = KIB(64); power <= MIB(64); power *= 2) {
        reuse_dirty(power, 2);
        reuse_dirty(power + power / 2 + 1, 1);
    }
}

TEST(pieces_of_dirty_spans_are_zero) {
    static void *pieces[256];
    for (size_t piece = 16; piece <= MIB(1); piece *= 4) {
        size_t count = MIB(8) / piece < 256 ? MIB(8) / piece : 256;
        void *whole = hak_malloc(MIB(8));
        CHECK(whole != NULL);
        make_dirty(whole);
        hak_free(whole);
        for (size_t i = 0; i < count; i++) {
            pieces[i] = zeroed(piece / 4, 4);
            make_dirty(pieces[i]);
        }
        for (size_t i = 0; i < count; i++) hak_free(pieces[i]);
        hak_free(zeroed(8, MIB(1)));
    }
}

/* The cut-off tail of a shrunk block, and the block that grew over it, are memory like any other. */
TEST(tails_of_shrunk_blocks_are_zero_when_reused) {
    static void *tails[64];
    for (size_t size = KIB(128); size <= MIB(8); size *= 2) {
        char *block = hak_malloc(size);
        CHECK(block != NULL);
        make_dirty(block);
        block = hak_realloc(block, size / 2 + 1);
        CHECK(block != NULL);
        for (size_t i = 0; i < 64; i++) tails[i] = zeroed(1, i < 32 ? KIB(64) + 1 : 4000);
        for (size_t i = 0; i < 64; i++) {
            make_dirty(tails[i]);
            hak_free(tails[i]);
        }
        hak_free(block);
        hak_free(zeroed(1, size));
    }
}

TEST(aligned_blocks_leave_nothing_behind) {
    for (size_t alignment = 16; alignment <= MIB(4); alignment *= 2) {
        for (size_t size = 16; size <= KIB(256); size *= 8) {
            void *block = hak_memalign(alignment, size);
            CHECK(block != NULL);
            make_dirty(block);
            hak_free(block);
            hak_free(zeroed(size, 1));
        }
    }
}

static void *dirty_and_free(void *unused) {
    static void *blocks[2048];
    for (size_t size = 16; size <= MIB(1); size *= 2) {
        size_t count = size < KIB(2) ? 2048 : MIB(4) / size;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = hak_malloc(size);
            CHECK(blocks[i] != NULL);
            make_dirty(blocks[i]);
        }
        for (size_t i = 0; i < count; i++) hak_free(blocks[i]);
    }
    return unused;
}

TEST(what_a_dead_thread_left_is_zero) {
    static void *blocks[2048];
    for (size_t round = 0; round < check_count(10) + 1; round++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, dirty_and_free, NULL), 0);
        pthread_join(thread, NULL);
        for (size_t size = 16; size <= MIB(1); size *= 2) {
            size_t count = size < KIB(2) ? 2048 : MIB(4) / size;
            for (size_t i = 0; i < count; i++) blocks[i] = zeroed(1, size);
            for (size_t i = 0; i < count; i++) {
                make_dirty(blocks[i]);
                hak_free(blocks[i]);
            }
        }
    }
}

TEST(zero_after_any_history) {
    enum { SLOTS = 1024 };
    static void *slots[SLOTS];
    struct rng rng = {check_now.seed};
    for (size_t left = check_count(300000); left > 0; left--) {
        size_t i = rng_below(&rng, SLOTS), size = rng_size(&rng, 500);
        if (slots[i] && rng_below(&rng, 8) == 0) {
            slots[i] = hak_realloc(slots[i], size);
            CHECK(slots[i] != NULL);
        } else {
            hak_free(slots[i]);
            slots[i] = rng_below(&rng, 2) ? zeroed(1, size) : hak_malloc(size);
            CHECK(slots[i] != NULL);
        }
        make_dirty(slots[i]);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        hak_free(slots[i]);
        slots[i] = NULL;
    }
}

TEST(the_product_is_exact) {
    for (size_t count = 0; count < 70; count++)
        for (size_t size = 0; size < 70; size++) hak_free(zeroed(count, size));
    hak_free(zeroed(3, KIB(64) / 3));
    hak_free(zeroed(KIB(64) + 1, 17));
    hak_free(zeroed(1000003, 17));
}

TEST(an_empty_product_gives_distinct_blocks) {
    volatile size_t most = SIZE_MAX;
    void *blocks[] = {hak_calloc(0, 0), hak_calloc(0, 1), hak_calloc(1, 0), hak_calloc(0, most),
                      hak_calloc(most, 0)};
    for (size_t i = 0; i < 5; i++) {
        CHECK_AT(blocks[i] != NULL, i);
        for (size_t j = 0; j < i; j++) CHECK(blocks[i] != blocks[j]);
    }
    for (size_t i = 0; i < 5; i++) hak_free(blocks[i]);
}

static void must_fail(size_t count, size_t size) {
    errno = 0;
    void *volatile block = hak_calloc(count, size);
    CHECK_AT(block == NULL, count);
    CHECK_EQ(errno, ENOMEM);
    errno = 0;
    block = hak_calloc(size, count);
    CHECK_AT(block == NULL, count);
    CHECK_EQ(errno, ENOMEM);
}

TEST(overflow_fails_with_enomem) {
    static const size_t half = (size_t)1 << 32;
    for (size_t size = 3; size < 100000; size = size * 2 + 1) {
        must_fail(SIZE_MAX, size);
        must_fail(SIZE_MAX / size, size);
        must_fail(SIZE_MAX / size + 1, size + 1); /* wraps to a small product */
        must_fail((size_t)PTRDIFF_MAX / size + 1, size);
        must_fail((size_t)PTRDIFF_MAX / size + 2, size);
    }
    must_fail(half, half);
    must_fail(half + 1, half);
    must_fail(half - 1, half + 1);
    must_fail((size_t)1 << 63, 2);
    must_fail(((size_t)1 << 60) + 1, 16); /* wraps to 16 */
    must_fail(SIZE_MAX, SIZE_MAX);
    must_fail((size_t)PTRDIFF_MAX, (size_t)PTRDIFF_MAX);
    hak_free(zeroed(10, 10));
}
