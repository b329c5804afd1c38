/* medium_threads_test.c - blocks of 64 KiB to 1 MiB and several threads: how they cross from one to another, who takes away what a thread keeps,
 * and what forks and signal handlers find.
 *
 * Planted defects it was seen to catch:
 *   a block of another heap stays counted        blocks_of_others_go_back_at_once
 *   it is never taken over, or without its word  blocks_of_others_are_taken_over_where_there_is_room
 *   a sleeper keeps its last block               a_sleeper_gives_all_back
 *   what it gives back is not told               a_sleeper_gives_all_back
 *   what was taken from below leaves no room     a_stack_that_was_taken_from_has_room
 *   they are kept where nobody could take them   without_a_barrier_others_are_left_alone
 *   that which is about to be popped is taken    a_block_that_is_about_to_be_popped_stays
 *   others' stacks are not revealed              where_memory_is_short_it_is_found, no_limit_is_in_the_way
 *   a limit is in the way of one that grows      no_limit_is_in_the_way
 *   the mark of a pop outlives a fork            a_child_goes_on
 *   a handler pops the same, or changes lengths  a_handler_gets_another_block
 */
#include "medium.h"

#include "faults/fail_calls.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/purge.h"
#include "kernel.h"
#include "no_purger.h"
#include "region/outside.h"
#include "reveal.h"
#include "watch/stats.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

/* ---- other threads' --------------------------------------------------------------------------------------- */

static struct heap *owner; /* of the block that a thread is given */

static void *free_without_room(void *block) {
    heap_free(heap_alloc(100, NULL), NULL);
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
    for (size_t i = 0; i < 3; i++) CHECK((blocks[i] = heap_alloc(KIB(300), NULL)) != NULL);
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
    void *own_block = heap_alloc(KIB(300), NULL);
    const uint64_t used = counts_now().used_pages, slabs = atomic_load(&owner->slab_total), own_slabs = own()->slab_total;
    CHECK(stack_has_room(own(), class) && stack_held(own(), class) == 0);
    heap_free(block, NULL);
    CHECK_EQ(counts_now().used_pages, used);
    CHECK_EQ(atomic_load(&owner->slab_total), slabs - 1);
    CHECK_EQ(atomic_load(&own()->slab_total), own_slabs + 1);
    CHECK_EQ(word_of(block), heap_word(own(), class));
    CHECK(atomic_load(&slab_at((uint32_t)page_index(block))->owner) == own());
    CHECK_EQ(stack_held(own(), class), 1);
    CHECK(heap_alloc(KIB(300), NULL) == block);
    heap_free(own_block, NULL);
    heap_free(block, NULL); /* by the fast path, or as one too many: it is one of its own */
    CHECK_EQ(stack_held(own(), class), 1);
    return NULL;
}

static void taken_over(void) {
    void *block = heap_alloc(KIB(300), NULL);
    owner = thread_heap();
    run_thread(take_over, block);
}
TEST(blocks_of_others_are_taken_over_where_there_is_room) { IN_CHILD(taken_over); }

/* Also after its stack was taken from below. */
static void *take_over_again(void *blocks) {
    const unsigned class = size_class_of(KIB(256));
    settle(KIB(256), 2);
    CHECK(!stack_has_room(own(), class));
    stack_raise(thread_heap());
    stack_take(thread_heap(), os_barrier_others());
    CHECK_EQ(kept_of(KIB(256)), 0);
    for (size_t i = 0; i < 2; i++) heap_free(((void **)blocks)[i], NULL);
    CHECK_EQ(kept_of(KIB(256)), 2);
    return NULL;
}

static void taken_over_again(void) {
    NEED_BARRIER();
    void *blocks[] = {heap_alloc(KIB(256), NULL), heap_alloc(KIB(256), NULL)};
    run_thread(take_over_again, blocks);
}
TEST(a_stack_that_was_taken_from_has_room) { IN_CHILD(taken_over_again); }

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
    heap_free(heap_alloc(100, NULL), NULL);
    CHECK(thread_heap() == atomic_load(&worker_heap) && kept_of(KIB(256)) == 2);
    const uint64_t taken = counts_now().taken;
    take_and_give(KIB(256), 2);
    CHECK_EQ(counts_now().taken, taken);
    return unused;
}

static void *free_nothing(void *nothing) { return heap_free(nothing, NULL), NULL; }

