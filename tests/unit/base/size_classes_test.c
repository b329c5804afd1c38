/* size_classes_test.c - the table of block sizes as the library was compiled with it. What follows from
 * the sizes is computed here again; tests/system/test_size_classes.py reads the text.
 *
 * Planted defects it was seen to catch:
 *   a lookup row that begins one too early       a_request_gets_the_smallest_class_that_holds_it
 *   a class of 176 bytes made 168                blocks_are_naturally_aligned, classes_rise
 *   one block too many in a slab                 slabs_hold_their_blocks
 *   a medium lookup row that ends one too late   a_request_gets_the_smallest_class_that_holds_it
 *   an aligned lookup row that ends one too soon every_alignment_wastes_little
 */
#include "base/size_classes.h"
#include "blocks.h"
#include "heap/front.h"

struct row {
    unsigned class;
    size_t bytes, pages, blocks;
};
#define ROW(class, bytes, pages, blocks, multiplier, shift) {class, bytes, pages, blocks},
static const struct row rows[] = {SIZE_CLASS_TABLE(ROW)};

TEST(classes_rise) {
    CHECK_EQ(sizeof rows / sizeof rows[0], SIZE_CLASSES);
    CHECK_EQ(rows[0].bytes, SMALLEST_BLOCK_BYTES);
    CHECK_EQ(rows[SMALL_CLASSES - 1].bytes, SMALL_MAX_BYTES);
    CHECK_EQ(rows[SIZE_CLASSES - 1].bytes, MEDIUM_MAX_BYTES);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        CHECK_EQ(rows[class].class, class);
        CHECK_EQ(rows[class].bytes % SMALLEST_BLOCK_BYTES, 0);
        if (class != 0 && class != ALIGNED_CLASS) CHECK(rows[class].bytes > rows[class - 1].bytes);
    }
}

/* The last of those for alignments serves plain requests, too. */
static bool serves_alignments_only(unsigned class) { return class >= ALIGNED_CLASS && class < SMALL_CLASSES - 1; }

TEST(those_for_alignments_are_powers_of_two_and_one_and_a_half_times_these) {
    unsigned class = ALIGNED_CLASS;
    for (size_t power = ALIGNED_LEAST_BYTES; power <= SMALL_MAX_BYTES; power *= 2) {
        CHECK_EQ(rows[class++].bytes, power);
        if (power >= 1024 && power < SMALL_MAX_BYTES) CHECK_EQ(rows[class++].bytes, power / 2 * 3);
    }
    CHECK_EQ(class, SMALL_CLASSES);
}

/* Whatever is asked for: the plain class, if that is aligned; else one in which less than a third, and up to 1 KiB a sixteenth, is
 * wasted. Slabs begin with a page, so it is enough that blocks are so long as multiples of the alignment. */
TEST(every_alignment_wastes_little) {
    for (size_t alignment = SMALLEST_BLOCK_BYTES; alignment <= PAGE_BYTES; alignment *= 2) {
        for (size_t n = alignment; n <= SMALL_MAX_BYTES; n += alignment) {
            const unsigned plain = size_class_of(n), class = aligned_class_of(n, alignment, rows[plain].bytes);
            const size_t bytes = rows[class].bytes;
            CHECK_AT(bytes >= n && bytes % alignment == 0, n);
            if (rows[plain].bytes % alignment == 0) CHECK_AT(class == plain, n);
            if (class != plain) CHECK_AT(n <= 1024 ? (bytes - n) * 16 < bytes : (bytes - n) * 3 < bytes, n);
        }
    }
}

TEST(a_request_gets_the_smallest_class_that_holds_it) {
    unsigned class = 0;
    for (size_t n = 0; n <= MEDIUM_MAX_BYTES; n++) {
        while (rows[class].bytes < n || serves_alignments_only(class)) class++;
        CHECK_AT(size_class_of(n) == class, n);
    }
}

/* Up to where those for alignments begin, requests that are multiples of an alignment are aligned by themselves; and all to 16 bytes,
 * beyond to a line: that of large structures is not asked for. */
TEST(blocks_are_naturally_aligned) {
    for (size_t alignment = 1; alignment < ALIGNED_LEAST_BYTES; alignment *= 2)
        for (size_t n = alignment; n <= 480; n += alignment) CHECK_AT(rows[size_class_of(n)].bytes % alignment == 0, n);
    for (size_t n = 1041; n <= SMALL_MAX_BYTES; n++) CHECK_AT(rows[size_class_of(n)].bytes % 64 == 0, n);
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) CHECK_EQ(rows[class].bytes % PAGE_BYTES, 0);
}

/* Blocks side by side begin in many sets of a cache that has one for each line of 4 KiB. */
TEST(blocks_are_spread_over_a_caches_sets) {
    for (unsigned class = 0; class < ALIGNED_CLASS; class++) {
        enum { SETS = 64 };
        bool used[SETS] = {false};
        size_t sets = 0;
        for (size_t i = 0; i < rows[class].blocks; i++) used[i * rows[class].bytes / 64 % SETS] = true;
        for (size_t set = 0; set < SETS; set++) sets += used[set];
        const size_t most = rows[class].blocks < SETS ? rows[class].blocks : SETS;
        CHECK_AT(sets * 4 >= most, class);
        if (rows[class].bytes > 1024) CHECK_AT(sets * 16 >= most * 13, class);
    }
}

TEST(slabs_hold_their_blocks) {
    size_t most_pages = 0, most_words = 0, pages = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        size_t slab_bytes = rows[class].pages * PAGE_BYTES;
        CHECK_EQ(rows[class].blocks, slab_bytes / rows[class].bytes);
        CHECK_AT(class_is_medium(class) ? rows[class].blocks == 1 : rows[class].blocks >= 8, class);
        if (class_is_medium(class)) continue;
        if (!serves_alignments_only(class) && rows[class].bytes < SMALL_MAX_BYTES) pages += rows[class].pages;
        if (rows[class].pages > most_pages) most_pages = rows[class].pages;
        if ((rows[class].blocks + 63) / 64 > most_words) most_words = (rows[class].blocks + 63) / 64;
    }
    CHECK_EQ(most_pages, SLAB_MAX_PAGES);
    CHECK_EQ(most_words, SLAB_MAX_WORDS);
    CHECK_EQ(pages, SLABS_OF_SMALL_CLASSES_PAGES);
}

TEST(little_is_wasted) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        size_t slab_bytes = rows[class].pages * PAGE_BYTES;
        size_t tail = slab_bytes - rows[class].blocks * rows[class].bytes;
        CHECK_AT(tail * 1000 < slab_bytes * 16 && tail < 4096, class);
        /* Inside a block: at most a fifth, an eighth below 4 KiB, beyond the steps of 16 bytes, and of whole pages. */
        if (serves_alignments_only(class) || rows[class].bytes == SMALL_MAX_BYTES || rows[class].bytes <= 128 || (class_is_medium(class) && rows[class].bytes <= 8 * PAGE_BYTES)) continue;
        size_t worst = rows[class].bytes - rows[class - 1].bytes - 1;
        size_t share = rows[class].bytes <= 4096 ? 8 : 5;
        CHECK_AT(worst * share < rows[class].bytes, class);
    }
}
