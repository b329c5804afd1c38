/* realloc_test.c - realloc: every pair of sizes, contents, NULL, size 0, failure, strangers' blocks.
 *
 * Planted defects it was seen to catch:
 *   copies one word too few when growing   every_pair_of_sizes_keeps_the_contents
 *   does not free the old block            growing_by_steps_gives_the_old_blocks_back
 *   realloc(p, 0) leaks                    size_zero_frees
 *   a failed realloc frees the block       failure_leaves_the_block_alone
 */
#include "blocks.h"

/* Both sides of every place where the road of a block may change. */
static size_t sizes[160];

static size_t fill_sizes(void) {
    static const size_t fixed[] = {1,
                                   8,
                                   15,
                                   16,
                                   17,
                                   24,
                                   32,
                                   33,
                                   64,
                                   100,
                                   128,
                                   200,
                                   256,
                                   400,
                                   512,
                                   777,
                                   1000,
                                   1024,
                                   1025,
                                   2048,
                                   3000,
                                   4080,
                                   4095,
                                   4096,
                                   4097,
                                   8192,
                                   12288,
                                   16384,
                                   20000,
                                   32767,
                                   32768,
                                   32769,
                                   40000,
                                   KIB(64) - 4097,
                                   KIB(64) - 1,
                                   KIB(64),
                                   KIB(64) + 1,
                                   KIB(64) + 4096,
                                   KIB(68) + 1,
                                   KIB(96),
                                   KIB(128) - 1,
                                   KIB(128),
                                   KIB(128) + 1,
                                   KIB(192),
                                   KIB(256),
                                   KIB(300),
                                   KIB(512) + 1,
                                   KIB(1000),
                                   MIB(1) - 1,
                                   MIB(1),
                                   MIB(1) + 1,
                                   MIB(1) + 4096,
                                   MIB(2) - 1,
                                   MIB(2),
                                   MIB(2) + 1,
                                   MIB(3),
                                   MIB(4) + 1};
    size_t count = sizeof fixed / sizeof fixed[0];
    memcpy(sizes, fixed, sizeof fixed);
    if (!CHECK_SHADOWED) count += class_sizes(sizes + count, 60, KIB(64));
    return count;
}

TEST(every_pair_of_sizes_keeps_the_contents) {
    size_t count = fill_sizes();
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            size_t from = sizes[i], to = sizes[j], kept = from < to ? from : to;
            uint64_t key = mix64(i * 1000 + j);
            void *before = hak_malloc(from), *block = hak_malloc(from), *after = hak_malloc(from);
            CHECK_AT(before && block && after, from);
            uint64_t guards = key + 1;
            size_t guard = from < KIB(64) ? from : 64;
            block_fill(before, guard, guards);
            block_fill(after, guard, guards);
            block_fill(block, from, key);
            block = hak_realloc(block, to);
            CHECK_AT(block != NULL, to);
            CHECK_AT(is_aligned(block, 16), to);
            CHECK_AT(hak_usable_size(block) >= to, to);
            CHECK_AT(block_holds(block, kept & ~(size_t)7, key), from);
            /* The odd bytes at the end: filled from the word's low bytes in both cases. */
            if (from <= to) CHECK_AT(block_holds(block, from, key), from);
            block_fill(block, hak_usable_size(block), ~key);
            CHECK_AT(block_holds(before, guard, guards), from);
            CHECK_AT(block_holds(after, guard, guards), from);
            CHECK_AT(block_holds(block, hak_usable_size(block), ~key), to);
            hak_free(before);
            hak_free(after);
            hak_free(block);
        }
    }
}

/* Programs that use malloc_usable_size fill all of it and expect realloc to keep it. */
TEST(growing_keeps_all_that_was_usable) {
    size_t count = fill_sizes();
    for (size_t i = 0; i < count; i++) {
        char *block = hak_malloc(sizes[i]);
        CHECK(block != NULL);
        size_t usable = hak_usable_size(block);
        block_fill(block, usable, sizes[i]);
        block = hak_realloc(block, usable + 1);
        CHECK_AT(block != NULL, usable + 1);
        CHECK_AT(block_holds(block, usable, sizes[i]), usable);
        hak_free(block);
    }
}

