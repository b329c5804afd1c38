/* medium_test.c - blocks of 64 KiB to 1 MiB, which are slabs by themselves: what a thread keeps of them, who takes that away, how they
 * cross threads, and how they become large ones.
 *
 * Planted defects it was seen to catch:
 *   a block of another class is popped           a_size_that_comes_and_goes_is_kept
 *   they have the budget of small ones           all_keep_to_the_budget, others_make_room
 *   no size makes room                           a_size_that_comes_and_goes_is_kept, others_make_room
 *   sizes in use rob each other                  sizes_that_share_the_budget_do_not_swing
 *   what is idle is kept                         what_is_idle_goes_back
 *   nobody looks where no slab is made           what_is_idle_goes_back
 *   one that is kept, or its pages, pass for zero  zeroes_are_zeroes
 *   a block of another heap stays counted        blocks_of_others_go_back_at_once
 *   it is never taken over, or without its word  blocks_of_others_are_taken_over_where_there_is_room
 *   a pointer into it is rounded down            pointers_into_a_block_are_told
 *   the owner goes on having what became large   it_becomes_large_where_it_lies
 *   a sleeper keeps its last block               a_sleeper_gives_all_back
 *   that which is about to be popped is taken    a_block_that_is_about_to_be_popped_stays
 *   others' stacks are not revealed              where_memory_is_short_it_is_found, no_limit_is_in_the_way
 *   a limit is in the way of one that grows      no_limit_is_in_the_way
 *   the mark of a pop outlives a fork            a_child_goes_on
 *   a handler pops the same, or changes lengths  a_handler_gets_another_block
 *   the commons are not counted                  a_thread_without_a_heap
 *   the books call them small                    the_books_know
 */
#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"

#include "heap/alloc.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/purge.h"
#include "heap/thread.h"
#include "no_purger.h"
#include "region/outside.h"
#include "span/span.h"
#include "watch/stats.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

static const struct heap *own(void) { return thread_heap(); }

static size_t good_bytes(size_t bytes) { return slab_classes[size_class_of(bytes)].block_bytes; }

static size_t held_of(const struct heap *heap, size_t bytes) { return stack_held(heap, size_class_of(bytes)); }
static size_t kept_of(size_t bytes) { return held_of(own(), bytes); }

/* Medium blocks of all sizes together. */
static size_t kept_bytes(void) {
    size_t bytes = 0;
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++)
        bytes += stack_held(own(), class) * slab_classes[class].block_bytes;
    return bytes;
}

static uint32_t word_of(const void *block) { return page_word(page_index(block)); }

/* COUNT blocks live at once. */
static void take_and_give(size_t bytes, size_t count) {
    void *blocks[64];
    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++) CHECK((blocks[i] = heap_alloc(bytes)) != NULL);
    for (size_t i = 0; i < count; i++) heap_free(blocks[i], NULL);
}

/* Until blocks of BYTES bytes are kept, or not, as they will be. */
static void settle(size_t bytes, size_t count) {
    for (int i = 0; i < 100; i++) take_and_give(bytes, count);
}

static struct span_counts counts_now(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts;
}

static void run_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, body, argument), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* What is said is tested elsewhere. */
static void be_quiet(void) {
    int quiet = open("/dev/null", O_WRONLY);
    CHECK(quiet >= 0 && dup2(quiet, STDERR_FILENO) >= 0);
}

#define CHECK_ABORTS(body)                                                                                   \
    do {                                                                                                     \
        int check_status = child_status(body, CHILD_SECONDS);                                                \
        CHECK(WIFSIGNALED(check_status) && WTERMSIG(check_status) == SIGABRT);                               \
    } while (0)

/* ---- what is kept ----------------------------------------------------------------------------------------- */

