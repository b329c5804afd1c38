/* malloc_test.c - malloc and free in one thread: every size, alignment, no overlap, the largest and
 * the impossible sizes, memory that comes round again.
 *
 * Planted defects it was seen to catch:
 *   8-byte alignment of small blocks    every_size_is_aligned_and_large_enough
 *   classes one byte too small          every_size_is_aligned_and_large_enough
 *   usable size 16 bytes too long       neighbours_of_every_class_..., _span_size_keep_their_contents
 *   a block handed out twice            mixed_blocks_keep_their_contents, zero_size_blocks_...
 *   a free that loses blocks            freed_memory_is_reused_in_any_order
 *   size arithmetic that wraps          impossible_sizes_fail_with_enomem
 */
#include "blocks.h"

static size_t sizes[5000];

TEST(every_size_is_aligned_and_large_enough) {
    for (size_t size = 0; size <= 70000; size++) {
        void *block = hak_malloc(size);
        CHECK_AT(block != NULL, size);
        CHECK_AT(is_aligned(block, 16), size);
        CHECK_AT(hak_usable_size(block) >= size, size);
        hak_free(block);
    }
}

/* Allocates COUNT blocks of REQUEST bytes at once, fills all they can hold, and checks them all
 * before the first is freed. */
static void fill_side_by_side(size_t request, size_t count) {
    static void *blocks[64];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = hak_malloc(request);
        CHECK_AT(blocks[i] != NULL, request);
        CHECK_AT(is_aligned(blocks[i], 16), request);
        block_fill(blocks[i], hak_usable_size(blocks[i]), block_key(blocks[i], request));
    }
    for (size_t i = 0; i < count; i++)
        CHECK_AT(block_holds(blocks[i], hak_usable_size(blocks[i]), block_key(blocks[i], request)), request);
    for (size_t i = 0; i < count; i += 2) hak_free(blocks[i]);
    for (size_t i = 1; i < count; i += 2) hak_free(blocks[i]);
}

TEST(neighbours_of_every_class_keep_their_contents) {
    size_t count = class_sizes(sizes, check_count(5000), 70000);
    for (size_t i = 0; i < count; i++) {
        size_t blocks = KIB(512) / (sizes[i] + 1);
        blocks = blocks < 6 ? 6 : blocks > 64 ? 64 : blocks;
        for (size_t request = sizes[i] - 1; request <= sizes[i] + 1; request++)
            fill_side_by_side(request, blocks);
    }
}

TEST(neighbours_of_every_span_size_keep_their_contents) {
    for (size_t power = KIB(64); power <= MIB(8); power *= 2) {
        for (size_t part = 0; part < 4; part++) {
            size_t size = power + power / 4 * part;
            fill_side_by_side(size - 1, 3);
            fill_side_by_side(size, 3);
            fill_side_by_side(size + 1, 3);
        }
    }
}

TEST(mixed_blocks_keep_their_contents) {
    enum { SLOTS = 4096 };
    static struct {
        void *block;
        size_t bytes;
    } slots[SLOTS];
    struct rng rng = {check_now.seed};
    for (size_t left = check_count(400000); left > 0; left--) {
        size_t i = rng_below(&rng, SLOTS);
        void *block = slots[i].block;
        if (block) {
            CHECK_EQ(hak_usable_size(block), slots[i].bytes);
            CHECK(block_holds(block, slots[i].bytes, block_key(block, i)));
            hak_free(block);
        }
        size_t request = rng_size(&rng, 2000);
        block = slots[i].block = hak_malloc(request);
        CHECK_AT(block != NULL, request);
        slots[i].bytes = hak_usable_size(block);
        block_fill(block, slots[i].bytes, block_key(block, i));
    }
    for (size_t i = 0; i < SLOTS; i++) {
        void *block = slots[i].block;
        CHECK(block == NULL || block_holds(block, slots[i].bytes, block_key(block, i)));
        hak_free(block);
        slots[i].block = NULL;
    }
}

/* Each block is marked with its own number if it has room; otherwise all pairs are compared. */
TEST(zero_size_blocks_are_distinct_and_may_be_freed) {
    enum { COUNT = 2000 };
    static void *blocks[COUNT];
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            blocks[i] = hak_malloc(0);
            CHECK(blocks[i] != NULL);
            CHECK(is_aligned(blocks[i], 16));
            block_fill(blocks[i], hak_usable_size(blocks[i]), block_key(blocks[i], i));
        }
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(block_holds(blocks[i], hak_usable_size(blocks[i]), block_key(blocks[i], i)));
            for (size_t j = 0; j < i; j++) CHECK(blocks[i] != blocks[j]);
        }
        for (size_t i = 0; i < COUNT; i++) hak_free(blocks[i]);
    }
}

TEST(free_ignores_null) {
    for (int i = 0; i < 1000; i++) hak_free(NULL);
}

