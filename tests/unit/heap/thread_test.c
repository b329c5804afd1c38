/* thread_test.c - heaps come and go with threads: reuse, adoption, what destructors do, and forks.
 *
 * Planted defects it was seen to catch:
 *   a heap is not given back at its thread's end heaps_are_used_again
 *   slabs stay with the dead heap                what_a_thread_leaves_is_adopted
 *   the buffer of remote blocks stays too        what_a_thread_leaves_is_adopted
 *   the child forgets the heaps of the others    a_child_reaps_what_was_forsaken
 *   the dead thread's front stays in place       destructors_use_the_commons
 */
#include "blocks.h"
#include "heap/alloc.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "no_purger.h"
#include "region/books.h"

#include <sched.h>
#include <sys/wait.h>

static void run_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, body, argument), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

struct sum {
    size_t heaps, live, slabs, slabs_of_commons, waiting;
};

static void add_heap(struct heap *heap, void *context) {
    struct sum *sum = context;
    if (sum->heaps++ == 0) CHECK(heap == &commons);
    sum->live += atomic_load(&heap->state) == HEAP_LIVE;
    sum->waiting += atomic_load(&heap->remote_count);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        sum->slabs += heap->bins[class].slab_count;
        if (heap == &commons) sum->slabs_of_commons += heap->bins[class].slab_count;
    }
}

static struct sum sum_of_heaps(void) {
    struct sum sum = {0};
    add_heap(&commons, &sum);
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) add_heap(heap, &sum);
    return sum;
}

static struct heap *heap_of_thread;

static void *use_many_classes(void *unused) {
    void *blocks[SIZE_CLASSES];
    for (unsigned class = 0; class < SIZE_CLASSES; class += 7) {
        blocks[class] = heap_alloc(slab_classes[class].block_bytes);
        CHECK(blocks[class] != NULL);
    }
    heap_of_thread = thread_heap();
    CHECK(heap_of_thread != NULL && atomic_load(&heap_of_thread->state) == HEAP_LIVE);
    for (unsigned class = 0; class < SIZE_CLASSES; class += 7) heap_free(blocks[class], NULL);
    return unused;
}

TEST(heaps_are_used_again) {
    run_thread(use_many_classes, NULL);
    struct heap *first = heap_of_thread;
    struct sum before = sum_of_heaps();
    uint64_t books = books_bytes();
    for (size_t i = 0; i < check_count(10000); i++) {
        run_thread(use_many_classes, NULL);
        CHECK_AT(heap_of_thread == first, i);
        CHECK_EQ(atomic_load(&first->state), HEAP_DEAD);
    }
    struct sum after = sum_of_heaps();
    CHECK_EQ(books_bytes(), books);
    CHECK_EQ(after.heaps, before.heaps);
    CHECK_EQ(after.slabs, before.slabs);
}

enum { LEFT = 900, LEFT_BYTES = 1792 };
static void *left[LEFT], *given_away[100];

static void *leave_blocks(void *unused) {
    for (size_t i = 0; i < LEFT; i++) {
        CHECK((left[i] = heap_alloc(LEFT_BYTES)) != NULL);
        block_fill(left[i], LEFT_BYTES, i);
    }
    for (size_t i = 0; i < LEFT; i++)
        if (i % 3 != 0) heap_free(left[i], NULL);
    for (size_t i = 0; i < 100; i++) heap_free(given_away[i], NULL);
    size_t kept = stack_held(thread_heap(), size_class_of(2000));
    CHECK_EQ(atomic_load(&thread_heap()->remote_count) + kept, 100);
    return unused;
}

TEST(what_a_thread_leaves_is_adopted) {
    const unsigned class = size_class_of(LEFT_BYTES);
    for (size_t i = 0; i < 100; i++) CHECK((given_away[i] = heap_alloc(2000)) != NULL);
    struct heap *mine = thread_heap();
    run_thread(leave_blocks, NULL);
    /* The blocks of this thread that the other freed came back at its end. */
    CHECK_EQ(sum_of_heaps().waiting, 0);
    CHECK(atomic_load(&mine->inbox) != 0);
    os_lock_take(&mine->lock);
    CHECK_EQ(remote_drain(mine), 100);
    os_lock_drop(&mine->lock);

    uint32_t slabs = (uint32_t)commons.bins[class].slab_count;
    CHECK(slabs >= LEFT / slab_classes[class].blocks);
    struct span_counts before, after;
    span_counts_read(&before);
    static void *blocks[LEFT / 2];
    for (size_t i = 0; i < LEFT / 2; i++) CHECK((blocks[i] = heap_alloc(LEFT_BYTES)) != NULL);
    span_counts_read(&after);
    CHECK_EQ(after.taken, before.taken); /* no new slab while there are old ones */
    CHECK(mine->bins[class].adopted_slabs >= slabs / 2);
    for (size_t i = 0; i < LEFT; i += 3) CHECK_AT(block_holds(left[i], LEFT_BYTES, i), i);
    for (size_t i = 0; i < LEFT; i += 3) heap_free(left[i], NULL);
    for (size_t i = 0; i < LEFT / 2; i++) heap_free(blocks[i], NULL);
}

