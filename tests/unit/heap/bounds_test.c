/* bounds_test.c - no operation does more than so much, whatever was done before: blocks and slabs that it moves, and calls to
 * the kernel.
 *
 * Planted defects it was seen to catch:
 *   a refill takes in all that came back         one_refill_takes_in_so_many_slabs
 *   a spill gives everything back                no_operation_does_more
 */
#include "blocks.h"

#include "heap/alloc.h"
#include "heap/heap.h"
#include "heap/thread.h"
#include "no_purger.h"
#include "os_counts.h"

#include <pthread.h>

/* What this thread's heap and the process have done so far. */
struct work {
    uint64_t refilled, spilled, came_back, calls;
};

static struct work work_read(void) {
    struct work work = {0};
    const struct heap *heap = thread_heap();
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        work.refilled += heap->bins[class].refilled_blocks;
        work.spilled += heap->bins[class].spilled_blocks;
        work.came_back += heap->bins[class].remote_blocks;
    }
    for (unsigned kind = 0; kind < OS_CALL_KINDS; kind++) work.calls += calls_of(kind);
    return work;
}

static uint64_t max_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* MOST becomes what the operation since BEFORE did, where that is more. */
static void work_note(struct work *most, struct work before) {
    struct work now = work_read();
    most->refilled = max_of(most->refilled, now.refilled - before.refilled);
    most->spilled = max_of(most->spilled, now.spilled - before.spilled);
    most->came_back = max_of(most->came_back, now.came_back - before.came_back);
    most->calls = max_of(most->calls, now.calls - before.calls);
}

struct freed {
    void **blocks;
    size_t count;
};

static void *free_all(void *argument) {
    struct freed *freed = argument;
    for (size_t i = 0; i < freed->count; i++) heap_free(freed->blocks[i], NULL);
    return NULL;
}

static void free_elsewhere(void **blocks, size_t count) {
    struct freed freed = {blocks, count};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, free_all, &freed) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A thousand slabs come back at once: each refill takes in some, and makes one slab at most before it comes to the rest. */
TEST(one_refill_takes_in_so_many_slabs) {
    const unsigned class = size_class_of(4096);
    const uint32_t blocks_of_slab = slab_classes[class].blocks;
    const size_t count = (size_t)blocks_of_slab * 16 * DRAIN_SLABS;
    void **blocks = malloc(count * sizeof *blocks), **again = malloc(count * sizeof *again);
    CHECK(blocks != NULL && again != NULL);
    for (size_t i = 0; i < count; i++) CHECK((blocks[i] = heap_alloc(4096, NULL)) != NULL);
    const struct bin *bin = &thread_heap()->bins[class];
    const uint64_t slabs = bin->slab_count, came_back = bin->remote_blocks;
    free_elsewhere(blocks, count);

    struct work most = {0};
    for (size_t i = 0; i < count; i++) {
        struct work before = work_read();
        CHECK((again[i] = heap_alloc(4096, NULL)) != NULL);
        work_note(&most, before);
    }
    CHECK_EQ(bin->remote_blocks - came_back, count); /* all of it did, in the end */
    CHECK(most.came_back > 0);
    CHECK_AT(most.came_back <= (uint64_t)DRAIN_SLABS * blocks_of_slab, most.came_back);
    CHECK_AT(bin->slab_count <= slabs + 1, bin->slab_count - slabs);
    for (size_t i = 0; i < count; i++) heap_free(again[i], NULL);
    free(blocks);
    free(again);
}

/* Everything at once: all sizes, in turns of more and of less, with blocks that other threads free. */
TEST(no_operation_does_more) {
    enum { LIVE = 1 << 15, CALLS = 24 }; /* sixteen of them to see what was touched before huge pages are asked for */
    static void *live[LIVE];
    struct rng rng = {check_now.seed};
    struct work allocating = {0}, freeing = {0};
    uint32_t deepest = 0;
    heap_free(heap_alloc(1, NULL), NULL); /* from now on there is a heap */
    for (size_t i = 0; i < check_count(2000000); i++) {
        size_t place = rng_below(&rng, LIVE);
        struct work before = work_read();
        if (live[place] == NULL) {
            CHECK((live[place] = heap_alloc(rng_below(&rng, 2) == 0 ? rng_below(&rng, 512) : rng_below(&rng, 20000), NULL)) != NULL);
            work_note(&allocating, before);
        } else {
            heap_free(live[place], NULL);
            work_note(&freeing, before);
            live[place] = NULL;
        }
        if (i % 100000 != 99999) continue;
        free_elsewhere(live, LIVE / 2);
        for (size_t k = 0; k < LIVE / 2; k++) live[k] = NULL;
    }
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        deepest = (uint32_t)max_of(deepest, thread_heap()->bins[class].most);
    CHECK_AT(allocating.refilled <= deepest / 2 && allocating.spilled <= deepest, allocating.refilled);
    CHECK_AT(freeing.spilled <= deepest && freeing.refilled == 0, freeing.spilled);
    CHECK_AT(allocating.calls <= CALLS && freeing.calls <= CALLS, max_of(allocating.calls, freeing.calls));
    for (size_t k = 0; k < LIVE; k++) heap_free(live[k], NULL);
}
