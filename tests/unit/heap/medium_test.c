/* medium_test.c - blocks of 64 KiB to 1 MiB, which are slabs by themselves: what a thread keeps of them, what they are like, and
 * what is said of them. Of another length: medium_resize_test.c. Several threads: medium_threads_test.c. What is kept where the process
 * grows: kept_test.c.
 *
 * Planted defects it was seen to catch:
 *   a block of another class is popped           a_size_that_comes_and_goes_is_kept
 *   they have the budget of small ones           all_keep_to_the_budget, others_make_room
 *   no size makes room                           a_size_that_comes_and_goes_is_kept, others_make_room
 *   a budget that fell waits as a request does   a_budget_that_fell_is_kept_to
 *   sizes in use rob each other                  sizes_that_share_the_budget_do_not_swing
 *   what is idle is kept                         what_is_idle_goes_back
 *   nobody looks where no slab is made           what_is_idle_goes_back
 *   a size does without the next larger one, or gets a larger one still
 *                                                the_next_larger_one_will_do
 *   one that is kept, or its pages, pass for zero  zeroes_are_zeroes
 *   a pointer into it is rounded down            pointers_into_a_block_are_told
 *   the commons are not counted                  a_thread_without_a_heap
 *   what is refused counts as refilled           what_is_refused_is_no_refill
 *   the books call them small                    the_books_know
 */
#include "medium.h"

#include "heap/footprint.h"
#include "no_purger.h"
#include "watch/stats.h"

/* ---- what is kept ----------------------------------------------------------------------------------------- */

static void comes_and_goes(void) {
    for (size_t bytes = KIB(65); bytes <= MIB(1); bytes += KIB(61)) {
        settle(bytes, 1);
        const uint64_t taken = counts_now().taken;
        for (int i = 0; i < 100; i++) {
            char *block = heap_alloc(bytes, NULL);
            CHECK_EQ(page_bytes_of(block), good_bytes(bytes));
            block[0] = block[bytes - 1] = 'x';
            heap_free(block, NULL);
        }
        CHECK_AT(counts_now().taken == taken, bytes);
    }
    /* Beyond, none is. */
    settle(MIB(1) + 1, 1);
    const uint64_t taken = counts_now().taken;
    take_and_give(MIB(1) + 1, 1);
    CHECK_EQ(counts_now().taken, taken + 1);
}
TEST(a_size_that_comes_and_goes_is_kept) { IN_CHILD(comes_and_goes); }

static void *free_all(void *blocks) {
    for (void **block = blocks; *block != NULL; block++) heap_free(*block, NULL);
    CHECK_EQ(kept_bytes(), 0);
    return NULL;
}

/* One that is only taken, only freed, or comes by once, is not. */
static void once(void) {
    static void *blocks[65];
    for (int round = 0; round < 5; round++) {
        for (size_t i = 0; i < 64; i++) CHECK((blocks[i] = heap_alloc(KIB(128), NULL)) != NULL);
        run_thread(free_all, blocks);
        CHECK_EQ(kept_bytes(), 0);
    }
    for (size_t i = 0; i < 64; i++) CHECK((blocks[i] = heap_alloc(KIB(128), NULL)) != NULL);
    CHECK_EQ(own()->bins[size_class_of(KIB(128))].depth, 0);
    for (size_t i = 0; i < 64; i++) heap_free(blocks[i], NULL);
    CHECK(kept_of(KIB(128)) <= 1);
    heap_collect();
    CHECK_EQ(kept_bytes(), 0);
    for (size_t bytes = KIB(200); bytes < KIB(900); bytes += KIB(128)) take_and_give(bytes, 1);
    CHECK_EQ(kept_bytes(), 0);
}
TEST(what_comes_by_once_is_not) { IN_CHILD(once); }

/* Eight buffers that grow in turn, again and again. */
static void grow(void) {
    for (int round = 0; round < 10; round++) {
        char *buffers[8] = {NULL};
        for (size_t bytes = KIB(4); bytes < MIB(2); bytes += bytes / 4)
            for (size_t i = 0; i < 8; i++) CHECK((buffers[i] = hak_realloc(buffers[i], bytes)) != NULL);
        CHECK_EQ(kept_bytes(), 0);
        for (size_t i = 0; i < 8; i++) hak_free(buffers[i]);
    }
}
TEST(a_growing_buffer_leaves_nothing) { IN_CHILD(grow); }

