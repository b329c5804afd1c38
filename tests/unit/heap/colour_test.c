/* colour_test.c - blocks of whole pages, medium and large, begin somewhere in their first page: where, and that all goes on with that.
 *
 * Planted defects it was seen to catch:
 *   all begin with their page                      they_begin_in_many_places
 *   one begins elsewhere each time                 a_place_has_one_colour
 *   one without room begins behind its page        what_leaves_no_room_begins_with_its_page
 *   so does one that was to be aligned             alignments_hold
 *   what is usable reaches into the next block     all_that_is_usable_is_its_own
 *   a large block forgets where it begins          it_stays_where_it_begins, it_moves_with_its_colour
 *   a length is counted from the page              it_stays_where_it_begins
 *   the last bytes are not cleared                 zeroes_reach_both_ends
 *   every place in the page passes for the start   what_is_no_start_is_told
 */
#include "medium.h"

#include "heap/large.h"
#include "no_purger.h"

static size_t offset_of(const void *block) { return (uintptr_t)block % PAGE_BYTES; }

/* ---- where ------------------------------------------------------------------------------------------------ */

static void many_places(void) {
    enum { COUNT = 64, PLACES = 4096 / 64 };
    for (size_t bytes = 100000; bytes < MIB(3); bytes = bytes * 4 / 3) {
        static void *blocks[COUNT];
        bool used[PLACES] = {false};
        size_t places = 0;
        for (size_t i = 0; i < COUNT; i++) {
            CHECK((blocks[i] = heap_alloc(bytes, NULL)) != NULL);
            const size_t offset = offset_of(blocks[i]);
            CHECK_AT(offset % 64 == 0 && offset < 4096, bytes);
            used[offset / 64] = true;
        }
        for (size_t i = 0; i < PLACES; i++) places += used[i];
        /* Neighbours share a colour up to 1 MiB, and some have one by chance. */
        CHECK_AT(places >= 5 && (bytes < MIB(1) || places >= 20), bytes);
        for (size_t i = 0; i < COUNT; i++) heap_free(blocks[i], NULL);
    }
}
TEST(they_begin_in_many_places) { IN_CHILD(many_places); }

static void one_colour(void) {
    for (size_t bytes = 70000; bytes < MIB(4); bytes = bytes * 3 / 2) {
        settle(bytes, 1);
        void *first = heap_alloc(bytes, NULL);
        for (int i = 0; i < 10; i++) {
            heap_free(first, NULL);
            CHECK_AT(heap_alloc(bytes, NULL) == first, bytes);
        }
        heap_free(first, NULL);
    }
}
TEST(a_place_has_one_colour) { IN_CHILD(one_colour); }

static void no_room(void) {
    enum { COUNT = 40 };
    for (size_t pages = 2; pages < 40; pages += 2 + pages / 9) {
        if (pages <= 16 && good_bytes(pages * PAGE_BYTES) != pages * PAGE_BYTES) continue;
        static void *blocks[2 * COUNT];
        for (size_t i = 0; i < 2 * COUNT; i++) {
            const size_t bytes = pages * PAGE_BYTES - i % 2 * 4095;
            CHECK((blocks[i] = heap_alloc(bytes, NULL)) != NULL);
            CHECK_AT(offset_of(blocks[i]) == 0 && heap_usable_bytes(blocks[i]) == pages * PAGE_BYTES, bytes);
            CHECK_EQ(heap_good_bytes(bytes), pages * PAGE_BYTES);
        }
        for (size_t i = 0; i < 2 * COUNT; i++) heap_free(blocks[i], NULL);
    }
}
TEST(what_leaves_no_room_begins_with_its_page) { IN_CHILD(no_room); }

static void aligned(void) {
    enum { COUNT = 20 };
    for (size_t bytes = 70000; bytes < MIB(4); bytes = bytes * 3 / 2) {
        for (size_t alignment = 16; alignment <= KIB(128); alignment *= 2) {
            void *blocks[COUNT];
            for (size_t i = 0; i < COUNT; i++) {
                CHECK((blocks[i] = heap_alloc_aligned(bytes, alignment)) != NULL);
                CHECK_AT(is_aligned(blocks[i], alignment), alignment);
                CHECK_AT(alignment <= 64 || offset_of(blocks[i]) == 0, alignment);
            }
            for (size_t i = 0; i < COUNT; i++) heap_free(blocks[i], NULL);
        }
    }
}
TEST(alignments_hold) { IN_CHILD(aligned); }

/* ---- what is theirs --------------------------------------------------------------------------------------- */

static void all_usable(void) {
    enum { COUNT = 300 };
    static unsigned char *blocks[COUNT];
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < COUNT; i++) {
        const size_t bytes = 65537 + rng_below(&rng, i % 2 ? MIB(2) : KIB(200));
        CHECK((blocks[i] = heap_alloc(bytes, NULL)) != NULL);
        const size_t usable = heap_usable_bytes(blocks[i]);
        CHECK_AT(usable >= bytes && usable >= heap_good_bytes(bytes) && page_bytes_of(blocks[i]) % PAGE_BYTES == 0, bytes);
        CHECK_EQ(heap_good_bytes(heap_good_bytes(bytes)), heap_good_bytes(bytes));
        memset(blocks[i], (int)(i % 251), 64);
        memset(blocks[i] + usable - 64, (int)(i % 251), 64);
    }
    for (size_t i = 0; i < COUNT; i++) {
        const size_t usable = heap_usable_bytes(blocks[i]);
        for (size_t at = 0; at < 64; at++)
            CHECK_AT(blocks[i][at] == i % 251 && blocks[i][usable - 1 - at] == i % 251, i);
        heap_free(blocks[i], NULL);
    }
}
TEST(all_that_is_usable_is_its_own) { IN_CHILD(all_usable); }

