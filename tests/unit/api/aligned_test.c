/* aligned_test.c - memalign, aligned_alloc, posix_memalign: every power of two to 1 GiB, odd sizes,
 * wrong alignments, overflow.
 *
 * Planted defects it was seen to catch:
 *   alignments above 4096 ignored                 every_power_to_one_gib, mixed_alignments_...
 *   an aligned block is not freed                 aligned_small_blocks_come_back
 *   size and alignment wrap when added            impossible_aligned_sizes_fail_with_enomem
 *   posix_memalign writes the pointer on failure  posix_memalign_failure_touches_nothing
 *   aligned blocks of powers of two only          blocks_side_by_side_are_aligned_and_waste_little
 *   the class of an aligned block is rounded down every_small_size_at_every_small_power
 *   alignment 3 accepted                          aligned_alloc_refuses_what_is_no_power
 */
#include "blocks.h"

enum function { MEMALIGN, ALIGNED_ALLOC, POSIX_MEMALIGN, FUNCTIONS };

static void *allocate(enum function function, size_t alignment, size_t size) {
    void *block = NULL;
    switch (function) {
    case MEMALIGN:
        return hak_memalign(alignment, size);
    case ALIGNED_ALLOC:
        return hak_aligned_alloc(alignment, size);
    default:
        errno = hak_posix_memalign(&block, alignment, size);
        return block;
    }
}

/* Sizes above 256 MiB may be refused by the machine, with ENOMEM. */
static void try_one(enum function function, size_t alignment, size_t size) {
    errno = 0;
    char *block = allocate(function, alignment, size);
    if (block == NULL) {
        CHECK_AT(size > MIB(256) || alignment > MIB(256), alignment);
        CHECK_EQ(errno, ENOMEM);
        return;
    }
    CHECK_EQ(errno, 0);
    size_t usable = hak_usable_size(block);
    CHECK_AT(is_aligned(block, alignment), alignment);
    CHECK_AT(is_aligned(block, 16), alignment);
    CHECK_AT(usable >= size, size);
    if (usable > 0) {
        block[0] = 1;
        block[usable / 2] = 2;
        block[usable - 1] = 3;
    }
    hak_free(block);
}

TEST(every_power_to_one_gib) {
    for (size_t a = 1; a <= GIB(1); a *= 2) {
        const size_t sizes[] = {0, 1, 16, 100, a - 1, a, a + 1, 3 * a, 4096, 65537};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            try_one(MEMALIGN, a, sizes[i]);
            try_one(ALIGNED_ALLOC, a, sizes[i]);
            if (a >= sizeof(void *)) try_one(POSIX_MEMALIGN, a, sizes[i]);
        }
    }
}

TEST(every_small_size_at_every_small_power) {
    for (size_t a = 8; a <= KIB(64); a *= 2)
        for (size_t size = 0; size <= 70000; size += 1 + size / (CHECK_SHADOWED ? 8 : 50))
            try_one(POSIX_MEMALIGN, a, size);
}

TEST(mixed_alignments_keep_their_contents) {
    enum { SLOTS = 1000 };
    static struct {
        void *block;
        size_t bytes;
    } slots[SLOTS];
    struct rng rng = {check_now.seed};
    for (size_t left = check_count(100000); left > 0; left--) {
        size_t i = rng_below(&rng, SLOTS);
        void *block = slots[i].block;
        if (block) {
            CHECK(block_holds(block, slots[i].bytes, block_key(block, i)));
            hak_free(block);
        }
        size_t alignment = (size_t)1 << (3 + rng_below(&rng, rng_below(&rng, 50) ? 11 : 18));
        size_t size = rng_size(&rng, 2000);
        if (rng_below(&rng, 4) == 0) size = rng_below(&rng, 64);
        block = allocate((enum function)rng_below(&rng, FUNCTIONS), alignment, size);
        CHECK_AT(block != NULL, alignment);
        CHECK_AT(is_aligned(block, alignment), alignment);
        slots[i].block = block;
        slots[i].bytes = hak_usable_size(block);
        CHECK_AT(slots[i].bytes >= size, size);
        block_fill(block, slots[i].bytes, block_key(block, i));
    }
    for (size_t i = 0; i < SLOTS; i++) {
        void *block = slots[i].block;
        CHECK(block == NULL || block_holds(block, slots[i].bytes, block_key(block, i)));
        hak_free(block);
        slots[i].block = NULL;
    }
}

