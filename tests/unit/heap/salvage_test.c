/* salvage_test.c - what is used before memory is that nobody used yet: blocks that others gave back, and where threads are
 * many the slabs of those that wait. The other threads stand still meanwhile. */
#include "blocks.h"
#include "heap/alloc.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "no_purger.h"

enum { THREADS = 6, BYTES = 900, LARGE_BYTES = 2000, OWN_BYTES = 3000, MOST = 1200 }; /* of the last no other test has any */

static pthread_barrier_t barrier;
static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER;
static pthread_t threads[THREADS];
static struct heap *heaps[THREADS];
static void *kept[THREADS][MOST];
static size_t kept_count[THREADS];
static uint32_t blocks_each, bytes_each = BYTES;
static bool without_every_third;

/* Each keeps so many blocks, or two thirds of them, and has nothing in its stack. */
static void *keep_some(void *argument) {
    const size_t self = (size_t)(uintptr_t)argument;
    const unsigned class = size_class_of(bytes_each);
    pthread_mutex_lock(&one_by_one);
    kept_count[self] = 0;
    while (kept_count[self] < blocks_each) CHECK((kept[self][kept_count[self]++] = heap_alloc(bytes_each)) != NULL);
    heaps[self] = thread_heap();
    for (size_t i = 0; without_every_third && i < kept_count[self]; i += 3) {
        heap_free(kept[self][i], NULL);
        kept[self][i] = NULL;
    }
    os_lock_take(&heaps[self]->lock);
    stack_empty(heaps[self], class);
    os_lock_drop(&heaps[self]->lock);
    pthread_mutex_unlock(&one_by_one);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < kept_count[self]; i++) heap_free(kept[self][i], NULL);
    return NULL;
}

static void begin_threads(uint32_t blocks) {
    blocks_each = blocks;
    CHECK_EQ(pthread_barrier_init(&barrier, NULL, THREADS + 1), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, keep_some, (void *)(uintptr_t)i), 0);
    pthread_barrier_wait(&barrier);
}

static void end_threads(void) {
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(pthread_barrier_destroy(&barrier), 0);
}

static uint64_t slabs_of_all(unsigned class) {
    uint64_t slabs = 0;
    for (size_t i = 0; i < THREADS; i++) slabs += counter_read(&heaps[i]->bins[class].slab_count);
    return slabs;
}

TEST(where_threads_are_many_slabs_go_round) {
    const unsigned class = size_class_of(BYTES);
    heap_settings.processors = 1;
    begin_threads(2);
    CHECK_EQ(slabs_of_all(class), 2); /* of the first two, when there were not many yet; the others took these from each other */
    CHECK(salvage_slab(class));
    CHECK_EQ(slabs_of_all(class), 1);
    CHECK(salvage_slab(class));
    CHECK(!salvage_slab(class));
    CHECK(!salvage_slab(size_class_of(BYTES - 300))); /* of which nobody has any */
    end_threads();
    heap_settings.processors = UINT32_MAX;
}

TEST(slabs_of_a_few_blocks_stay) {
    const unsigned class = size_class_of(LARGE_BYTES);
    heap_settings.processors = 1;
    bytes_each = LARGE_BYTES;
    begin_threads(2);
    CHECK_EQ(slabs_of_all(class), THREADS);
    CHECK(!salvage_slab(class));
    end_threads();
    bytes_each = BYTES;
    heap_settings.processors = UINT32_MAX;
}

TEST(who_has_a_processor_keeps_its_slabs) {
    const unsigned class = size_class_of(BYTES);
    heap_settings.processors = THREADS;
    begin_threads(2);
    CHECK_EQ(slabs_of_all(class), THREADS);
    CHECK(!salvage_slab(class));
    end_threads();
    heap_settings.processors = UINT32_MAX;
}

/* Though two of them together have room enough. */
TEST(a_slab_that_is_half_used_stays) {
    const unsigned class = size_class_of(BYTES);
    const uint32_t most = 2 * slab_classes[class].blocks;
    CHECK(most <= MOST);
    heap_settings.processors = 1;
    without_every_third = true;
    begin_threads(most);
    CHECK_EQ(slabs_of_all(class), 2 * THREADS);
    CHECK(!salvage_slab(class));
    end_threads();
    without_every_third = false;
    heap_settings.processors = UINT32_MAX;
}

/* ---- what others gave back ------------------------------------------------------------------------------- */

static void *given_away[MOST];
static size_t given_count;

static void *give_back(void *unused) {
    heap_free(heap_alloc(16), NULL); /* so that it has a heap, and a buffer */
    for (size_t i = 0; i < given_count; i++) heap_free(given_away[i], NULL);
    return unused;
}

static bool is_given(const void *block) {
    for (size_t i = 0; i < given_count; i++)
        if (given_away[i] == block) return true;
    return false;
}

TEST(what_others_gave_back_comes_before_what_nobody_used) {
    const unsigned class = size_class_of(OWN_BYTES);
    pthread_t thread;
    void *kept_here = heap_alloc(OWN_BYTES); /* so that its slab is not free as a whole */
    CHECK(kept_here != NULL);
    counter_add(&thread_heap()->bins[class].remote_blocks, 1); /* some came back before */
    given_count = 0;
    do { /* until its stack is empty, with a few that go away */
        CHECK((given_away[given_count++] = heap_alloc(OWN_BYTES)) != NULL);
    } while (given_count < 3 || stack_held(thread_heap(), class) != 0);
    const uint32_t carved = slab_at(slab_head(page_index(given_away[0])))->carved;
    CHECK(carved < slab_classes[class].blocks); /* there are some that nobody used */
    CHECK_EQ(pthread_create(&thread, NULL, give_back, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    void *again[MOST];
    for (size_t i = 0; i < given_count; i++) {
        CHECK((again[i] = heap_alloc(OWN_BYTES)) != NULL);
        CHECK_AT(is_given(again[i]), i);
    }
    CHECK_EQ(slab_at(slab_head(page_index(again[0])))->carved, carved);
    for (size_t i = 0; i < given_count; i++) heap_free(again[i], NULL);
    heap_free(kept_here, NULL);
}