static void comes_and_goes(void) {
    for (size_t bytes = KIB(65); bytes <= MIB(1); bytes += KIB(61)) {
        settle(bytes, 1);
        const uint64_t taken = counts_now().taken;
        for (int i = 0; i < 100; i++) {
            char *block = heap_alloc(bytes);
            CHECK_EQ(heap_usable_bytes(block), good_bytes(bytes));
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
        for (size_t i = 0; i < 64; i++) CHECK((blocks[i] = heap_alloc(KIB(128))) != NULL);
        run_thread(free_all, blocks);
        CHECK_EQ(kept_bytes(), 0);
    }
    for (size_t i = 0; i < 64; i++) CHECK((blocks[i] = heap_alloc(KIB(128))) != NULL);
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
    for (size_t i = 0; i < check_count(40000); i++) {
        const size_t at = rng_below(&rng, 64);
        const uint64_t given = counts_now().given;
        heap_free(blocks[at], NULL);
        CHECK_AT(counts_now().given - given <= MIB(8) / KIB(128), i); /* one operation: no more than the bound holds */
        CHECK((blocks[at] = heap_alloc(KIB(65) + rng_below(&rng, KIB(900)))) != NULL);
        CHECK_AT(kept_bytes() <= counter_read(&own()->medium_depth.bytes), i);
        CHECK_AT(counter_read(&own()->medium_depth.bytes) <= MIB(8), i);
        if (kept_bytes() > most) most = kept_bytes();
    }
    CHECK(most > MIB(1)); /* it is used */
    for (size_t i = 0; i < 64; i++) heap_free(blocks[i], NULL);
    /* A lower one is kept to by the looks that follow. */
    configure(MIB(1));
    settle(MIB(2), 1);
    CHECK(counter_read(&own()->medium_depth.bytes) <= KIB(512) && kept_bytes() <= KIB(512));
    configure(MIB(8));
    for (int i = 0; i < 100; i++) settle(KIB(128), 8);
    CHECK_EQ(kept_of(KIB(128)), 8);
    configure(0);
    settle(MIB(2), 1);
    CHECK_EQ(kept_bytes(), 0);
    settle(KIB(128), 8);
    CHECK_EQ(kept_bytes(), 0);
}
TEST(all_keep_to_the_budget) { IN_CHILD(bound); }

/* Two sizes that fill it, one after the other. */
static void two_sizes(void) {
    settle(KIB(128), 8);
    CHECK_EQ(kept_bytes(), MIB(1));
    settle(KIB(512), 2);
    const uint64_t taken = counts_now().taken;
    settle(KIB(512), 2);
    CHECK_EQ(counts_now().taken, taken);
    CHECK(kept_bytes() <= MIB(1));
}
TEST(others_make_room) { IN_CHILD(two_sizes); }

/* Five sizes that come and go in any order, for which the budget is too small. */
static void too_many_sizes(void) {
    enum { SIZES = 5, LIVE = 64, SETTLE = 20000 };
    struct rng rng = {check_now.seed};
    static void *blocks[LIVE];
    uint32_t depths[SIZES] = {0};
    uint64_t changes = 0;
    const size_t turns = check_count(100000);
    for (size_t i = 0; i < SETTLE + turns; i++) {
        void **block = &blocks[rng_below(&rng, LIVE)];
        heap_free(*block, NULL);
        CHECK((*block = heap_alloc(slab_classes[SIZE_CLASSES - 1 - rng_below(&rng, SIZES)].block_bytes)) != NULL);
        for (unsigned size = 0; size < SIZES; size++) {
            const uint32_t depth = own()->bins[SIZE_CLASSES - 1 - size].depth;
            changes += i >= SETTLE && depth != depths[size];
            depths[size] = depth;
        }
    }
    CHECK(kept_bytes() != 0);
    CHECK_AT(changes <= SIZES + turns / 10000, changes);
}
TEST(sizes_that_share_the_budget_do_not_swing) { IN_CHILD(too_many_sizes); }

/* While the thread takes medium blocks of another size, and small ones stay. */
static void idle(void) {
    static void *blocks[64];
    settle(KIB(256), 3);
    CHECK_EQ(kept_of(KIB(256)), 3);
    take_and_give(100, 1);
    const size_t small = stack_held(own(), size_class_of(100));
    CHECK(small != 0);
    for (size_t i = 0; i < 3 * (SIZE_CLASSES - SMALL_CLASSES); i++) CHECK((blocks[i] = heap_alloc(KIB(128))) != NULL);
    CHECK_EQ(kept_of(KIB(256)), 0);
    CHECK_EQ(stack_held(own(), size_class_of(100)), small);
    /* A thread that takes neither any more does not keep them either. */
    settle(KIB(256), 3);
    CHECK_EQ(kept_of(KIB(256)), 3);
    for (int i = 0; i < 1000; i++) take_and_give(MIB(2), 1);
    CHECK_EQ(kept_of(KIB(256)), 0);
}
TEST(what_is_idle_goes_back) { IN_CHILD(idle); }

/* ---- blocks ----------------------------------------------------------------------------------------------- */

static void sizes(void) {
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) {
        const size_t most = slab_classes[class].block_bytes, least = slab_classes[class - 1].block_bytes + 1;
        const size_t requests[] = {least, (least + most) / 2, most - 1, most};
        for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
            char *block = heap_alloc(requests[i]);
            CHECK_AT(block != NULL && is_aligned(block, PAGE_BYTES), requests[i]);
            CHECK_EQ(word_of(block), heap_word(own(), class));
            CHECK_EQ(heap_usable_bytes(block), most);
            CHECK_EQ(heap_good_bytes(requests[i]), most);
            CHECK(heap_owns(block));
            block_fill(block, most, class);
            CHECK(block_holds(block, most, class));
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
        unsigned char *block = heap_alloc_zero(KIB(300));
        CHECK(block != NULL && block_is_zero(block, KIB(300)));
        CHECK_EQ(kept_of(KIB(300)), 1);
        memset(block, 0xa5, heap_usable_bytes(block));
        heap_free(block, NULL);
    }
    /* And in slabs of pages that were. */
    for (int i = 0; i < 20; i++) {
        heap_collect();
        unsigned char *block = heap_alloc_zero(KIB(300));
        CHECK(block != NULL && block_is_zero(block, KIB(300)));
        memset(block, 0xa5, heap_usable_bytes(block));
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

/* ---- other threads' --------------------------------------------------------------------------------------- */

static struct heap *owner; /* of the block that a thread is given */

static void *free_without_room(void *block) {
    heap_free(heap_alloc(100), NULL);
    const uint32_t pages = slab_classes[slab_at((uint32_t)page_index(block))->span.class].pages;
    const uint64_t used = counts_now().used_pages, in_use = footprint_in_use();
    const uint64_t slabs = atomic_load(&owner->slab_total);
    heap_free(block, NULL);
    CHECK_EQ(counts_now().used_pages, used - pages);
    CHECK_EQ(footprint_in_use(), in_use - pages * PAGE_BYTES);
    CHECK_EQ(atomic_load(&owner->slab_total), slabs - 1);
    CHECK(!heap_owns(block) && word_of(block) == WORD_NONE);
    CHECK_EQ(kept_bytes(), 0);
    return NULL;
}

static void *free_without_heap(void *block) {
    const uint64_t used = counts_now().used_pages, in_use = footprint_in_use();
    thread_forgo_heap();
    heap_free(block, NULL);
    CHECK(used - counts_now().used_pages == 5 && in_use - footprint_in_use() == 5 * PAGE_BYTES);
    CHECK(thread_heap() == NULL && !heap_owns(block));
    return NULL;
}

static void given_to_others(void) {
    void *blocks[3];
    for (size_t i = 0; i < 3; i++) CHECK((blocks[i] = heap_alloc(KIB(300))) != NULL);
    owner = thread_heap();
    purger_look(owner, NULL); /* which tells what is in use */
    const uint64_t taken = counter_read(&owner->bins[size_class_of(KIB(300))].taken_blocks);
    run_thread(free_without_room, blocks[0]);
    run_thread(free_without_heap, blocks[1]);
    CHECK_EQ(counter_read(&owner->bins[size_class_of(KIB(300))].taken_blocks), taken - 2);
    heap_free(blocks[2], NULL);
}
TEST(blocks_of_others_go_back_at_once) { IN_CHILD(given_to_others); }

static void *take_over(void *block) {
    const unsigned class = size_class_of(KIB(300));
    settle(KIB(300), 1);
    void *own_block = heap_alloc(KIB(300));
    const uint64_t used = counts_now().used_pages, slabs = atomic_load(&owner->slab_total), own_slabs = own()->slab_total;
    CHECK(stack_has_room(own(), class) && stack_held(own(), class) == 0);
    heap_free(block, NULL);
    CHECK_EQ(counts_now().used_pages, used);
    CHECK_EQ(atomic_load(&owner->slab_total), slabs - 1);
    CHECK_EQ(atomic_load(&own()->slab_total), own_slabs + 1);
    CHECK_EQ(word_of(block), heap_word(own(), class));
    CHECK(atomic_load(&slab_at((uint32_t)page_index(block))->owner) == own());
    CHECK_EQ(stack_held(own(), class), 1);
    CHECK(heap_alloc(KIB(300)) == block);
    heap_free(own_block, NULL);
    heap_free(block, NULL); /* by the fast path, or as one too many: it is one of its own */
    CHECK_EQ(stack_held(own(), class), 1);
    return NULL;
}

static void taken_over(void) {
    void *block = heap_alloc(KIB(300));
    owner = thread_heap();
    run_thread(take_over, block);
}
TEST(blocks_of_others_are_taken_over_where_there_is_room) { IN_CHILD(taken_over); }

/* ---- misuse ----------------------------------------------------------------------------------------------- */

static void free_twice(void) {
    be_quiet();
    void *block = heap_alloc(KIB(200));
    heap_free(block, NULL);
    heap_free(block, NULL);
}

/* Both find room; it is found when they are given back. */
static void free_twice_and_keep(void) {
    be_quiet();
    settle(KIB(200), 2);
    CHECK_EQ(kept_of(KIB(200)), 2);
    void *block = heap_alloc(KIB(200)), *other = heap_alloc(KIB(200));
    heap_free(block, NULL);
    heap_free(block, NULL);
    CHECK(other != NULL && kept_of(KIB(200)) == 2);
    heap_collect();
}

static void *free_once(void *block) { return heap_free(block, NULL), NULL; }

static void free_here_and_elsewhere(void) {
    be_quiet();
    settle(KIB(200), 2);
    void *block = heap_alloc(KIB(200));
    heap_free(block, NULL);
    run_thread(free_once, block);
    heap_collect();
}

static void *free_inside(void *block) { return heap_free((char *)block + 16, NULL), NULL; }

static void free_inside_anothers(void) {
    be_quiet();
    run_thread(free_inside, heap_alloc(KIB(200)));
}

static void free_inside_own(void) {
    be_quiet();
    free_inside(heap_alloc(KIB(200)));
}

static void resize_inside(void) {
    be_quiet();
    char *block = heap_alloc(KIB(200));
    heap_resize(block + 16, KIB(400));
}

TEST(twice_freed_is_told) {
    CHECK_ABORTS(free_twice);
    CHECK_ABORTS(free_twice_and_keep);
    CHECK_ABORTS(free_here_and_elsewhere);
}

static size_t foreign;
static size_t count_foreign(void *block, enum heap_foreign_use use) {
    (void)block;
    (void)use;
    foreign++;
    return 0;
}

/* On any page but the first nothing looks like a block. */
static void inside(void) {
    char *block = heap_alloc(KIB(300));
    CHECK(heap_start(&(struct heap_options){.thread_cache_bytes = MIB(16), .decay = ACE_NEVER, .foreign = count_foreign}));
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

/* ---- another length --------------------------------------------------------------------------------------- */

/* A block of 4 pages, and behind it a large one, which keeps its place until that is wanted. */
static char *room;
static char *block_before_room(void) {
    for (;;) {
        char *block = heap_alloc(KIB(256));
        CHECK(block != NULL && (room = heap_alloc(MIB(8))) != NULL);
        if (room == block + KIB(256)) return block;
    }
}

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
    CHECK_EQ(heap_usable_bytes(block), KIB(512));
    CHECK_EQ(word_of(block), WORD_LARGE);
    CHECK_EQ(counter_read(&bin->slab_count), slabs - 1);
    CHECK_EQ(counts_now().used_pages, used + 4);
    CHECK_EQ(footprint_in_use(), in_use + 4 * PAGE_BYTES);
    CHECK(block_holds(block, KIB(256), 7));
    CHECK(heap_resize(block, KIB(128)) == block);
    CHECK_EQ(heap_usable_bytes(block), KIB(128));
    CHECK(block_holds(block, KIB(128), 7));
    CHECK_EQ(counts_now().used_pages, used - 2);
    CHECK_EQ(heap_extend(block, KIB(128) + 1), KIB(192));
    heap_free(block, NULL);
    CHECK(!heap_owns(block) && page_word(page) == WORD_NONE);
    CHECK_EQ(counts_now().used_pages, used - 4);
    CHECK_EQ(footprint_in_use(), in_use - 4 * PAGE_BYTES);
}

static void *resize_anothers(void *block) {
    heap_free(heap_alloc(100), NULL);
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
    block = heap_alloc(MIB(1));
    CHECK(heap_resize(block, KIB(300)) == block);
    CHECK(word_of(block) == WORD_LARGE && heap_usable_bytes(block) == KIB(320));
    heap_free(block, NULL);
    block = block_before_room();
    heap_free(room, NULL);
    CHECK_EQ(heap_extend(block, KIB(256)), KIB(256));
    CHECK(word_of(block) != WORD_LARGE);
    CHECK_EQ(heap_extend(block, KIB(300)), KIB(320));
    heap_free(block, NULL);
}
TEST(it_becomes_large_where_it_lies) { IN_CHILD(resized); }

/* ---- who takes away what is kept -------------------------------------------------------------------------- */

static struct heap *_Atomic worker_heap;
static atomic_bool worker_ends;
static void *keep_some(void *sleeps) {
    settle(KIB(256), 2);
    CHECK_EQ(kept_of(KIB(256)), 2);
    atomic_store(&worker_heap, thread_heap());
    if (sleeps == NULL) return NULL;
    while (!atomic_load(&worker_ends)) usleep(1000);
    settle(KIB(256), 2); /* whatever others did meanwhile */
    CHECK(kept_of(KIB(256)) == 2 || atomic_load(&os_counters.refusals[OS_CALL_MEMBARRIER]) != 0);
    return NULL;
}

/* Starts a thread that keeps two blocks and sleeps; returns its heap. */
static struct heap *start_sleeper(pthread_t *thread) {
    struct heap *heap;
    CHECK_EQ(pthread_create(thread, NULL, keep_some, (void *)1), 0);
    while ((heap = atomic_load(&worker_heap)) == NULL) sched_yield();
    return heap;
}
static void end_sleeper(pthread_t thread) {
    atomic_store(&worker_ends, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void *begin_with_it(void *unused) {
    heap_free(heap_alloc(100), NULL);
    CHECK(thread_heap() == atomic_load(&worker_heap) && kept_of(KIB(256)) == 2);
    const uint64_t taken = counts_now().taken;
    take_and_give(KIB(256), 2);
    CHECK_EQ(counts_now().taken, taken);
    return unused;
}

static void ends(void) {
    heap_free(heap_alloc(100), NULL);
    run_thread(free_once, NULL); /* what libc allocates for one is there */
    const uint64_t in_use = footprint_in_use(), used = counts_now().used_pages;
    for (int i = 0; i < 2; i++) {
        run_thread(i == 0 ? keep_some : begin_with_it, NULL);
        struct heap *heap = atomic_load(&worker_heap);
        CHECK(heap->parked && held_of(heap, KIB(256)) == 2);
        CHECK(footprint_in_use() < in_use + KIB(256)); /* what it keeps counts as free */
    }
    purge_steps(PURGE_ALL);
    CHECK_EQ(held_of(atomic_load(&worker_heap), KIB(256)), 0);
    CHECK(counts_now().used_pages <= used);
}
TEST(a_thread_that_ends_leaves_its_blocks_to_the_next) { IN_CHILD(ends); }

/* By whoever gives back what sleepers hold. */
static void sleeper(void) {
    pthread_t thread;
    if (!os_barrier_others()) return;
    struct heap *heap = start_sleeper(&thread);
    const uint64_t used = counts_now().used_pages;
    purge_steps(PURGE_ALL);
    CHECK_EQ(held_of(heap, KIB(256)), 0);
    CHECK_EQ(heap->bins[size_class_of(KIB(256))].slab_count, 0);
    CHECK(counts_now().used_pages <= used - 2 * 4);
    end_sleeper(thread);
}
TEST(a_sleeper_gives_all_back) { IN_CHILD(sleeper); }

static void popping(void) {
    pthread_t thread;
    if (!os_barrier_others()) return;
    struct heap *heap = start_sleeper(&thread);
    const unsigned class = size_class_of(KIB(256));
    void *newest = front_block(stack_top(heap, class) - 1);
    atomic_store(&heap->front.popping, true);
    purge_steps(PURGE_ALL);
    CHECK_EQ(stack_held(heap, class), 2);
    CHECK(front_block(stack_top(heap, class) - 1) == newest && heap_owns(newest));
    atomic_store(&heap->front.popping, false);
    purge_steps(PURGE_ALL);
    CHECK_EQ(stack_held(heap, class), 0);
    end_sleeper(thread);
}
TEST(a_block_that_is_about_to_be_popped_stays) { IN_CHILD(popping); }

static void revealed(void) {
    pthread_t thread;
    if (!os_barrier_others()) return;
    struct heap *heap = start_sleeper(&thread);
    settle(KIB(192), 2);
    CHECK(thread_reveal());
    CHECK_EQ(held_of(heap, KIB(256)), 0);
    CHECK_EQ(kept_bytes(), 0);
    CHECK(!thread_reveal()); /* now nothing is */
    end_sleeper(thread);
}
TEST(where_memory_is_short_it_is_found) { IN_CHILD(revealed); }

/* Where the kernel has no barrier, nobody is sure of another thread; of itself it is. */
static void without_barrier(void) {
    pthread_t thread;
    struct heap *heap = start_sleeper(&thread);
    settle(KIB(192), 2);
    fail_arm(FAIL_MEMBARRIER, 1, true, ENOSYS);
    CHECK(kept_bytes() != 0);
    thread_reveal();
    fail_disarm();
    CHECK_EQ(kept_bytes(), 0);
    CHECK_EQ(held_of(heap, KIB(256)), 2);
    CHECK(!heap->raised);
    end_sleeper(thread);
    /* From now on nothing is kept that nobody could take away. */
    for (int i = 0; i < 200; i++) take_and_give(MIB(2), 1);
    settle(KIB(192), 2);
    CHECK_EQ(kept_bytes(), 0);
}
TEST(without_a_barrier_others_are_left_alone) { IN_CHILD(without_barrier); }

/* A hard limit is not in the way of what only kept blocks are in the way of, others' too: of a new block, medium or large, and of one
 * that grows. */
static void below_a_hard_limit(void) {
    pthread_t thread;
    char limit[32];
    if (!os_barrier_others()) return;
    void *hole = hak_malloc(MIB(2));   /* for what else needs a page meanwhile */
    void *grown = hak_malloc(MIB(40)); /* behind it nothing is in use */
    hak_free(hole);
    start_sleeper(&thread);
    settle(KIB(512), 2);
    const uint64_t own_pages = kept_bytes() / PAGE_BYTES, pages = own_pages + 2 * 4;
    CHECK_EQ(own_pages, 2 * 8);
    snprintf(limit, sizeof limit, "%" PRIu64, (counts_now().used_pages + SPAN_RESERVE_PAGES + 1604) * PAGE_BYTES);
    CHECK_EQ(hak_option_set("hard_limit", limit), 0);
    void *block = hak_malloc((1600 + pages) * PAGE_BYTES);
    CHECK(block != NULL);
    CHECK_EQ(held_of(atomic_load(&worker_heap), KIB(256)), 0);
    hak_free(block);
    settle(KIB(512), 2);
    CHECK_EQ(kept_bytes() / PAGE_BYTES, own_pages);
    CHECK(hak_try_expand(grown, MIB(40) + (1600 + own_pages) * PAGE_BYTES) != 0);
    CHECK_EQ(kept_bytes(), 0);
    CHECK(hak_malloc(MIB(100)) == NULL);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
    end_sleeper(thread);
}
TEST(no_limit_is_in_the_way) { IN_CHILD(below_a_hard_limit); }

static void medium_below_a_hard_limit(void) {
    pthread_t thread;
    char limit[32];
    if (!os_barrier_others()) return;
    CHECK(hak_malloc(MIB(8)) != NULL); /* no limit may be lower */
    start_sleeper(&thread);
    snprintf(limit, sizeof limit, "%" PRIu64, counts_now().used_pages * PAGE_BYTES);
    CHECK_EQ(hak_option_set("hard_limit", limit), 0);
    void *block = hak_malloc(KIB(448));
    CHECK(block != NULL);
    CHECK_EQ(held_of(atomic_load(&worker_heap), KIB(256)), 0);
    CHECK(hak_malloc(KIB(448)) == NULL);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
    end_sleeper(thread);
}
TEST(nor_of_a_medium_one) { IN_CHILD(medium_below_a_hard_limit); }

/* ---- forks and handlers ----------------------------------------------------------------------------------- */

/* The stacks of the others are not read in a child, whatever they were at: what they kept is lost, what they used is not. */
static void *of_worker;
static void *use_one(void *unused) {
    of_worker = heap_alloc(KIB(700));
    block_fill(of_worker, KIB(700), 5);
    return keep_some(unused);
}
static void in_grandchild(void) {
    struct heap *theirs = atomic_load(&worker_heap);
    const uint64_t given = counts_now().given;
    CHECK(theirs->forsaken);
    thread_reap_forsaken();
    CHECK_EQ(counts_now().given, given);
    CHECK_EQ(held_of(theirs, KIB(256)), 0);
    CHECK_EQ(word_of(of_worker), heap_word(&commons, size_class_of(KIB(700))));
    CHECK(block_holds(of_worker, KIB(700), 5));
    heap_free(of_worker, NULL);
    CHECK_EQ(counts_now().given, given + 1);
    settle(KIB(256), 2);
    CHECK_EQ(kept_of(KIB(256)), 2);
    /* What the next thread with the heap goes by: no thread starts in such a child under every tool. */
    CHECK(!atomic_load(&theirs->front.popping));
}
static void forked(void) {
    pthread_t thread;
    heap_free(heap_alloc(100), NULL);
    CHECK_EQ(pthread_create(&thread, NULL, use_one, (void *)1), 0);
    while (atomic_load(&worker_heap) == NULL) sched_yield();
    IN_CHILD(in_grandchild);
    atomic_store(&atomic_load(&worker_heap)->front.popping, true);
    IN_CHILD(in_grandchild);
    atomic_store(&atomic_load(&worker_heap)->front.popping, false);
    end_sleeper(thread);
}
TEST(a_child_goes_on) { IN_CHILD(forked); }

/* One that interrupted the pop of a block does not get that; and one that interrupted a slow path lets all blocks as they are. */
static void in_handlers(void) {
    settle(KIB(256), 1);
    struct heap *heap = thread_heap();
    char *block = heap_alloc(KIB(256));
    settle(KIB(256), 1);
    CHECK_EQ(kept_of(KIB(256)), 1);
    CHECK(slow_enter());
    char *outside = heap_alloc(KIB(256));
    CHECK(outside_bytes(outside) == KIB(256));
    CHECK(heap_resize(block, KIB(128)) == block && heap_resize(block, KIB(512)) == NULL && heap_extend(block, KIB(512)) == 0);
    CHECK(word_of(block) == heap_word(heap, size_class_of(KIB(256))));
    const uint64_t used = counts_now().used_pages;
    hak_free(block); /* there is room for it */
    CHECK_EQ(kept_of(KIB(256)), 1);
    CHECK_EQ(counts_now().used_pages, used);
    slow_leave();
    CHECK(outside_unmap(outside));
    heap_free(heap_alloc(KIB(900)), NULL);
    CHECK(counts_now().used_pages <= used);
}
TEST(a_handler_gets_another_block) { IN_CHILD(in_handlers); }

/* ---- what is said of them --------------------------------------------------------------------------------- */

static void heapless(void) {
    const uint64_t in_use = footprint_in_use(), used = counts_now().used_pages;
    thread_forgo_heap();
    void *medium = heap_alloc(KIB(300)), *small = heap_alloc(50000);
    CHECK_EQ(word_of(medium), heap_word(&commons, size_class_of(KIB(300))));
    CHECK_EQ(footprint_in_use(), in_use + KIB(320) + good_bytes(50000));
    heap_free(medium, NULL);
    heap_free(small, NULL);
    CHECK_EQ(footprint_in_use(), in_use);
    CHECK_EQ(counts_now().used_pages, used);
    CHECK_EQ(commons.bins[size_class_of(KIB(300))].slab_count, 0);
}
TEST(a_thread_without_a_heap) { IN_CHILD(heapless); }

static void books(void) {
    struct stats_totals before, with, after;
    struct stats_class class;
    settle(KIB(192), 2);
    stats_read_totals(&before);
    void *block = heap_alloc(KIB(192));
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

/* ---- all at once ------------------------------------------------------------------------------------------ */

/* Threads that keep and free each other's blocks, while others take away what they keep. */
enum { WORKERS = 4, SHARED = 64 };
static void *_Atomic shared[SHARED];
static atomic_uint working;
static void *swap(void *argument) {
    struct rng rng = {check_now.seed + (uintptr_t)argument};
    for (size_t i = 0; i < check_count(20000); i++) {
        uint64_t *block = heap_alloc(KIB(65) + rng_below(&rng, KIB(200)));
        CHECK(block != NULL);
        block[0] = block[KIB(8)] = (uintptr_t)block;
        block = atomic_exchange(&shared[rng_below(&rng, SHARED)], block);
        if (block != NULL) CHECK(block[0] == (uintptr_t)block && block[KIB(8)] == (uintptr_t)block);
        if (block != NULL && i % 16 == 0) {
            block = hak_realloc(block, KIB(100) + rng_below(&rng, KIB(300)));
            CHECK(block != NULL && block[0] == block[KIB(8)]);
        }
        heap_free(block, NULL);
    }
    atomic_fetch_sub(&working, 1);
    return NULL;
}
static void swapped(void) {
    pthread_t threads[WORKERS];
    atomic_store(&working, WORKERS);
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, swap, (void *)i), 0);
    while (atomic_load(&working) != 0) {
        purge_steps(PURGE_ALL);
        thread_reveal();
        sched_yield();
    }
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < SHARED; i++) heap_free(atomic_exchange(&shared[i], NULL), NULL);
    thread_reveal();
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) {
        struct stats_class sum;
        stats_read_class(class, &sum);
        CHECK_AT(sum.slabs == 0 && sum.live_blocks == 0, class);
    }
}
TEST(threads_and_whoever_takes_it_away) { IN_CHILD(swapped); }