static void ends(void) {
    heap_free(heap_alloc(100, NULL), NULL);
    run_thread(free_nothing, NULL); /* what libc allocates for one is there */
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
    NEED_BARRIER();
    struct heap *heap = start_sleeper(&thread);
    heap_free(heap_alloc(100, NULL), NULL);
    purger_look(thread_heap(), NULL); /* which tells what it has in use */
    const uint64_t used = counts_now().used_pages, in_use = footprint_in_use() + (uint64_t)heap->in_use_change;
    purge_steps(PURGE_ALL);
    CHECK_EQ(held_of(heap, KIB(256)), 0);
    CHECK(footprint_in_use() <= in_use - 2 * KIB(256)); /* told, though its owner sleeps */
    CHECK_EQ(heap->bins[size_class_of(KIB(256))].slab_count, 0);
    CHECK(counts_now().used_pages <= used - 2 * 4);
    end_sleeper(thread);
}
TEST(a_sleeper_gives_all_back) { IN_CHILD(sleeper); }

static void popping(void) {
    pthread_t thread;
    NEED_BARRIER();
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
    NEED_BARRIER();
    struct heap *heap = start_sleeper(&thread);
    settle(KIB(192), 2);
    reveal_all();
    CHECK_EQ(held_of(heap, KIB(256)), 0);
    CHECK_EQ(kept_bytes(), 0);
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
    reveal_all();
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
    NEED_BARRIER();
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
    NEED_BARRIER();
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

/* What the others kept is free in a child, what they used is not, whatever they were at. */
static void *of_worker;
static void *use_one(void *unused) {
    of_worker = heap_alloc(KIB(700), NULL);
    block_fill(of_worker, KIB(700), 5);
    return keep_some(unused);
}
static void in_grandchild(void) {
    struct heap *theirs = atomic_load(&worker_heap);
    const void *oldest = front_block(theirs->bins[size_class_of(KIB(256))].bottom);
    CHECK(theirs->forsaken && held_of(theirs, KIB(256)) == 2 && heap_owns(oldest));
    const uint64_t used = counts_now().used_pages;
    while (thread_reap_forsaken()) {}
    CHECK(!heap_owns(oldest) && counts_now().used_pages <= used - 2 * 4);
    CHECK_EQ(held_of(theirs, KIB(256)), 0);
    CHECK_EQ(word_of(of_worker), heap_word(&commons, size_class_of(KIB(700))));
    CHECK(block_holds(of_worker, KIB(700), 5));
    const uint64_t given = counts_now().given;
    heap_free(of_worker, NULL);
    CHECK_EQ(counts_now().given, given + 1);
    settle(KIB(256), 2);
    CHECK_EQ(kept_of(KIB(256)), 2);
    /* What the next thread with the heap goes by: no thread starts in such a child under every tool. */
    CHECK(!atomic_load(&theirs->front.popping));
}
static void forked(void) {
    pthread_t thread;
    heap_free(heap_alloc(100, NULL), NULL);
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
    char *block = heap_alloc(KIB(256), NULL);
    settle(KIB(256), 1);
    CHECK_EQ(kept_of(KIB(256)), 1);
    CHECK(slow_enter());
    char *outside = heap_alloc(KIB(256), NULL);
    CHECK(outside_bytes(outside) == KIB(256));
    CHECK(heap_resize(block, KIB(128)) == block && heap_resize(block, KIB(512)) == NULL && heap_extend(block, KIB(512)) == 0);
    CHECK(word_of(block) == heap_word(heap, size_class_of(KIB(256))));
    const uint64_t used = counts_now().used_pages;
    hak_free(block); /* there is room for it */
    CHECK_EQ(kept_of(KIB(256)), 1);
    CHECK_EQ(counts_now().used_pages, used);
    slow_leave();
    CHECK(outside_unmap(outside));
    heap_free(heap_alloc(KIB(900), NULL), NULL);
    CHECK(counts_now().used_pages <= used);
}
TEST(a_handler_gets_another_block) { IN_CHILD(in_handlers); }

/* ---- all at once ------------------------------------------------------------------------------------------ */

/* Threads that keep and free each other's blocks, while others take away what they keep. */
enum { WORKERS = 4, SHARED = 64 };
static void *_Atomic shared[SHARED];
static atomic_uint working;
static void *swap(void *argument) {
    struct rng rng = {check_now.seed + (uintptr_t)argument};
    for (size_t i = 0; i < check_count(20000); i++) {
        uint64_t *block = heap_alloc(KIB(65) + rng_below(&rng, KIB(200)), NULL);
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
        reveal_all();
        sched_yield();
    }
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < SHARED; i++) heap_free(atomic_exchange(&shared[i], NULL), NULL);
    reveal_all();
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) {
        struct stats_class sum;
        stats_read_class(class, &sum);
        CHECK_AT(sum.slabs == 0 && sum.live_blocks == 0, class);
    }
}
TEST(threads_and_whoever_takes_it_away) { IN_CHILD(swapped); }