static void configure(size_t thread_cache_bytes) {
    heap_configure(&(struct heap_options){.thread_cache_bytes = thread_cache_bytes, .decay = ACE_NEVER});
}

static void bound(void) {
    struct rng rng = {check_now.seed};
    static void *blocks[64];
    size_t most = 0;
    configure(MIB(64));
    for (size_t i = 0; i < check_count(40000); i++) {
        const size_t at = rng_below(&rng, 64);
        const uint64_t given = counts_now().given;
        heap_free(blocks[at], NULL);
        CHECK((blocks[at] = heap_alloc(KIB(65) + rng_below(&rng, KIB(900)), NULL)) != NULL);
        CHECK_AT(counts_now().given - given <= 2 * (MIB(32) / KIB(128)), i); /* two operations: no more than the bound holds */
        CHECK_AT(kept_bytes() <= counter_read(&own()->medium_depth.bytes), i);
        CHECK_AT(counter_read(&own()->medium_depth.bytes) <= MIB(32), i);
        if (kept_bytes() > most) most = kept_bytes();
    }
    CHECK(most > MIB(1)); /* it is used */
    for (size_t i = 0; i < 64; i++) heap_free(blocks[i], NULL);
    /* A lower one is kept to by the looks that follow. */
    configure(KIB(256)); /* the only thread may have twice as much */
    settle(MIB(2), 1);
    CHECK(counter_read(&own()->medium_depth.bytes) <= KIB(512) && kept_bytes() <= KIB(512));
    configure(MIB(4));
    for (int i = 0; i < 100; i++) settle(KIB(128), 8);
    CHECK_EQ(kept_of(KIB(128)) + kept_of(KIB(192)), 8); /* one that was left of the next larger size will do */
    configure(0);
    settle(MIB(2), 1);
    CHECK_EQ(kept_bytes(), 0);
    settle(KIB(128), 8);
    CHECK_EQ(kept_bytes(), 0);
}
TEST(all_keep_to_the_budget) { IN_CHILD(bound); }

/* Sizes that fill it, one after the other. */
static void two_sizes(void) {
    configure(MIB(4));
    settle(KIB(128), 64);
    CHECK_EQ(kept_bytes(), MIB(8));
    settle(MIB(1), 8);
    const uint64_t taken = counts_now().taken;
    settle(MIB(1), 8);
    CHECK_EQ(counts_now().taken, taken);
    CHECK(kept_bytes() <= MIB(8));
}
TEST(others_make_room) { IN_CHILD(two_sizes); }

/* Where no other size wants it, what lies above a budget that fell goes sooner than where one does. */
static void lower_budget(void) {
    configure(MIB(4));
    settle(KIB(128), 64);
    CHECK_EQ(kept_bytes(), MIB(8));
    configure(KIB(2560)); /* the only thread may have twice as much: 8 MiB are not so much more that they go at once */
    for (int looks = 0; looks < 2 * ACE_BUDGET_IDLE; looks++) take_and_give(MIB(2), 1);
    CHECK(kept_bytes() <= MIB(5));
}
TEST(a_budget_that_fell_is_kept_to) { IN_CHILD(lower_budget); }

/* So many of the longest sizes come and go in any order, for which the budget of CACHE_BYTES is too small. */
static void too_many_sizes(unsigned sizes, uint64_t live, size_t cache_bytes) {
    enum { LIVE_MOST = 448, SETTLE = 40000 };
    struct rng rng = {check_now.seed};
    static void *blocks[LIVE_MOST];
    uint32_t depths[SIZE_CLASSES - SMALL_CLASSES] = {0};
    uint64_t changes = 0;
    const size_t turns = check_count(100000);
    configure(cache_bytes);
    for (size_t i = 0; i < SETTLE + turns; i++) {
        void **block = &blocks[rng_below(&rng, live)];
        heap_free(*block, NULL);
        CHECK((*block = heap_alloc(slab_classes[SIZE_CLASSES - 1 - rng_below(&rng, sizes)].block_bytes, NULL)) != NULL);
        for (unsigned size = 0; size < sizes; size++) {
            const uint32_t depth = own()->bins[SIZE_CLASSES - 1 - size].depth;
            changes += i >= SETTLE && depth != depths[size];
            depths[size] = depth;
        }
    }
    CHECK(kept_bytes() != 0);
    CHECK_AT(changes <= sizes + turns / 10000, changes);
}
/* The budget is a share of what is in use, which moves; and a bound. */
static void some_sizes(void) { too_many_sizes(7, 448, MIB(64)); }
static void all_sizes(void) { too_many_sizes(SIZE_CLASSES - SMALL_CLASSES, 24, MIB(8)); }
TEST(sizes_that_share_the_budget_do_not_swing) {
    IN_CHILD(some_sizes);
    IN_CHILD(all_sizes);
}

