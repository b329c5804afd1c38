/* purge_sleepers_test.c - what others do for a thread that sleeps: its stacks and its buffer are emptied, its inbox is taken
 * in; and who counts as asleep. In children, since what was visited stays in the process; only there are threads started.
 *
 * Planted defects it was seen to catch:
 *   nobody sleeps, or everybody                  a_sleepers_buffer_is_emptied
 *   everything leaves the awake alone            with_everything_everybodys_is
 *   inboxes are left as they are                 a_sleepers_inbox_is_taken_in
 *   bounds stay raised                           a_sleepers_stacks_are_emptied
 *   whoever allocates only by fast paths sleeps  a_sleepers_stacks_are_emptied
 *   what is parked stays so for ever             a_visit_retires_what_is_parked
 *   a visit retires all of a large heap          a_visit_retires_a_portion
 *   what is retired is looked at all the same    what_is_retired_is_left_alone
 *   sleepers keep their share                    who_sleeps_for_long_has_no_share
 */
#include "child.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "kernel.h"
#include "own_heap.h"
#include "purge_steps.h"

/* ---- their stacks ----------------------------------------------------------------------------------------- */

static _Atomic(struct heap *) sleeper;
static atomic_int sleeper_may;

static size_t held_by(struct heap *heap) {
    size_t held = 0;
    os_lock_take(&heap->lock);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) held += stack_held(heap, class);
    os_lock_drop(&heap->lock);
    return held;
}

static void wait_for(const atomic_int *number, int value) {
    while (atomic_load(number) < value) sched_yield();
}

/* Fills its stacks, sleeps, and then finds every block it allocates sound. */
static void *hold_and_sleep(void *unused) {
    static void *blocks[2000];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 2000; i++) {
            size_t bytes = 16 + i % 50 * 40;
            CHECK((blocks[i] = heap_alloc(bytes, NULL)) != NULL);
            block_fill(blocks[i], bytes, i);
        }
        for (size_t i = 0; i < 2000; i++) {
            CHECK(block_holds(blocks[i], 16 + i % 50 * 40, i));
            heap_free(blocks[i], NULL);
        }
        atomic_store(&sleeper, thread_heap());
        wait_for(&sleeper_may, round + 1);
    }
    return unused;
}

static void rob_stacks(void) {
    pthread_t thread;
    never_decay();
    NEED_BARRIER();
    CHECK_EQ(pthread_create(&thread, NULL, hold_and_sleep, NULL), 0);
    while (atomic_load(&sleeper) == NULL) sched_yield();
    struct heap *heap = atomic_load(&sleeper);
    size_t held = held_by(heap), slabs = atomic_load(&heap->slab_total);
    CHECK(held > 3 * SIZE_CLASSES);
    step_after(VISIT_MS);
    CHECK_EQ(held_by(heap), held); /* it worked since the last visit, of which there was none */
    step_after(VISIT_MS - 1);
    CHECK_EQ(held_by(heap), held);
    step_after(1);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        CHECK_AT(stack_held(heap, class) <= 1, class);
        CHECK_EQ(atomic_load(&heap->front.lo[class]) - heap->bins[class].bottom, 0);
    }
    CHECK(atomic_load(&heap->slab_total) < slabs);
    CHECK(!heap->raised);
    atomic_store(&sleeper_may, 2);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(a_sleepers_stacks_are_emptied) { IN_CHILD(rob_stacks); }

static atomic_int helper_rounds, helper_may;

/* Works, sleeps until it may, and works again. */
static void *work_and_sleep(void *unused) {
    for (int round = 1; round <= 2; round++) {
        heap_free(heap_alloc(100, NULL), NULL);
        atomic_store(&helper_rounds, round);
        wait_for(&helper_may, round);
    }
    return unused;
}

/* By visits at which this thread worked. */
static void visits(int count) {
    for (int visit = 0; visit < count; visit++) {
        heap_free(heap_alloc(100 + 16 * (size_t)visit, NULL), NULL);
        step_after(VISIT_MS);
    }
}

static void share(void) {
    enum { VISITS = 8 };
    pthread_t thread;
    never_decay();
    visits(1);
    CHECK_EQ(pthread_create(&thread, NULL, work_and_sleep, NULL), 0);
    wait_for(&helper_rounds, 1);
    visits(VISITS); /* at the first of which it had worked */
    CHECK_EQ(registry_sharing(), 2);
    visits(1);
    CHECK_EQ(registry_live(), 2);
    CHECK_EQ(registry_sharing(), 1);
    atomic_store(&helper_may, 1);
    wait_for(&helper_rounds, 2);
    CHECK_EQ(registry_sharing(), 1);
    visits(1);
    CHECK_EQ(registry_sharing(), 2);
    atomic_store(&helper_may, 2);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(registry_sharing(), 1);
}