/* ---- destructors --------------------------------------------------------------------------------- */

static pthread_key_t key;
static int rounds_of_destructor, rounds_without_heap;

/* Libc calls it again as long as it sets its value; the heap goes after the first round at the latest. */
static void use_in_destructor(void *value) {
    heap_free(value, NULL);
    void *block = heap_alloc(700), *large = heap_alloc(MIB(1));
    CHECK(block != NULL && large != NULL);
    heap_free(large, NULL);
    if (thread_heap() == NULL) {
        rounds_without_heap++;
        CHECK(thread_front() == &front_gone);
        CHECK_EQ(page_word(page_index(block)), heap_word(&commons, size_class_of(700)));
    }
    if (++rounds_of_destructor < 3) CHECK_EQ(pthread_setspecific(key, block), 0);
    else heap_free(block, NULL);
}

static void *end_with_destructor(void *unused) {
    CHECK_EQ(pthread_setspecific(key, heap_alloc(700)), 0);
    return unused;
}

TEST(destructors_use_the_commons) {
    CHECK_EQ(pthread_key_create(&key, use_in_destructor), 0);
    for (int i = 0; i < 50; i++) {
        struct sum before = sum_of_heaps();
        rounds_of_destructor = rounds_without_heap = 0;
        run_thread(end_with_destructor, NULL);
        CHECK_EQ(rounds_of_destructor, 3);
        CHECK(rounds_without_heap >= 2);
        if (i > 0) CHECK_EQ(sum_of_heaps().slabs, before.slabs);
    }
    pthread_key_delete(key);
}

/* ---- fork ----------------------------------------------------------------------------------------- */

enum { FORSAKEN = 3, CHILD_SECONDS = CHECK_SHADOWED ? 60 : 10 };
static pthread_barrier_t barrier;
static void *_Atomic kept[FORSAKEN];

static void *hold_blocks(void *argument) {
    size_t which = (size_t)(uintptr_t)argument;
    void *blocks[200];
    for (size_t i = 0; i < 200; i++) CHECK((blocks[i] = heap_alloc(5000)) != NULL);
    block_fill(blocks[0], 5000, which);
    atomic_store(&kept[which], blocks[0]);
    for (size_t i = 1; i < 200; i += 2) heap_free(blocks[i], NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the fork is in between */
    for (size_t i = 0; i < 200; i += 2) heap_free(blocks[i], NULL);
    return NULL;
}

static void reap_and_use(const struct sum *before) {
    struct sum sum = sum_of_heaps();
    CHECK_EQ(sum.live, 1);
    CHECK_EQ(sum.slabs, before->slabs);
    thread_reap_forsaken();
    sum = sum_of_heaps();
    CHECK_EQ(sum.live, 1);
    CHECK(sum.slabs_of_commons >= FORSAKEN * 4);
    /* Their heaps can be used again, their slabs adopted, their blocks freed. */
    struct heap *mine = thread_heap();
    uint64_t books = books_bytes();
    for (size_t i = 0; i < 100; i++) CHECK(heap_alloc(5000) != NULL);
    CHECK(mine->bins[size_class_of(5000)].adopted_slabs > 0);
    CHECK_EQ(books_bytes(), books);
    for (size_t i = 0; i < FORSAKEN; i++) {
        CHECK(block_holds(atomic_load(&kept[i]), 5000, i));
        heap_free(atomic_load(&kept[i]), NULL);
    }
    thread_reap_forsaken();
    CHECK_EQ(sum_of_heaps().heaps, before->heaps);
}

static void wait_for(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
}

TEST(a_child_reaps_what_was_forsaken) {
    pthread_t threads[FORSAKEN];
    heap_free(heap_alloc(5000), NULL);
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, FORSAKEN + 1), 0);
    for (size_t i = 0; i < FORSAKEN; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, hold_blocks, (void *)(uintptr_t)i), 0);
    pthread_barrier_wait(&barrier);
    struct sum before = sum_of_heaps();
    CHECK(before.live >= FORSAKEN + 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        reap_and_use(&before);
        _exit(0);
    }
    wait_for(child);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < FORSAKEN; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

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
            if (atomic_load(&ring[k % RING]) == NULL) atomic_store(&ring[k % RING], heap_alloc(512));
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(CHILD_SECONDS);
            thread_reap_forsaken();
            for (int k = 0; k < 100; k++) CHECK(heap_alloc(512) != NULL);
            _exit(0);
        }
        wait_for(child);
    }
    atomic_store(&ring_ends, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < RING; i++) heap_free(atomic_exchange(&ring[i], NULL), NULL);
}