TEST(the_same_size_keeps_the_contents) {
    size_t count = fill_sizes();
    for (size_t i = 0; i < count; i++) {
        void *block = hak_malloc(sizes[i]);
        CHECK(block != NULL);
        block_fill(block, sizes[i], i);
        for (int again = 0; again < 3; again++) {
            block = hak_realloc(block, sizes[i]);
            CHECK_AT(block != NULL, sizes[i]);
            CHECK_AT(block_holds(block, sizes[i], i), sizes[i]);
        }
        hak_free(block);
    }
}

/* Grows a string byte by byte as naive programs do; the letters must all be there at the end. */
TEST(growing_byte_by_byte_keeps_the_contents) {
    const size_t last = check_count(100000);
    unsigned char *text = NULL;
    for (size_t length = 0; length < last; length++) {
        text = hak_realloc(text, length + 1);
        CHECK_AT(text != NULL, length);
        text[length] = (unsigned char)(length * 31 >> 3);
    }
    for (size_t i = 0; i < last; i++) CHECK_AT(text[i] == (unsigned char)(i * 31 >> 3), i);
    for (size_t length = last; length > 1; length -= 1 + length / 100) {
        text = hak_realloc(text, length);
        CHECK_AT(text != NULL, length);
        CHECK_AT(text[length - 1] == (unsigned char)((length - 1) * 31 >> 3), length);
    }
    hak_free(text);
}

/* A vector that grows by half to 16 MiB, many times: old blocks must come back. */
TEST(growing_by_steps_gives_the_old_blocks_back) {
    size_t before = 0;
    for (size_t round = 0; round < check_count(40) + 2; round++) {
        size_t size = 16;
        char *block = hak_malloc(size);
        CHECK(block != NULL);
        block_fill(block, size, round);
        while (size < MIB(16)) {
            size_t larger = size + size / 2;
            block = hak_realloc(block, larger);
            CHECK_AT(block != NULL, larger);
            CHECK_AT(block_holds(block, size & ~(size_t)7, round), size);
            size = larger;
            block_fill(block, size, round);
        }
        hak_free(block);
        if (round == 1) before = resident_bytes();
    }
    CHECK_RESIDENT(before, MIB(64));
}

TEST(many_arrays_resized_at_random_keep_their_contents) {
    enum { ARRAYS = 300 };
    static struct {
        void *block;
        size_t size;
    } arrays[ARRAYS];
    struct rng rng = {check_now.seed};
    for (size_t left = check_count(200000); left > 0; left--) {
        size_t i = rng_below(&rng, ARRAYS), size = rng_size(&rng, 200);
        size_t kept = arrays[i].size < size ? arrays[i].size : size;
        void *block = hak_realloc(arrays[i].block, size);
        CHECK_AT(block != NULL, size);
        CHECK_AT(block_holds(block, kept & ~(size_t)7, i), size);
        block_fill(block, size, i);
        arrays[i].block = block;
        arrays[i].size = size;
    }
    for (size_t i = 0; i < ARRAYS; i++) {
        CHECK(arrays[i].block == NULL || block_holds(arrays[i].block, arrays[i].size, i));
        hak_free(arrays[i].block);
        arrays[i].block = NULL;
        arrays[i].size = 0;
    }
}

TEST(null_allocates) {
    for (size_t size = 0; size < 70000; size += 1 + size / 16) {
        void *block = hak_realloc(NULL, size);
        CHECK_AT(block != NULL, size);
        CHECK_AT(hak_usable_size(block) >= size, size);
        block_fill(block, hak_usable_size(block), size);
        hak_free(block);
    }
    volatile size_t most = SIZE_MAX;
    errno = 0;
    CHECK(hak_realloc(NULL, most) == NULL);
    CHECK_EQ(errno, ENOMEM);
}

