/* retire_test.c - heaps of threads that ended are retired: what they hold goes home, in portions if it is much, and
 * nothing stays.
 *
 * Planted defects it was seen to catch:
 *   the next thread keeps others' blocks at once what_is_retired_goes_home
 *   a large heap is retired at once              a_large_heap_is_retired_in_portions
 *   who waits too long is retired in portions    where_no_visit_comes_all_is_retired
 *   who waits too long is retired at once        visits_retire_the_rest
 *   what was drained in part hides the rest      what_came_back_in_between_is_retired_too
 *   what is left in the inbox is forgotten       what_came_back_is_retired_in_portions
 */
#include "blocks.h"
#include "child.h"
#include "clock.h" /* stands still: nothing is returned in passing */
#include "heap/alloc.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "heaps.h"
#include "leaver.h"
#include "no_purger.h"
#include "reveal.h"

static void *given_away;

static void *keep_and_end(void *unused) {
    const unsigned class = size_class_of(2000);
    heap_free(heap_alloc(16, NULL), NULL);
    leaver = thread_heap();
    os_lock_take(&leaver->lock);
    stack_empty_all(leaver);
    os_lock_drop(&leaver->lock);
    CHECK_EQ(atomic_load(&leaver->slab_total), 0);
    leaver->bins[class].streams = true;
    leaver->front.stream_left[class] = STREAM_TRUST;
    stack_set_keeping(leaver, class, true);
    heap_free(given_away, NULL);
    CHECK_EQ(stack_held(leaver, class), 1);
    return unused;
}

/* Blocks of others, too, of which the heap has no slab. */
TEST(what_is_retired_goes_home) {
    const unsigned class = size_class_of(2000);
    reveal_all(); /* the next thread begins with an empty heap */
    CHECK((given_away = heap_alloc(2000, NULL)) != NULL);
    run_thread(keep_and_end, NULL);
    CHECK_EQ(stack_held(leaver, class), 1);
    CHECK(!leaver->bins[class].streams && leaver->front.keep[class] == NULL); /* the next thread's may be no stream */
    thread_retire_parked(leaver);
    CHECK_EQ(stack_held(leaver, class), 0);
    os_lock_take(&thread_heap()->lock);
    const uint32_t drained = remote_drain(thread_heap());
    os_lock_drop(&thread_heap()->lock);
    CHECK_EQ(drained, 1);
}

/* Where there is no memory for more, what stacks and parked heaps hold is taken before an allocation fails. */
TEST(what_is_hidden_is_revealed) {
    run_thread(leave_few, NULL);
    uint32_t theirs_total = atomic_load(&leaver->slab_total);
    CHECK(theirs_total != 0);
    heap_free(heap_alloc(50000, NULL), NULL);
    CHECK(stack_held(thread_heap(), size_class_of(50000)) != 0);
    reveal_all();
    CHECK_EQ(stack_held(thread_heap(), size_class_of(50000)), 0);
    CHECK_EQ(atomic_load(&leaver->slab_total), 0);
}

static void *leave_much(void *unused) {
    do CHECK(heap_alloc(30000, NULL) != NULL);
    while (atomic_load(&thread_heap()->slab_total) <= 2 * HAND_OVER_SLABS);
    leaver = thread_heap();
    return unused;
}

static void retire_in_portions(void) {
    reveal_all(); /* the next thread begins with an empty heap */
    run_thread(leave_much, NULL);
    for (uint32_t times = 1; times <= 2; times++) {
        CHECK(!thread_retire_some(leaver) && leaver->parked);
        CHECK_EQ(atomic_load(&leaver->slab_total), (2 - times) * HAND_OVER_SLABS + 1);
    }
    CHECK(thread_retire_some(leaver) && !leaver->parked);
    CHECK_EQ(atomic_load(&leaver->slab_total), 0);
}
/* So that no operation of another thread takes long. */
TEST(a_large_heap_is_retired_in_portions) { IN_CHILD(retire_in_portions); }

/* One that is left by its heap before all others are by theirs. */
static pthread_barrier_t all_began, large_ended;

static void *leave_much_first(void *unused) {
    heap_free(heap_alloc(16, NULL), NULL);
    pthread_barrier_wait(&all_began);
    return leave_much(unused);
}

static void *leave_afterwards(void *unused) {
    heap_free(heap_alloc(16, NULL), NULL);
    pthread_barrier_wait(&all_began);
    pthread_barrier_wait(&large_ended);
    return unused;
}