TEST(who_sleeps_for_long_has_no_share) { IN_CHILD(share); }

static void rob_without_barrier(void) {
    struct heap *heap;
    never_decay();
    heap_free(heap_alloc(100, NULL), NULL);
    heap = thread_heap();
    size_t held = held_by(heap);
    stack_raise(heap);
    CHECK(heap->raised);
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        CHECK(atomic_load(&heap->front.lo[class]) == stack_top(heap, class));
    stack_take(heap, false);
    CHECK(!heap->raised);
    CHECK_EQ(held_by(heap), held);
    stack_raise(heap);
    void *block = hak_malloc(100); /* comes by, and is served from the stack */
    CHECK(!heap->raised);
    CHECK_EQ(held_by(heap), held - 1);
    hak_free(block);
    stack_take(heap, true); /* too late */
    CHECK_EQ(held_by(heap), held);
}

TEST(whoever_comes_by_keeps_his_stacks) { IN_CHILD(rob_without_barrier); }

/* ---- heaps without a thread --------------------------------------------------------------------------------- */

static void *hold_and_end(void *unused) {
    void *block = heap_alloc(3000, NULL);
    CHECK(block != NULL);
    heap_free(block, NULL);
    atomic_store(&sleeper, thread_heap());
    return unused;
}

static void visit_parked(void) {
    pthread_t thread;
    never_decay();
    CHECK_EQ(pthread_create(&thread, NULL, hold_and_end, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    struct heap *heap = atomic_load(&sleeper);
    CHECK(heap->parked && atomic_load(&heap->slab_total) != 0);
    CHECK(step_after(VISIT_MS)); /* it worked since the last visit: there is more to come */
    CHECK(atomic_load(&heap->slab_total) != 0);
    step_after(VISIT_MS);
    CHECK_EQ(atomic_load(&heap->slab_total), 0);
    CHECK_EQ(held_by(heap), 0);
    CHECK_EQ(commons.bins[size_class_of(3000)].slab_count, 0); /* of which all blocks are free */
    CHECK(!heap->parked);
}

TEST(a_visit_retires_what_is_parked) { IN_CHILD(visit_parked); }

/* Of threads that ended there may be thousands. */
static void visit_retired(void) {
    enum { MARK = 4711 };
    pthread_t thread;
    never_decay();
    CHECK_EQ(pthread_create(&thread, NULL, hold_and_end, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    struct heap *heap = atomic_load(&sleeper);
    for (int visit = 0; visit < 2; visit++) step_after(VISIT_MS);
    CHECK(!heap->parked);
    heap->ticks_seen = MARK; /* as a look would change it */
    step_after(VISIT_MS);
    CHECK_EQ(heap->ticks_seen, MARK);
    CHECK_EQ(pthread_create(&thread, NULL, hold_and_end, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(atomic_load(&sleeper) == heap && heap->parked);
    step_after(VISIT_MS);
    CHECK(heap->ticks_seen != MARK);
}

TEST(what_is_retired_is_left_alone) { IN_CHILD(visit_retired); }

static void *hold_much_and_end(void *unused) {
    do CHECK(heap_alloc(30000, NULL) != NULL);
    while (atomic_load(&thread_heap()->slab_total) <= HAND_OVER_SLABS);
    atomic_store(&sleeper, thread_heap());
    return unused;
}

/* Each visit retires a portion. */
static void visit_large(void) {
    pthread_t thread;
    never_decay();
    CHECK_EQ(pthread_create(&thread, NULL, hold_much_and_end, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    struct heap *heap = atomic_load(&sleeper);
    step_after(VISIT_MS);
    const uint32_t slabs = atomic_load(&heap->slab_total);
    CHECK(slabs > HAND_OVER_SLABS);
    CHECK(step_after(VISIT_MS));
    CHECK(heap->parked);
    CHECK_EQ(atomic_load(&heap->slab_total), slabs - HAND_OVER_SLABS);
    CHECK(step_after(VISIT_MS)); /* which sees that the visit before emptied its stacks */
    step_after(VISIT_MS);
    CHECK(!heap->parked);
    CHECK_EQ(atomic_load(&heap->slab_total), 0);
}

TEST(a_visit_retires_a_portion) { IN_CHILD(visit_large); }

static void visit_all_parked(void) {
    pthread_t thread;
    never_decay();
    CHECK_EQ(pthread_create(&thread, NULL, hold_and_end, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    step(PURGE_ALL);
    CHECK_EQ(atomic_load(&atomic_load(&sleeper)->slab_total), 0);
}

TEST(with_everything_what_is_parked_goes) { IN_CHILD(visit_all_parked); }

/* ---- their buffers ---------------------------------------------------------------------------------------- */

enum { GIVEN = 50 };
static void *given[GIVEN];

static void *free_and_sleep(void *unused) {
    heap_free(heap_alloc(100, NULL), NULL);
    atomic_store(&theirs, thread_heap());
    for (size_t i = 0; i < GIVEN; i++) heap_free(given[i], NULL);
    reach(1);
    for (int i = 0; i < 3; i++) heap_free(heap_alloc(MIB(2), NULL), NULL); /* some slow paths */
    reach(2);
    return unused;
}

static size_t waiting(void) { return buffer_held(atomic_load(&theirs)); }

/* A slab of the heap MINE whose blocks wait in the buffer of a sleeper. */
static uint32_t fill_buffer(struct heap *mine, pthread_t *owner) {
    never_decay();
    uint32_t first = add_slab(mine, 2);
    CHECK_EQ(slab_take(first, given + GIVEN, GIVEN), GIVEN);
    CHECK_EQ(pthread_create(owner, NULL, free_and_sleep, NULL), 0);
    let_reach(1);
    CHECK_EQ(waiting(), GIVEN);
    return first;
}

static void rob_sleepers(void) {
    pthread_t thread;
    struct heap *mine = make_heap(HEAP_LIVE);
    uint32_t first = fill_buffer(mine, &thread);
    step_after(VISIT_MS);
    CHECK(purge_saw_work());
    CHECK_EQ(waiting(), GIVEN); /* it did something before */
    let_reach(2);
    step_after(VISIT_MS);
    CHECK(purge_saw_work());
    CHECK_EQ(waiting(), GIVEN); /* and again */
    step_after(VISIT_MS - 1);
    CHECK_EQ(waiting(), GIVEN);
    step_after(1);
    CHECK(!purge_saw_work());
    CHECK_EQ(waiting(), 0);
    CHECK_EQ(atomic_load(&mine->inbox), first); /* which is no heap of the registry's */
    CHECK_EQ(drain(mine), GIVEN);
    atomic_store(&may, 2);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(a_sleepers_buffer_is_emptied) { IN_CHILD(rob_sleepers); }

static void rob_everybody(void) {
    pthread_t thread;
    struct heap *mine = make_heap(HEAP_LIVE);
    if (fill_buffer(mine, &thread) == 0) return;
    step(PURGE_ALL);
    CHECK_EQ(waiting(), 0);
    CHECK_EQ(drain(mine), GIVEN);
    atomic_store(&may, 2);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(with_everything_everybodys_is) { IN_CHILD(rob_everybody); }

static void *take_and_sleep(void *unused) {
    for (size_t i = 0; i < GIVEN; i++) CHECK((given[i] = heap_alloc(5000, NULL)) != NULL);
    atomic_store(&theirs, thread_heap());
    reach(1);
    reach(2);
    return unused;
}

/* What others gave to a sleeper is taken in, and empty slabs go. */
static void drain_sleepers(void) {
    pthread_t thread;
    never_decay();
    CHECK_EQ(pthread_create(&thread, NULL, take_and_sleep, NULL), 0);
    let_reach(1);
    step_after(VISIT_MS); /* once seen */
    struct heap *heap = atomic_load(&theirs);
    uint32_t slabs = (uint32_t)heap->bins[size_class_of(5000)].slab_count;
    uint64_t used = counts_now().used_pages;
    remote_give(NULL, given, GIVEN);
    CHECK(atomic_load(&heap->inbox) != 0);
    step_after(VISIT_MS - 1);
    CHECK(atomic_load(&heap->inbox) != 0);
    step_after(1);
    CHECK_EQ(atomic_load(&heap->inbox), 0);
    CHECK(heap->bins[size_class_of(5000)].slab_count <= slabs);
    CHECK(heap->bins[size_class_of(5000)].remote_blocks >= GIVEN);
    CHECK(counts_now().used_pages < used);
    atomic_store(&may, 2);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(a_sleepers_inbox_is_taken_in) { IN_CHILD(drain_sleepers); }
