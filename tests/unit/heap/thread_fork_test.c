/* thread_fork_test.c - what the child of a fork does with the heaps of threads that are not in it.
 *
 * Planted defects it was seen to catch:
 *   the child forgets the heaps of the others    a_child_reaps_what_was_forsaken
 *   it loses what lies in their stacks           a_child_reaps_what_was_forsaken
 *   a heap that changes hands is nobody's        a_child_finds_heaps_that_change_hands
 *   a fork inside of a fork keeps all locks      a_fork_inside_of_a_fork
 *   all of a forsaken heap goes at once          a_child_reaps_in_portions
 *   what is drained in part is forgotten         a_child_goes_on_with_what_was_drained_in_part
 */
#include "heaps.h" /* first: it says _GNU_SOURCE */

#include "child.h"
#include "heap/alloc.h"
#include "heap/enter.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "no_purger.h"
#include "region/books.h"

#include <sys/wait.h>

enum { FORSAKEN = 3 };
static pthread_barrier_t barrier;
static void *_Atomic kept[FORSAKEN];

enum { HELD = 200 };
static void *hold_blocks(void *argument) {
    size_t which = (size_t)(uintptr_t)argument;
    void *blocks[HELD];
    for (size_t i = 0; i < HELD; i++) CHECK((blocks[i] = heap_alloc(5000, NULL)) != NULL);
    block_fill(blocks[0], 5000, which);
    atomic_store(&kept[which], blocks[0]);
    for (size_t i = 1; i < HELD; i += 2) heap_free(blocks[i], NULL);
    CHECK(stack_held(thread_heap(), size_class_of(5000)) != 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the fork is in between */
    for (size_t i = 0; i < HELD; i += 2) heap_free(blocks[i], NULL);
    return NULL;
}

static void reap_all(void) {
    while (thread_reap_forsaken()) {}
}

static void collect(void) { heap_collect(); }

static void reap_and_use(void (*reap)(void), const struct sum *before) {
    struct sum sum = sum_of_heaps();
    CHECK_EQ(sum.live, 1);
    CHECK_EQ(sum.slabs, before->slabs);
    reap();
    sum = sum_of_heaps();
    CHECK_EQ(sum.live, 1);
    CHECK(sum.slabs_of_commons >= FORSAKEN * 4);
    /* What lay in their stacks is free. */
    CHECK_EQ(counter_read(&commons.bins[size_class_of(5000)].taken_blocks), FORSAKEN * HELD / 2);
    /* Their heaps can be used again, their slabs adopted, their blocks freed. */
    struct heap *mine = thread_heap();
    uint64_t books = books_bytes();
    for (size_t i = 0; i < 100; i++) CHECK(heap_alloc(5000, NULL) != NULL);
    CHECK(mine->bins[size_class_of(5000)].adopted_slabs > 0);
    CHECK_EQ(books_bytes(), books);
    for (size_t i = 0; i < FORSAKEN; i++) {
        CHECK(block_holds(atomic_load(&kept[i]), 5000, i));
        heap_free(atomic_load(&kept[i]), NULL);
    }
    CHECK(!thread_reap_forsaken());
    CHECK_EQ(sum_of_heaps().heaps, before->heaps);
}

static void wait_for(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
}

/* In a child of each way to REAP. */
static void reap_in_children(void (*const reap[])(void), size_t ways) {
    pthread_t threads[FORSAKEN];
    heap_free(heap_alloc(5000, NULL), NULL);
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, FORSAKEN + 1), 0);
    for (size_t i = 0; i < FORSAKEN; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, hold_blocks, (void *)(uintptr_t)i), 0);
    pthread_barrier_wait(&barrier);
    struct sum before = sum_of_heaps();
    CHECK(before.live >= FORSAKEN + 1);
    for (size_t way = 0; way < ways; way++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(CHILD_SECONDS);
            reap_and_use(reap[way], &before);
            _exit(0);
        }
        wait_for(child);
    }
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < FORSAKEN; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
}

TEST(a_child_reaps_what_was_forsaken) {
    void (*const ways[])(void) = {reap_all, collect, reveal_own};
    reap_in_children(ways, sizeof ways / sizeof ways[0]);
}

static void *use_once(void *unused) {
    heap_free(heap_alloc(16, NULL), NULL);
    return unused;
}

/* One that a thread has just taken, or not yet given: its thread is not in the child. */
TEST(a_child_finds_heaps_that_change_hands) {
    struct heap *idle[2];
    run_thread(use_once, NULL); /* so that there is one */
    struct heap *taken = registry_take(0);
    CHECK(taken != NULL && atomic_load(&taken->state) == HEAP_DEAD);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        while (thread_reap_forsaken()) {}
        CHECK(registry_idle(idle, 1) == 1 && idle[0] == taken);
        CHECK_EQ(registry_live(), 1);
        CHECK(registry_take(0) == taken && registry_take_forsaken() == NULL);
        _exit(0);
    }
    wait_for(child);
    registry_give(taken);
}