/* The first of those of BYTES bytes that does not begin with its page. */
static char *coloured(size_t bytes) {
    for (int i = 0; i < 200; i++) {
        char *block = heap_alloc(bytes, NULL);
        CHECK(block != NULL);
        if (offset_of(block) >= 64) return block; /* the others are left */
    }
    CHECK(false);
    return NULL;
}

/* Longer and shorter, as far as that goes without a move. */
static void stays(void) {
    for (size_t bytes = KIB(300); bytes < MIB(8); bytes *= 3) {
        char *block = coloured(bytes);
        const size_t offset = offset_of(block), in_use = counts_now().used_pages;
        block_fill(block, bytes, 3);
        size_t most = heap_usable_bytes(block);
        CHECK_EQ(heap_extend(block, most), most);
        const size_t longer = heap_extend(block, most + 1);
        if (longer != 0) {
            CHECK_EQ(longer, most + PAGE_BYTES);
            CHECK_EQ(heap_usable_bytes(block), longer);
            block[longer - 1] = 'x';
        }
        const size_t shorter = PAGE_BYTES * 3 - offset; /* just three pages of it */
        CHECK(heap_resize(block, shorter) == block && heap_usable_bytes(block) == shorter);
        CHECK(block_holds(block, shorter, 3) || bytes < shorter);
        CHECK_EQ(in_use - counts_now().used_pages, (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES <= MIB(1)
                                                       ? good_bytes(bytes) / PAGE_BYTES - 3
                                                       : (bytes + PAGE_BYTES - 1) / PAGE_BYTES - 3);
        heap_free(block, NULL);
        CHECK(!heap_owns(block));
    }
}
TEST(it_stays_where_it_begins) { IN_CHILD(stays); }

/* By its page tables, and a second time. */
static void moves(void) {
    size_t bytes = MIB(2) - KIB(5);
    char *block = coloured(bytes);
    const size_t offset = offset_of(block);
    for (unsigned key = 0; key < 4; key++) {
        block_fill(block, bytes, key);
        CHECK(heap_alloc(MIB(1) + 1, NULL) != NULL); /* in its way */
        char *moved = heap_resize(block, bytes * 3);
        if (moved == NULL) break; /* a kernel that moves nothing */
        CHECK_EQ(offset_of(moved), offset);
        CHECK(block_holds(moved, bytes, key));
        CHECK(heap_usable_bytes(moved) >= bytes * 3 && page_bytes_of(moved) % PAGE_BYTES == 0);
        memset(moved, 'x', heap_usable_bytes(moved));
        block = moved;
        bytes *= 3;
    }
    heap_free(block, NULL);
}
TEST(it_moves_with_its_colour) { IN_CHILD(moves); }

/* Much is cleared by the kernel, page by page. */
static void zeroes(void) {
    for (size_t bytes = MIB(1) - KIB(9); bytes < MIB(40); bytes = bytes * 2 - 777) {
        for (int i = 0; i < 4; i++) {
            unsigned char *block = heap_alloc_zero(bytes, NULL);
            CHECK_AT(block != NULL && block_is_zero(block, bytes), bytes);
            memset(block, 0xa5, heap_usable_bytes(block));
            heap_free(block, NULL);
        }
    }
}
TEST(zeroes_reach_both_ends) { IN_CHILD(zeroes); }

/* ---- misuse ----------------------------------------------------------------------------------------------- */

static void not_a_start(void) {
    start_counting_foreign();
    char *block = coloured(MIB(2) - KIB(5));
    const size_t offset = offset_of(block);
    for (size_t i = 0; i < 3; i++) {
        char *const wrong = block + (size_t[]){64, 4096, (size_t)0 - offset}[i];
        CHECK_AT(!heap_owns(wrong) && heap_usable_bytes(wrong) == 0, i);
        heap_free(wrong, NULL);
        CHECK_AT(heap_owns(block), i);
    }
    CHECK_EQ(foreign, 3 * 2);
    heap_free(block, NULL);
}

/* Both are seen when the stack gives up what it holds. */
static void medium_twice(void) {
    be_quiet();
    settle(KIB(300), 4);
    char *block = coloured(KIB(300));
    heap_free(block, NULL);
    heap_free(block, NULL);
    take_and_give(MIB(2), 64);
    heap_collect();
}
static void medium_inside(void) {
    be_quiet();
    settle(KIB(300), 4);
    heap_free(coloured(KIB(300)) + 16, NULL);
    take_and_give(MIB(2), 64);
    heap_collect();
}

TEST(what_is_no_start_is_told) {
    IN_CHILD(not_a_start);
    CHECK_ABORTS(medium_twice);
    CHECK_ABORTS(medium_inside);
}