/* While the thread takes medium blocks of another size, and small ones stay. */
static void idle(void) {
    static void *blocks[64];
    settle(KIB(256), 3);
    CHECK_EQ(kept_of(KIB(256)), 3);
    take_and_give(100, 1);
    const size_t small = stack_held(own(), size_class_of(100));
    CHECK(small != 0);
    for (size_t i = 0; i < 3 * (SIZE_CLASSES - SMALL_CLASSES); i++) CHECK((blocks[i] = heap_alloc(KIB(128), NULL)) != NULL);
    CHECK_EQ(kept_of(KIB(256)), 0);
    CHECK_EQ(stack_held(own(), size_class_of(100)), small);
    /* A thread that takes neither any more does not keep them either. */
    settle(KIB(256), 3);
    CHECK_EQ(kept_of(KIB(256)), 3);
    for (int i = 0; i < 1000; i++) take_and_give(MIB(2), 1);
    CHECK_EQ(kept_of(KIB(256)), 0);
}
TEST(what_is_idle_goes_back) { IN_CHILD(idle); }

/* A size that the thread has none of gets the next larger one that it has, and no larger one than that. */
static void next_larger(void) {
    settle(KIB(300), 2);
    const uint64_t taken = counts_now().taken;
    char *block = heap_alloc(KIB(250), NULL), *zeroed = heap_alloc(KIB(250), NULL);
    CHECK_EQ(page_bytes_of(block), good_bytes(KIB(300)));
    memset(zeroed, 0xa5, heap_usable_bytes(zeroed));
    heap_free(zeroed, NULL);
    zeroed = heap_alloc_zero(KIB(250), NULL);
    CHECK(page_bytes_of(zeroed) == good_bytes(KIB(300)) && block_is_zero(zeroed, KIB(250)));
    CHECK(kept_of(KIB(300)) == 0 && counts_now().taken == taken);
    heap_free(block, NULL);
    heap_free(zeroed, NULL);
    CHECK(kept_of(KIB(250)) == 0 && kept_of(KIB(300)) == 2);
    block = heap_alloc(KIB(190), NULL);
    CHECK_EQ(page_bytes_of(block), good_bytes(KIB(190)));
    CHECK(kept_of(KIB(300)) == 2 && counts_now().taken == taken + 1);
    heap_free(block, NULL);
}
TEST(the_next_larger_one_will_do) { IN_CHILD(next_larger); }

/* So three sizes that come and go in any order settle on few blocks, which are used again and again. */
static void neighbours(void) {
    enum { LIVE = 32, SETTLE = 20000 };
    struct rng rng = {check_now.seed};
    static void *blocks[LIVE];
    uint64_t taken = 0;
    const size_t turns = check_count(20000);
    for (size_t i = 0; i < SETTLE + turns; i++) {
        void **block = &blocks[rng_below(&rng, LIVE)];
        if (i == SETTLE) taken = counts_now().taken;
        heap_free(*block, NULL);
        CHECK((*block = heap_alloc(KIB(769) + rng_below(&rng, KIB(255)), NULL)) != NULL);
    }
    CHECK_AT(counts_now().taken - taken <= turns / 100, counts_now().taken - taken);
}
TEST(neighbours_use_each_others) { IN_CHILD(neighbours); }

/* ---- blocks ----------------------------------------------------------------------------------------------- */

