/* medium_resize_test.c - blocks of 64 KiB to 1 MiB that get another length: how they become large ones, and when they do not.
 *
 * Planted defects it was seen to catch:
 *   the owner goes on having what became large   it_becomes_large_where_it_lies
 *   any resize makes a large one of it, or one to the size that was asked for
 *                                                what_changes_nothing_leaves_it_a_slab
 *   without a slab it is as short as may be      they_are_as_long_as_was_said
 *   what has no slab is taken for medium         what_lies_outside_stays_as_it_is
 */
#include "medium.h"

#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/large.h"
#include "no_purger.h"

#include <inttypes.h>

/* A block of 4 pages, and behind it a large one, which keeps its place until that is wanted. */
static char *room;
static char *block_before_room(void) {
    for (;;) {
        char *block = heap_alloc(KIB(256), NULL);
        CHECK(block != NULL && (room = heap_alloc(MIB(8), NULL)) != NULL);
        if (room == block + KIB(256)) return block;
    }
}

static struct heap *owner; /* of the block that is resized */

static void check_resizing(char *block) {
    heap_free(room, NULL);
    const size_t page = page_index(block);
    const struct bin *bin = &owner->bins[size_class_of(KIB(256))];
    const uint64_t slabs = counter_read(&bin->slab_count), used = counts_now().used_pages, in_use = footprint_in_use();
    block_fill(block, KIB(256), 7);
    CHECK(heap_resize(block, SMALL_MAX_BYTES) == NULL); /* a small block holds it in less */
    CHECK(heap_resize(block, KIB(193)) == block);       /* as many pages */
    CHECK_EQ(counter_read(&bin->slab_count), slabs);
    CHECK(heap_resize(block, KIB(512)) == block);
    CHECK_EQ(page_bytes_of(block), KIB(512));
    CHECK_EQ(word_of(block), WORD_LARGE);
    CHECK_EQ(counter_read(&bin->slab_count), slabs - 1);
    CHECK_EQ(counts_now().used_pages, used + 4);
    CHECK_EQ(footprint_in_use(), in_use + 4 * PAGE_BYTES);
    CHECK(block_holds(block, KIB(256), 7));
    CHECK(heap_resize(block, KIB(128)) == block);
    CHECK_EQ(page_bytes_of(block), KIB(128));
    CHECK(block_holds(block, KIB(128), 7));
    CHECK_EQ(counts_now().used_pages, used - 2);
    CHECK_EQ(heap_extend(block, KIB(128) + 1), KIB(192));
    heap_free(block, NULL);
    CHECK(!heap_owns(block) && page_word(page) == WORD_NONE);
    CHECK_EQ(counts_now().used_pages, used - 4);
    CHECK_EQ(footprint_in_use(), in_use - 4 * PAGE_BYTES);
}

static void *resize_anothers(void *block) {
    heap_free(heap_alloc(100, NULL), NULL);
    check_resizing(block);
    return NULL;
}

static void resized(void) {
    char *block = block_before_room();
    owner = thread_heap();
    purger_look(owner, NULL);
    check_resizing(block);
    block = block_before_room();
    purger_look(owner, NULL);
    run_thread(resize_anothers, block);
    /* Shorter at once, and longer without another end. */
    block = heap_alloc(MIB(1), NULL);
    CHECK(heap_resize(block, KIB(300)) == block);
    CHECK(word_of(block) == WORD_LARGE && page_bytes_of(block) == KIB(320));
    heap_free(block, NULL);
    block = block_before_room();
    heap_free(room, NULL);
    CHECK_EQ(heap_extend(block, KIB(256)), KIB(256));
    CHECK(word_of(block) != WORD_LARGE);
    CHECK_EQ(heap_extend(block, KIB(300)), KIB(320));
    heap_free(block, NULL);
}
TEST(it_becomes_large_where_it_lies) { IN_CHILD(resized); }

/* What would change nothing does not make a large block of it, which no thread keeps. */
static void not_resized(void) {
    char *block = heap_alloc(MIB(1), NULL);
    CHECK(heap_resize(block, KIB(896)) == block); /* one size is not worth it */
    CHECK(heap_resize(block, SIZE_MAX) == NULL && heap_extend(block, SIZE_MAX) == 0);
    CHECK(word_of(block) == heap_word(own(), SIZE_CLASSES - 1));
    heap_free(block, NULL);
    /* Nor what was served by the next larger one. */
    settle(KIB(300), 1);
    block = heap_alloc(KIB(250), NULL);
    CHECK(page_bytes_of(block) == good_bytes(KIB(300)) && heap_resize(block, KIB(250)) == block);
    CHECK_EQ(word_of(block), heap_word(own(), size_class_of(KIB(300))));
    CHECK(heap_resize(block, KIB(190)) == block && word_of(block) == WORD_LARGE);
    heap_free(block, NULL);
}
TEST(what_changes_nothing_leaves_it_a_slab) { IN_CHILD(not_resized); }

/* Nor does it of what lies outside of the window, which has no slab. */
static void not_extended_outside(void) {
    bool zero;
    CHECK(slow_enter());
    char *block = large_map_outside(MIB(2), 16, &zero);
    slow_leave();
    CHECK(block != NULL && !window_holds(block));
    const size_t bytes = heap_usable_bytes(block);
    block_fill(block, bytes, 3);
    CHECK(heap_extend(block, bytes + 1) == 0 && heap_extend(block, bytes) == bytes);
    CHECK(heap_usable_bytes(block) == bytes && block_holds(block, bytes, 3));
    heap_free(block, NULL);
}
TEST(what_lies_outside_stays_as_it_is) { IN_CHILD(not_extended_outside); }

/* One that gets no slab any more has as many bytes as was said all the same, or there is none. */
static void good_below_a_limit(void) {
    char limit[32];
    CHECK(hak_malloc(MIB(8)) != NULL); /* no limit may be lower */
    size_t refused = 0;
    for (uint64_t left = 8; left < SPAN_RESERVE_PAGES + 20; left++) { /* the reserve is less where the limit is low */
        snprintf(limit, sizeof limit, "%" PRIu64, (counts_now().used_pages + left) * PAGE_BYTES);
        CHECK_EQ(hak_option_set("hard_limit", limit), 0);
        for (size_t bytes = KIB(513); bytes <= MIB(1); bytes += PAGE_BYTES) {
            void *block = heap_alloc(bytes, NULL);
            CHECK_AT(block == NULL || heap_usable_bytes(block) >= heap_good_bytes(bytes), bytes);
            refused += block == NULL;
            heap_free(block, NULL);
        }
        heap_collect();
    }
    CHECK(refused > 0);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
}
TEST(they_are_as_long_as_was_said) { IN_CHILD(good_below_a_limit); }