static bool is_served_from_the_window(void) {
    void *block = heap_alloc(MIB(2), NULL); /* takes the slow path */
    const bool inside = block != NULL && window_holds(block);
    heap_free(block, NULL);
    return inside;
}

static void fork_in_the_middle(void) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    wait_for(child);
}

/* A signal handler may fork where the thread does just that: in front of the kernel, and behind. */
static void fork_inside_of_a_fork(void) {
    CHECK(is_served_from_the_window());
    heap_fork_prepare();
    fork_in_the_middle();
    heap_fork_parent();
    CHECK(!thread_state.busy && is_served_from_the_window());
    heap_fork_prepare();
    const pid_t child = fork(); /* the outer one's child is an inner one's, too */
    if (child == 0) {
        heap_fork_child();
        _exit(!thread_state.busy && is_served_from_the_window() ? 0 : 1);
    }
    wait_for(child);
    heap_fork_parent();
    CHECK(is_served_from_the_window());
}

TEST(a_fork_inside_of_a_fork) { IN_CHILD(fork_inside_of_a_fork); }

/* Forks find the other thread in the middle of giving its buffer back. */
enum { RING = 4096 };
static void *_Atomic ring[RING];
static atomic_bool ring_ends;

static void *free_from_ring(void *unused) {
    while (!atomic_load(&ring_ends))
        for (size_t i = 0; i < RING; i++) heap_free(atomic_exchange(&ring[i], NULL), NULL);
    return unused;
}

TEST(forks_while_blocks_go_home) {
    pthread_t thread;
    atomic_store(&ring_ends, false);
    CHECK_EQ(pthread_create(&thread, NULL, free_from_ring, NULL), 0);
    for (size_t i = 0; i < check_count(300); i++) {
        for (size_t k = 0; k < 3 * RING; k++)
            if (atomic_load(&ring[k % RING]) == NULL) atomic_store(&ring[k % RING], heap_alloc(512, NULL));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(CHILD_SECONDS);
            while (thread_reap_forsaken()) {}
            for (int k = 0; k < 100; k++) CHECK(heap_alloc(512, NULL) != NULL);
            _exit(0);
        }
        wait_for(child);
    }
    atomic_store(&ring_ends, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < RING; i++) heap_free(atomic_exchange(&ring[i], NULL), NULL);
}

enum { LARGE_SLABS = 2 * HAND_OVER_SLABS };
static struct heap *large_heap;
static void *last_of_large;

static void *hold_much(void *unused) {
    do CHECK((last_of_large = heap_alloc(30000, NULL)) != NULL);
    while (atomic_load(&thread_heap()->slab_total) < LARGE_SLABS);
    large_heap = thread_heap();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the fork is in between */
    return unused;
}

/* The heap waits with the rest, as that of a thread that ended. */
static void reap_large(void) {
    CHECK(thread_reap_forsaken());
    CHECK(large_heap->parked);
    CHECK_EQ(atomic_load(&large_heap->slab_total), LARGE_SLABS - HAND_OVER_SLABS);
    CHECK(!thread_reap_forsaken());
    heap_free(last_of_large, NULL);
    CHECK(thread_retire_some(large_heap) && !large_heap->parked);
    CHECK_EQ(atomic_load(&large_heap->slab_total), 0);
}

TEST(a_child_reaps_in_portions) {
    pthread_t thread;
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, 2), 0);
    CHECK_EQ(pthread_create(&thread, NULL, hold_much, NULL), 0);
    pthread_barrier_wait(&barrier);
    IN_CHILD(reap_large);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* Blocks of several slabs came back, and this thread has taken in those of one. */
TEST(a_child_goes_on_with_what_was_drained_in_part) {
    enum { SLABS = 3, BYTES = 32 * 1024 };
    void *blocks[SLABS];
    size_t count = 0;
    uint32_t last = 0;
    while (count < SLABS) { /* few of them lie in a slab */
        void *block = heap_alloc(BYTES, NULL);
        CHECK(block != NULL);
        if (slab_head(page_index(block)) != last) blocks[count++] = block;
        last = slab_head(page_index(block));
    }
    struct heap *const heap = thread_heap();
    reveal_own();
    remote_give(NULL, blocks, SLABS);
    os_lock_take(&heap->lock);
    CHECK_EQ(remote_drain_some(heap, 1), 1);
    os_lock_drop(&heap->lock);
    CHECK(remote_has_some(heap) && atomic_load(&heap->inbox) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    os_lock_take(&heap->lock); /* in both */
    CHECK_EQ(remote_drain(heap), SLABS - 1);
    os_lock_drop(&heap->lock);
    CHECK(!remote_has_some(heap) && !atomic_load(&heap->undrained));
    if (child == 0) _exit(0);
    wait_for(child);
}