/* Each size as often as makes 128 MiB, touched: a leak is four times the slack. */
TEST(size_zero_frees) {
    static const size_t small_and_large[] = {1, 16, 100, 1000, 5000, 40000, KIB(64), KIB(200), MIB(2)};
    for (size_t i = 0; i < sizeof small_and_large / sizeof small_and_large[0]; i++) {
        size_t size = small_and_large[i], before = 0;
        size_t rounds = MIB(128) / (size < 64 ? 64 : size);
        if (CHECK_SHADOWED) rounds = rounds / 50 + 10;
        for (size_t round = 0; round < rounds; round++) {
            void *block = hak_malloc(size);
            CHECK(block != NULL);
            memset(block, 1, size);
            errno = 4711;
            CHECK(hak_realloc(block, 0) == NULL);
            CHECK_EQ(errno, 4711);
            if (round == 8) before = resident_bytes();
        }
        CHECK_RESIDENT(before, MIB(20));
    }
    hak_free(hak_memalign(4096, 10000));
    CHECK(hak_realloc(hak_memalign(4096, 10000), 0) == NULL);
}

TEST(failure_leaves_the_block_alone) {
    static const size_t impossible[] = {SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX,
                                        (size_t)PTRDIFF_MAX + 1, (size_t)1 << 60};
    size_t count = fill_sizes();
    for (size_t i = 0; i < count; i++) {
        void *block = hak_malloc(sizes[i]);
        CHECK(block != NULL);
        size_t usable = hak_usable_size(block);
        block_fill(block, usable, i);
        for (size_t j = 0; j < sizeof impossible / sizeof impossible[0]; j++) {
            errno = 0;
            CHECK_AT(hak_realloc(block, impossible[j]) == NULL, sizes[i]);
            CHECK_EQ(errno, ENOMEM);
            CHECK_EQ(hak_usable_size(block), usable);
            CHECK_AT(block_holds(block, usable, i), sizes[i]);
        }
        void *other = hak_malloc(sizes[i]);
        CHECK(other != NULL && other != block);
        block_fill(other, hak_usable_size(other), ~(uint64_t)i);
        CHECK_AT(block_holds(block, usable, i), sizes[i]);
        hak_free(other);
        hak_free(block);
    }
}

TEST(aligned_blocks_keep_their_contents) {
    for (size_t alignment = 32; alignment <= MIB(4); alignment *= 4) {
        for (size_t size = 8; size <= MIB(1); size *= 8) {
            for (size_t to = 8; to <= MIB(2); to *= 16) {
                void *block = hak_memalign(alignment, size);
                CHECK(block != NULL);
                block_fill(block, size, alignment);
                block = hak_realloc(block, to);
                CHECK(block != NULL);
                CHECK_AT(block_holds(block, size < to ? size : to, alignment), size);
                hak_free(block);
            }
        }
    }
}

enum { STRANGERS = 200 };
static void *strangers[STRANGERS];

static void *allocate_strangers(void *unused) {
    for (size_t i = 0; i < STRANGERS; i++) {
        strangers[i] = hak_malloc((i + 1) * 997);
        CHECK(strangers[i] != NULL);
        block_fill(strangers[i], (i + 1) * 997, i);
    }
    return unused;
}

/* The owner is dead by then; blocks to 200 kB. */
TEST(blocks_of_another_thread_keep_their_contents) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, allocate_strangers, NULL), 0);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < STRANGERS; i++) {
        size_t size = (i + 1) * 997, to = (STRANGERS - i) * 997;
        strangers[i] = hak_realloc(strangers[i], to);
        CHECK(strangers[i] != NULL);
        CHECK_AT(block_holds(strangers[i], (size < to ? size : to) & ~(size_t)7, i), size);
        hak_free(strangers[i]);
    }
}