static void sizes(void) {
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) {
        const size_t most = slab_classes[class].block_bytes, least = slab_classes[class - 1].block_bytes + 1;
        const size_t requests[] = {least, (least + most) / 2, most - 1, most};
        for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
            char *block = heap_alloc(requests[i], NULL);
            CHECK_AT(block != NULL && is_aligned(block, 64), requests[i]);
            CHECK_EQ(word_of(block), heap_word(own(), class));
            CHECK_EQ(page_bytes_of(block), most);
            CHECK_EQ(heap_good_bytes(requests[i]), most - requests[i] < KIB(4) ? most : most - KIB(4));
            const size_t usable = heap_usable_bytes(block);
            CHECK_AT(usable >= heap_good_bytes(requests[i]), requests[i]);
            CHECK(heap_owns(block));
            block_fill(block, usable, class);
            CHECK(block_holds(block, usable, class));
            heap_free(block, NULL);
        }
    }
}
TEST(they_have_the_size_of_their_class) { IN_CHILD(sizes); }

/* Zeroes are written where blocks were used. */
static void zeroes(void) {
    settle(KIB(300), 2);
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(kept_of(KIB(300)), 2);
        unsigned char *block = heap_alloc_zero(KIB(300), NULL);
        CHECK(block != NULL && block_is_zero(block, KIB(300)));
        CHECK_EQ(kept_of(KIB(300)), 1);
        memset(block, 0xa5, heap_usable_bytes(block));
        heap_free(block, NULL);
    }
    /* And in new slabs, of pages that were: none of these is kept. */
    for (size_t bytes = KIB(500); bytes <= MIB(1); bytes += KIB(128)) {
        void *before = heap_alloc(MIB(2), NULL);
        memset(before, 0xa5, MIB(2));
        heap_free(before, NULL);
        unsigned char *block = heap_alloc_zero(bytes, NULL);
        CHECK_AT(block != NULL && block_is_zero(block, bytes), bytes);
        heap_free(block, NULL);
    }
}
TEST(zeroes_are_zeroes) { IN_CHILD(zeroes); }

/* Up to a page any will do, kept ones too; beyond none does. */
static void aligned(void) {
    settle(KIB(300), 1);
    for (size_t alignment = 16; alignment <= MIB(1); alignment *= 2) {
        const size_t kept = kept_of(KIB(300));
        CHECK_EQ(kept, 1);
        void *block = heap_alloc_aligned(KIB(300), alignment);
        CHECK_AT(block != NULL && is_aligned(block, alignment), alignment);
        CHECK_EQ(kept_of(KIB(300)), alignment <= PAGE_BYTES ? 0 : 1);
        CHECK_EQ(word_of(block) == WORD_LARGE, alignment > PAGE_BYTES);
        heap_free(block, NULL);
    }
}
TEST(they_are_aligned_to_a_page) { IN_CHILD(aligned); }

/* ---- misuse ----------------------------------------------------------------------------------------------- */

static void free_twice(void) {
    be_quiet();
    void *block = heap_alloc(KIB(200), NULL);
    heap_free(block, NULL);
    heap_free(block, NULL);
}

/* Both find room; it is found when they are given back. */
static void free_twice_and_keep(void) {
    be_quiet();
    settle(KIB(200), 2);
    CHECK_EQ(kept_of(KIB(200)), 2);
    void *block = heap_alloc(KIB(200), NULL), *other = heap_alloc(KIB(200), NULL);
    heap_free(block, NULL);
    heap_free(block, NULL);
    CHECK(other != NULL && kept_of(KIB(200)) == 2);
    heap_collect();
}

static void *free_once(void *block) { return heap_free(block, NULL), NULL; }

static void free_here_and_elsewhere(void) {
    be_quiet();
    settle(KIB(200), 2);
    void *block = heap_alloc(KIB(200), NULL);
    heap_free(block, NULL);
    run_thread(free_once, block);
    heap_collect();
}

static void *free_inside(void *block) { return heap_free((char *)block + 16, NULL), NULL; }

static void free_inside_anothers(void) {
    be_quiet();
    run_thread(free_inside, heap_alloc(KIB(200), NULL));
}

static void free_inside_own(void) {
    be_quiet();
    free_inside(heap_alloc(KIB(200), NULL));
}

static void resize_inside(void) {
    be_quiet();
    char *block = heap_alloc(KIB(200), NULL);
    heap_resize(block + 16, KIB(400));
}

TEST(twice_freed_is_told) {
    CHECK_ABORTS(free_twice);
    CHECK_ABORTS(free_twice_and_keep);
    CHECK_ABORTS(free_here_and_elsewhere);
}