/* A large heap has waited longest, and is the first beyond those that wait. */
static void leave_many(void) {
    pthread_t first, threads[REGISTRY_WAITING];
    reveal_all();
    heap_settings.processors = REGISTRY_WAITING + 1; /* each has slabs of its own */
    CHECK_EQ(pthread_barrier_init(&all_began, NULL, REGISTRY_WAITING + 1), 0);
    CHECK_EQ(pthread_barrier_init(&large_ended, NULL, REGISTRY_WAITING + 1), 0);
    CHECK_EQ(pthread_create(&first, NULL, leave_much_first, NULL), 0);
    for (size_t i = 0; i < REGISTRY_WAITING; i++) CHECK_EQ(pthread_create(&threads[i], NULL, leave_afterwards, NULL), 0);
    CHECK_EQ(pthread_join(first, NULL), 0);
    CHECK(leaver->parked && atomic_load(&leaver->slab_total) > 2 * HAND_OVER_SLABS);
    pthread_barrier_wait(&large_ended);
    for (size_t i = 0; i < REGISTRY_WAITING; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static void retire_beyond_without_visits(void) {
    leave_many();
    CHECK(!leaver->parked);
    CHECK_EQ(atomic_load(&leaver->slab_total), 0);
}
TEST(where_no_visit_comes_all_is_retired) { IN_CHILD(retire_beyond_without_visits); }

static void retire_beyond_before_visits(void) {
    purger_configure(60 * 1000, false);
    leave_many();
    CHECK(leaver->parked);
    CHECK_EQ(atomic_load(&leaver->slab_total), HAND_OVER_SLABS + 1);
}
TEST(visits_retire_the_rest) { IN_CHILD(retire_beyond_before_visits); }

enum { MOST_BLOCKS = 16 * HAND_OVER_SLABS };
static void *to_return[MOST_BLOCKS];
static size_t returned;

static void *leave_what_is_returned(void *unused) {
    do CHECK((to_return[returned++] = heap_alloc(30000, NULL)) != NULL);
    while (returned < MOST_BLOCKS && atomic_load(&thread_heap()->slab_total) <= HAND_OVER_SLABS + 1);
    leaver = thread_heap();
    return unused;
}

/* What came back to more slabs than are taken in at once goes home with the next portion. */
static void retire_what_came_back(void) {
    reveal_all();
    run_thread(leave_what_is_returned, NULL);
    CHECK(returned < MOST_BLOCKS);
    for (size_t i = 0; i < returned; i++) remote_give(NULL, &to_return[i], 1);
    CHECK(!thread_retire_some(leaver) && leaver->parked);
    CHECK(thread_retire_some(leaver) && !leaver->parked && !remote_has_some(leaver));
    CHECK_EQ(atomic_load(&leaver->slab_total), 0);
}
TEST(what_came_back_is_retired_in_portions) { IN_CHILD(retire_what_came_back); }

static void *apart[3]; /* each in a slab of its own */

static void *leave_apart(void *unused) {
    uint32_t last = 0;
    for (size_t count = 0; count < 3;) {
        void *block = heap_alloc(30000, NULL);
        CHECK(block != NULL);
        if (slab_head(page_index(block)) != last) apart[count++] = block;
        last = slab_head(page_index(block));
    }
    leaver = thread_heap();
    return unused;
}

static void retire_what_was_drained_in_part(void) {
    reveal_all();
    run_thread(leave_apart, NULL);
    remote_give(NULL, apart, 2);
    os_lock_take(&leaver->lock);
    CHECK_EQ(remote_drain_some(leaver, 1), 1);
    os_lock_drop(&leaver->lock);
    remote_give(NULL, &apart[2], 1);
    thread_retire_parked(leaver);
    CHECK(!leaver->parked && !remote_has_some(leaver));
    CHECK_EQ(atomic_load(&leaver->slab_total), 0);
}
TEST(what_came_back_in_between_is_retired_too) { IN_CHILD(retire_what_was_drained_in_part); }

static void *stay_for_a_while(void *may_end) {
    move_to(cpu_of_leaver);
    heap_free(heap_alloc(FEW_BYTES, NULL), NULL);
    leaver = thread_heap();
    CHECK(!salvage_slab(size_class_of(FEW_BYTES))); /* its own is not there to be had */
    thread_retire_parked(leaver);
    CHECK(counter_read(&leaver->bins[size_class_of(FEW_BYTES)].slab_count) != 0);
    return may_end;
}

TEST(what_is_retired_holds_nothing) {
    run_thread(leave_few, NULL);
    thread_retire_parked(leaver);
    CHECK_EQ(atomic_load(&leaver->slab_total), 0);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) CHECK_EQ(stack_held(leaver, class), 0);
    struct heap *retired = leaver;
    run_thread(stay_for_a_while, NULL); /* a heap that is lived in is left alone */
    CHECK(leaver == retired);
    thread_retire_parked(leaver);
}
