/* expand_test.c - hak_good_size and hak_try_expand, and the forms of free that are told a size.
 *
 * Planted defects it was seen to catch:
 *   good_size is the next class's           what_is_good_is_what_one_gets
 *   an extended block keeps its old size    a_large_block_grows_into_what_is_free
 *   try_expand moves, or takes what is used  a_block_never_grows_into_another
 *   a refusal sets errno                    a_refusal_changes_nothing
 */
#include <hakmem/hakmem.h>

#include "blocks.h"

static size_t sizes[6000];

TEST(what_is_good_is_what_one_gets) {
    size_t count = class_sizes(sizes, check_count(4000), MIB(4));
    for (size_t i = 0; i < count; i++) {
        void *block = hak_malloc(sizes[i]);
        CHECK(block != NULL);
        const size_t good = hak_good_size(sizes[i]), usable = hak_usable_size(block);
        const bool may_be_larger = sizes[i] > KIB(64) && sizes[i] <= MIB(1); /* by the next medium block that is at hand */
        CHECK_AT(good == usable || (may_be_larger && good < usable && usable <= good + good / 2), sizes[i]);
        CHECK_AT(hak_good_size(hak_good_size(sizes[i])) == hak_good_size(sizes[i]), sizes[i]);
        hak_free_sized(block, sizes[i]);
    }
    CHECK_EQ(hak_good_size(0), 16);
    CHECK_EQ(hak_good_size((size_t)PTRDIFF_MAX - KIB(64)), (size_t)PTRDIFF_MAX + 1 - KIB(64));
    CHECK_EQ(hak_good_size(PTRDIFF_MAX), 0); /* whole pages would be more */
    CHECK_EQ(hak_good_size((size_t)PTRDIFF_MAX + 1), 0);
    CHECK_EQ(hak_good_size(SIZE_MAX), 0);
}

TEST(a_refusal_changes_nothing) {
    static const size_t small[] = {1, 16, 100, 1024, 5000, 65536};
    errno = 4711;
    CHECK_EQ(hak_try_expand(NULL, 10), 0);
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        void *block = hak_malloc(small[i]);
        size_t usable = hak_usable_size(block);
        block_fill(block, usable, i);
        for (size_t bytes = 0; bytes <= usable; bytes += 1 + usable / 20)
            CHECK_AT(hak_try_expand(block, bytes) == usable, bytes);
        CHECK_EQ(hak_try_expand(block, usable), usable);
        CHECK_EQ(hak_try_expand(block, usable + 1), 0);
        CHECK_EQ(hak_try_expand(block, SIZE_MAX), 0);
        CHECK_EQ(hak_usable_size(block), usable);
        CHECK(block_holds(block, usable, i));
        hak_free(block);
    }
    for (size_t bytes = MIB(1); bytes <= MIB(3); bytes += MIB(2)) { /* a medium block, and a large one */
        char *block = hak_malloc(bytes);
        block_fill(block, bytes, bytes);
        CHECK_EQ(hak_try_expand(block, SIZE_MAX), 0);
        CHECK_EQ(hak_try_expand(block, PTRDIFF_MAX), 0);
        CHECK_EQ(hak_usable_size(block), bytes);
        CHECK(block_holds(block, bytes, bytes));
        hak_free(block);
    }
    CHECK_EQ(errno, 4711);
}

TEST(a_large_block_grows_into_what_is_free) {
    enum { BLOCKS = 64 };
    static char *blocks[BLOCKS];
    size_t grown = 0;
    for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = hak_malloc(KIB(128))) != NULL);
    for (size_t i = 1; i < BLOCKS; i += 2) hak_free(blocks[i]);
    for (size_t i = 0; i < BLOCKS; i += 2) {
        block_fill(blocks[i], KIB(128), i);
        size_t usable = hak_try_expand(blocks[i], KIB(128) + 1);
        grown += usable != 0;
        CHECK(usable == 0 || usable == KIB(192));
        CHECK_EQ(hak_usable_size(blocks[i]), usable == 0 ? KIB(128) : usable);
        if (usable != 0) memset(blocks[i] + KIB(128), 0x5a, usable - KIB(128));
    }
    CHECK(grown >= BLOCKS / 4);
    for (size_t i = 0; i < BLOCKS; i += 2) {
        CHECK(block_holds(blocks[i], KIB(128), i));
        hak_free_aligned_sized(blocks[i], 16, KIB(128));
    }
}

TEST(a_block_never_grows_into_another) {
    enum { BLOCKS = 200 };
    static struct {
        char *start;
        size_t bytes;
    } blocks[BLOCKS];
    struct rng rng = {check_now.seed};
    for (size_t round = 0; round < check_count(4000); round++) {
        size_t at = rng_below(&rng, BLOCKS);
        if (blocks[at].start == NULL) {
            blocks[at].start = hak_malloc(KIB(65) + rng_below(&rng, MIB(1)));
            CHECK(blocks[at].start != NULL);
            blocks[at].bytes = hak_usable_size(blocks[at].start);
        } else if (rng_below(&rng, 3) != 0) {
            CHECK(block_holds(blocks[at].start, blocks[at].bytes, at));
            size_t usable = hak_try_expand(blocks[at].start, blocks[at].bytes + 1 + rng_below(&rng, MIB(1)));
            if (usable != 0) blocks[at].bytes = usable;
        } else {
            CHECK(block_holds(blocks[at].start, blocks[at].bytes, at));
            hak_free(blocks[at].start);
            blocks[at].start = NULL;
            continue;
        }
        CHECK_EQ(hak_usable_size(blocks[at].start), blocks[at].bytes);
        block_fill(blocks[at].start, blocks[at].bytes, at);
    }
    for (size_t at = 0; at < BLOCKS; at++) hak_free(blocks[at].start);
}

TEST(forms_of_free_that_are_told_a_size) {
    hak_free_sized(NULL, 0);
    hak_free_aligned_sized(NULL, 16, 0);
    hak_free_aligned_sized(NULL, 3, 10); /* C23: of NULL nothing else is looked at */
    hak_free_aligned_sized(NULL, 0, 10);
    for (size_t alignment = 16; alignment <= MIB(4); alignment *= 4) {
        for (size_t bytes = 1; bytes < MIB(2); bytes *= 7) {
            void *block = hak_aligned_alloc(alignment, bytes);
            CHECK(block != NULL);
            CHECK(hak_memalignment(block) >= alignment);
            hak_free_aligned_sized(block, alignment, bytes);
        }
    }
}