/* On any page but the first nothing looks like a block. */
static void inside(void) {
    char *block = heap_alloc(KIB(300), NULL);
    start_counting_foreign();
    for (size_t at = PAGE_BYTES; at < heap_usable_bytes(block); at += KIB(16)) {
        heap_free(block + at, NULL);
        CHECK(!heap_owns(block + at) && heap_usable_bytes(block + at) == 0);
    }
    CHECK_EQ(foreign, 2 * 16);
    CHECK(heap_owns(block));
    heap_free(block, NULL);
    CHECK_EQ(foreign, 2 * 16);
    heap_free(block, NULL); /* its slab went with it */
    CHECK_EQ(foreign, 2 * 16 + 1);
}
TEST(pointers_into_a_block_are_told) {
    IN_CHILD(inside);
    CHECK_ABORTS(free_inside_own);
    CHECK_ABORTS(free_inside_anothers);
    CHECK_ABORTS(resize_inside);
}

/* ---- what is said of them --------------------------------------------------------------------------------- */

static void heapless(void) {
    const uint64_t in_use = footprint_in_use(), used = counts_now().used_pages;
    thread_forgo_heap();
    void *medium = heap_alloc(KIB(300), NULL), *small = heap_alloc(50000, NULL);
    CHECK_EQ(word_of(medium), heap_word(&commons, size_class_of(KIB(300))));
    CHECK_EQ(footprint_in_use(), in_use + KIB(320) + good_bytes(50000));
    heap_free(medium, NULL);
    heap_free(small, NULL);
    CHECK_EQ(footprint_in_use(), in_use);
    CHECK_EQ(counts_now().used_pages, used);
    CHECK_EQ(commons.bins[size_class_of(KIB(300))].slab_count, 0);
}
TEST(a_thread_without_a_heap) { IN_CHILD(heapless); }

/* Nobody got a block: no reason for a deeper stack. */
static void refused(void) {
    const size_t bytes = KIB(900);
    settle(KIB(100), 2);
    const struct bin *bin = &own()->bins[size_class_of(bytes)];
    const uint64_t refills = counter_read(&bin->refills), blocks = counter_read(&bin->refilled_blocks);
    const uint32_t depth = bin->depth;
    span_configure(&(struct span_settings){
        .decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX, .hard_pages = counts_now().used_pages});
    for (int i = 0; i < 20; i++) CHECK_AT(heap_alloc(bytes, NULL) == NULL, i);
    CHECK_EQ(counter_read(&bin->refills), refills);
    CHECK_EQ(counter_read(&bin->refilled_blocks), blocks);
    CHECK(bin->recent_refills == 0 && bin->recent_refilled_blocks == 0 && bin->depth == depth);
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX});
    CHECK(heap_alloc(bytes, NULL) != NULL);
    CHECK_EQ(counter_read(&bin->refills), refills + 1);
    CHECK_EQ(counter_read(&bin->refilled_blocks), blocks + 1);
}
TEST(what_is_refused_is_no_refill) { IN_CHILD(refused); }

static void books(void) {
    struct stats_totals before, with, after;
    struct stats_class class;
    settle(KIB(192), 2);
    stats_read_totals(&before);
    void *block = heap_alloc(KIB(192), NULL);
    stats_read_totals(&with);
    CHECK_EQ(with.large_blocks, before.large_blocks + 1);
    CHECK_EQ(with.large_bytes, before.large_bytes + KIB(192));
    CHECK_EQ(with.live_small_bytes, before.live_small_bytes);
    CHECK_EQ(with.cached_bytes, before.cached_bytes - KIB(192));
    CHECK_EQ(with.in_use_bytes, before.in_use_bytes);
    stats_read_class(size_class_of(KIB(192)), &class);
    CHECK(class.block_bytes == KIB(192) && class.slabs == 2 && class.live_blocks == 1 && class.cached_blocks == 1);
    heap_free(block, NULL);
    stats_read_totals(&after);
    CHECK_EQ(after.large_blocks, before.large_blocks);
    CHECK_EQ(after.large_bytes, before.large_bytes);
    CHECK_EQ(after.cached_bytes, before.cached_bytes);
    const void *at = NULL;
    uint64_t cached = 0;
    for (struct stats_heap heap; stats_next_heap(&at, &heap);) cached += heap.cached_bytes;
    CHECK_EQ(cached, after.cached_bytes);
}
TEST(the_books_know) { IN_CHILD(books); }