/* More blocks than any of their slabs has: each is aligned, at most a third of it was not asked for, and realloc gives all of it. */
TEST(blocks_side_by_side_are_aligned_and_waste_little) {
    enum { BLOCKS = 50 };
    static char *blocks[BLOCKS];
    for (size_t power = KIB(1); power < KIB(64); power *= 2) {
        for (size_t alignment = 128; alignment < power; alignment *= 2) {
            const size_t step = alignment > power / 4 ? alignment : power / 4;
            for (size_t size = power + alignment; size <= 2 * power; size += step) {
                for (size_t i = 0; i < BLOCKS; i++) {
                    blocks[i] = hak_aligned_alloc(alignment, size);
                    CHECK_AT(blocks[i] != NULL && is_aligned(blocks[i], alignment), size);
                    const size_t usable = hak_usable_size(blocks[i]);
                    CHECK_AT(usable >= size && (usable - size) * 3 < usable, size);
                    block_fill(blocks[i], usable, i);
                }
                for (size_t i = 0; i < BLOCKS; i++) {
                    const size_t usable = hak_usable_size(blocks[i]);
                    CHECK_AT(hak_realloc(blocks[i], usable) == blocks[i], size);
                    blocks[i] = hak_realloc(blocks[i], usable + 1);
                    CHECK_AT(blocks[i] != NULL && block_holds(blocks[i], usable, i), size);
                }
                for (size_t i = 0; i < BLOCKS; i++) hak_free(blocks[i]);
            }
        }
    }
}

/* 3000 GiB of address space in turn: neither the memory nor the space may be lost. */
TEST(large_alignments_come_back) {
    char *block = NULL;
    for (size_t warm_up = 0; warm_up < 4; warm_up++) try_one(MEMALIGN, GIB(1), 1);
    size_t before = resident_bytes();
    for (size_t round = 0; round < check_count(3000); round++) {
        size_t alignment = round % 2 ? GIB(1) : MIB(64), size = round % 3 ? 1 : MIB(1);
        block = hak_memalign(alignment, size);
        CHECK_AT(block != NULL, round);
        CHECK(is_aligned(block, alignment));
        memset(block, 1, size);
        hak_free(block);
    }
    CHECK_RESIDENT(before, MIB(64));
}

TEST(aligned_small_blocks_come_back) {
    static void *blocks[1000];
    size_t before = 0;
    for (size_t round = 0; round < check_count(300) + 10; round++) {
        for (size_t i = 0; i < 1000; i++) {
            blocks[i] = hak_memalign((size_t)64 << (round % 7), 100);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 1, 100);
        }
        for (size_t i = 0; i < 1000; i++) hak_free(blocks[i]);
        if (round == 10) before = resident_bytes();
    }
    CHECK_RESIDENT(before, MIB(32));
}

TEST(posix_memalign_failure_touches_nothing) {
    static const size_t wrong[] = {0,  1,  2,  3,   4,    5,    7,        9,
                                   12, 24, 48, 100, 4095, 4097, SIZE_MAX, (size_t)PTRDIFF_MAX};
    void *const untouched = (void *)0x1234;
    void *result = untouched;
    errno = 4711;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_EQ(hak_posix_memalign(&result, wrong[i], 100), EINVAL);
        CHECK(result == untouched);
        CHECK_EQ(errno, 4711);
    }
    static const size_t huge[] = {
        SIZE_MAX,       SIZE_MAX - 64, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1,
        (size_t)1 << 60};
    for (size_t alignment = sizeof(void *); alignment <= GIB(1); alignment *= 2) {
        for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
            CHECK_EQ(hak_posix_memalign(&result, alignment, huge[i]), ENOMEM);
            CHECK(result == untouched);
#ifndef TEST_AGAINST_LIBC /* glibc sets errno here */
            CHECK_EQ(errno, 4711);
#endif
        }
    }
}