/* A machine may refuse the largest of these; then with ENOMEM. */
TEST(large_blocks_can_be_written_from_end_to_end) {
    static const ptrdiff_t near[] = {-4097, -4096, -1, 0, 1, 15, 4096, 65536};
    for (size_t power = KIB(64); power <= GIB(1); power *= 2) {
        for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
            size_t size = power + (size_t)near[i];
            errno = 0;
            char *block = hak_malloc(size);
            if (block == NULL) {
                CHECK_AT(size >= MIB(256), size);
                CHECK_EQ(errno, ENOMEM);
                continue;
            }
            size_t usable = hak_usable_size(block);
            CHECK_AT(is_aligned(block, 16), size);
            CHECK_AT(usable >= size, size);
            block[0] = 'a';
            block[size / 2] = 'b';
            block[usable - 1] = 'c';
            CHECK(block[0] == 'a' && block[size / 2] == 'b' && block[usable - 1] == 'c');
            hak_free(block);
        }
    }
}

/* All live at once: the first and last word of each would show an overlap of any two. */
TEST(large_blocks_live_side_by_side) {
    enum { COUNT = 40 };
    static uint64_t *blocks[COUNT];
    size_t total = 0, size[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        size[i] = KIB(64) + (size_t)(mix64(i + check_now.seed) % MIB(48));
        blocks[i] = hak_malloc(size[i]);
        CHECK_AT(blocks[i] != NULL || total > MIB(256), size[i]);
        if (blocks[i] == NULL) continue;
        total += size[i];
        size[i] = hak_usable_size(blocks[i]) / sizeof(uint64_t);
        blocks[i][0] = blocks[i][size[i] - 1] = mix64(i);
    }
    for (size_t i = 0; i < COUNT; i++) {
        if (blocks[i]) CHECK(blocks[i][0] == mix64(i) && blocks[i][size[i] - 1] == mix64(i));
        hak_free(blocks[i]);
    }
}

static void must_fail(size_t size) {
    errno = 0;
    void *volatile block = hak_malloc(size);
    CHECK_AT(block == NULL, size);
    CHECK_EQ(errno, ENOMEM);
}

TEST(impossible_sizes_fail_with_enomem) {
    static const size_t steps[] = {0,      1,       7,      15,     16,       17,     63,
                                   64,     4095,    4096,   4097,   8192,     65535,  65536,
                                   65537,  69632,   131072, 262144, 524288,   MIB(2), MIB(2) + 1,
                                   MIB(4), MIB(32), GIB(1), GIB(4), GIB(1024)};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        must_fail(SIZE_MAX - steps[i]);
        must_fail((size_t)PTRDIFF_MAX - steps[i]);
        must_fail((size_t)PTRDIFF_MAX + 1 + steps[i]);
        for (int bit = 57; bit < 64; bit++) must_fail(((size_t)1 << bit) + steps[i]);
        void *block = hak_malloc(100);
        CHECK(block != NULL);
        hak_free(block);
    }
}

/* Between the machine's memory and its address width anything may be refused, but nothing broken. */
TEST(sizes_up_to_the_address_width_work_or_fail_with_enomem) {
    for (int bit = 31; bit < 57; bit++) {
        for (size_t size = ((size_t)1 << bit) - 1; size <= ((size_t)1 << bit) + 1; size++) {
            errno = 0;
            char *block = hak_malloc(size);
            if (block == NULL) {
                CHECK_EQ(errno, ENOMEM);
                continue;
            }
            CHECK_AT(hak_usable_size(block) >= size, size);
            block[0] = block[size - 1] = 1;
            hak_free(block);
        }
    }
}

enum order { FIRST_IN_FIRST_OUT, LAST_IN_FIRST_OUT, SHUFFLED, ORDERS };

static void free_in_order(void **blocks, size_t count, enum order order) {
    struct rng rng = {check_now.seed + count};
    for (size_t i = 0; i < count; i++) {
        size_t left = count - i, pick = order == FIRST_IN_FIRST_OUT ? i : left - 1;
        if (order == SHUFFLED) {
            size_t other = rng_below(&rng, left);
            void *swapped = blocks[other];
            blocks[other] = blocks[pick];
            blocks[pick] = swapped;
        }
        hak_free(blocks[pick]);
    }
}

/* Twenty rounds of 16 MiB in each class: one lost block in five would add more than the slack. */
TEST(freed_memory_is_reused_in_any_order) {
    enum { MOST = 40000 };
    static void *blocks[MOST];
    size_t count = class_sizes(sizes, 100, MIB(1));
    for (size_t i = 0; i < count; i++) {
        size_t want = MIB(16) / sizes[i], before = 0;
        want = want < MOST ? want : MOST;
        for (size_t round = 0; round < check_count(20) + 2; round++) {
            for (size_t j = 0; j < want; j++) {
                blocks[j] = hak_malloc(sizes[i]);
                CHECK(blocks[j] != NULL);
                for (size_t at = 0; at < sizes[i]; at += 4096) ((char *)blocks[j])[at] = 1;
            }
            free_in_order(blocks, want, (enum order)(round % ORDERS));
            if (round == 1) before = resident_bytes();
        }
        CHECK_RESIDENT(before, want * sizes[i] * 2 + MIB(1));
    }
}
