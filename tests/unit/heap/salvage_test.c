/* salvage_test.c - where threads are many, those that share slabs take some of those that do not. These stand still meanwhile.
 *
 * Planted defects it was seen to catch:
 *   threads keep their slabs, however many       who_shares_takes_slabs_of_owners
 *   what came back is not seen                   what_came_back_counts_as_free
 *   slabs are taken by threads that have some    who_has_slabs_takes_none
 *   slabs that are nearly full are taken         a_slab_that_is_half_used_stays
 */
#include "crowd.h"

#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/registry.h"
#include "no_purger.h"

enum { BYTES = 900, MOST = 1200 };

static void *kept[THREADS][MOST];
static size_t kept_count[THREADS];
static uint32_t blocks_each;
static bool without_every_third;

/* Each keeps so many blocks, or two thirds of them, and has nothing in its stack. */
static void *keep_some(void *argument) {
    const size_t self = (size_t)(uintptr_t)argument;
    const unsigned class = size_class_of(BYTES);
    pthread_mutex_lock(&one_by_one);
    kept_count[self] = 0;
    while (kept_count[self] < blocks_each) CHECK((kept[self][kept_count[self]++] = heap_alloc(BYTES, NULL)) != NULL);
    heaps[self] = thread_heap();
    for (size_t i = 0; without_every_third && i < kept_count[self]; i += 3) {
        heap_free(kept[self][i], NULL);
        kept[self][i] = NULL;
    }
    os_lock_take(&heaps[self]->lock);
    stack_empty(heaps[self], class);
    os_lock_drop(&heaps[self]->lock);
    pthread_mutex_unlock(&one_by_one);
    stop_here();
    for (size_t i = 0; i < kept_count[self]; i++) heap_free(kept[self][i], NULL);
    return NULL;
}

/* Each has slabs of its own, also one that begins with a heap whose thread shared some. */
static void begin_threads(uint32_t blocks) {
    blocks_each = blocks;
    start_threads(keep_some, THREADS + 2);
}

static uint64_t slabs_of_all(unsigned class) {
    uint64_t slabs = 0;
    for (size_t i = 0; i < THREADS; i++) slabs += counter_read(&heaps[i]->bins[class].slab_count);
    return slabs;
}

static bool salvaged;

static void *salvage_here(void *unused) {
    thread_ensure_heap();
    salvaged = salvage_slab(size_class_of(BYTES));
    return unused;
}

/* In a thread that shares slabs, or not. */
static bool salvage_by(bool sharer) {
    pthread_t thread;
    heap_settings.processors = sharer ? 1 : THREADS + 2;
    CHECK_EQ(pthread_create(&thread, NULL, salvage_here, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    return salvaged;
}

TEST(who_shares_takes_slabs_of_owners) {
    const unsigned class = size_class_of(BYTES);
    begin_threads(2);
    CHECK_EQ(slabs_of_all(class), THREADS);
    for (unsigned taken = 1; taken <= THREADS; taken++) {
        CHECK(salvage_by(true));
        CHECK_EQ(slabs_of_all(class), THREADS - taken);
    }
    CHECK(!salvage_by(true));
    end_threads();
}

TEST(who_has_slabs_takes_none) {
    const unsigned class = size_class_of(BYTES);
    begin_threads(2);
    CHECK(!salvage_by(false));
    CHECK_EQ(slabs_of_all(class), THREADS);
    end_threads();
}

/* Though two of them together have room enough. */
TEST(a_slab_that_is_half_used_stays) {
    const unsigned class = size_class_of(BYTES);
    const uint32_t most = 2 * slab_classes[class].blocks;
    CHECK(most <= MOST);
    without_every_third = true;
    begin_threads(most);
    CHECK_EQ(slabs_of_all(class), 2 * THREADS);
    CHECK(!salvage_by(true));
    end_threads();
    without_every_third = false;
}

TEST(what_came_back_counts_as_free) {
    const unsigned class = size_class_of(BYTES);
    begin_threads(slab_classes[class].blocks);
    CHECK_EQ(slabs_of_all(class), THREADS);
    CHECK(!salvage_by(true));
    for (size_t i = 2; i < kept_count[0]; i++) {
        heap_free(kept[0][i], NULL);
        kept[0][i] = NULL;
    }
    os_lock_take(&thread_heap()->lock);
    buffer_give_all(thread_heap(), NULL);
    os_lock_drop(&thread_heap()->lock);
    CHECK(salvage_by(true));
    CHECK_EQ(slabs_of_all(class), THREADS - 1);
    end_threads();
}