TEST(impossible_aligned_sizes_fail_with_enomem) {
    for (size_t alignment = 1; alignment <= GIB(1); alignment *= 2) {
        const size_t huge[] = {SIZE_MAX,
                               SIZE_MAX - alignment,
                               SIZE_MAX - alignment + 1,
                               SIZE_MAX - alignment / 2,
                               (size_t)PTRDIFF_MAX,
                               (size_t)PTRDIFF_MAX + 1,
                               (size_t)PTRDIFF_MAX - alignment,
                               (size_t)1 << 60};
        for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
            for (int which = MEMALIGN; which <= ALIGNED_ALLOC; which++) {
                errno = 0;
                CHECK_AT(allocate((enum function)which, alignment, huge[i]) == NULL, alignment);
                CHECK_EQ(errno, ENOMEM);
            }
        }
    }
}

/* Alignments between 1 GiB and the address width may work; above it they cannot. */
TEST(alignments_beyond_one_gib_work_or_fail) {
    for (int bit = 31; bit < 64; bit += CHECK_SLOW ? 3 : 1) { /* an emulator looks for such a place page by page */
        size_t alignment = (size_t)1 << bit;
        for (int which = 0; which < FUNCTIONS; which++) {
            errno = 0;
            char *block = allocate((enum function)which, alignment, 10);
            CHECK_AT(block == NULL || bit < 57, bit);
            if (block == NULL) {
                CHECK(errno == ENOMEM || errno == EINVAL);
                continue;
            }
            CHECK_AT(is_aligned(block, alignment), bit);
            block[0] = 1;
            hak_free(block);
        }
    }
}

TEST(aligned_alloc_refuses_what_is_no_power) {
    static const size_t wrong[] = {
        0, 3, 5, 6, 7, 9, 12, 24, 48, 100, 1000, 4095, 4097, SIZE_MAX, (size_t)PTRDIFF_MAX};
#ifdef TEST_AGAINST_LIBC
    if (getenv("EXPECT_HAKMEM") == NULL) OMIT("before 2.38 glibc's aligned_alloc is its memalign");
#endif
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        errno = 0;
        CHECK_AT(hak_aligned_alloc(wrong[i], 100) == NULL, wrong[i]);
        CHECK_EQ(errno, EINVAL);
    }
}

/* C23: a size that is not a multiple of the alignment is as good as any, and so is 0; the blocks are distinct. */
TEST(aligned_alloc_takes_any_size) {
    static const size_t sizes[] = {0, 1, 15, 17, 100, 4095, 4097, 65535, 65537, 1000001};
    for (size_t alignment = 1; alignment <= MIB(1); alignment *= 4) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            void *blocks[3];
            for (int j = 0; j < 3; j++) {
                blocks[j] = hak_aligned_alloc(alignment, sizes[i]);
                CHECK_AT(blocks[j] != NULL && is_aligned(blocks[j], alignment), alignment);
                memset(blocks[j], j, sizes[i]);
            }
            CHECK(blocks[0] != blocks[1] && blocks[1] != blocks[2] && blocks[0] != blocks[2]);
            for (int j = 0; j < 3; j++) hak_free(blocks[j]);
        }
    }
}

TEST(memalign_rounds_the_alignment_up) {
    static const size_t given[] = {0, 3, 5, 17, 24, 33, 48, 100, 1000, 4095, 4097, 100000};
    static const size_t rounded[] = {1, 4, 8, 32, 32, 64, 64, 128, 1024, 4096, 8192, 131072};
    static void *blocks[50];
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        for (size_t j = 0; j < 50; j++) {
            blocks[j] = hak_memalign(given[i], 1 + j * 40);
            CHECK_AT(blocks[j] != NULL, given[i]);
            CHECK_AT(is_aligned(blocks[j], rounded[i]), given[i]);
            CHECK_AT(is_aligned(blocks[j], 16), given[i]);
            memset(blocks[j], 1, 1 + j * 40);
        }
        for (size_t j = 0; j < 50; j++) hak_free(blocks[j]);
    }
    volatile size_t most = SIZE_MAX, last = (size_t)1 << 63;
    errno = 0;
    CHECK(hak_memalign(last, 1) == NULL);
    CHECK_EQ(errno, ENOMEM);
    errno = 0;
    CHECK(hak_memalign(most, 1) == NULL);
    CHECK(errno == EINVAL || errno == ENOMEM);
}
