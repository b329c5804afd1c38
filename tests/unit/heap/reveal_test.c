/* reveal_test.c - what an allocation that fails costs other threads: their stacks once, and not each time; unless there is
 * something to be had. Below a hard limit, beside a thread that does what it is told.
 *
 * Planted defects it was seen to catch:
 *   each failure empties all stacks              who_asks_again_and_again_costs_others_little
 *   for a while nobody is asked at all           what_others_freed_since_is_found
 *   what helped passes for vain                  what_helped_is_done_again, what_others_have_is_found_for_a_block_that_grows
 *   only free pages count                        a_slab_with_room_is_found
 *   what the own stacks held counts as in use    what_is_found_is_not_in_use
 */
#include "medium.h" /* first: it says _GNU_SOURCE */

#include "clock.h"
#include "heap/footprint.h"
#include "in_use.h"
#include "kernel.h"
#include "no_purger.h"

#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>

enum { BYTES = KIB(256), PAUSE_MS = 50 };

/* The other thread: has so many of two blocks in use, and the others in its stack. */
static atomic_int told, done;
static struct heap *_Atomic other_heap;

static void *do_as_told(void *unused) {
    void *blocks[2] = {NULL};
    settle(BYTES, 2);
    atomic_store(&other_heap, thread_heap());
    for (int in_use = 0, count; (count = atomic_load(&told)) >= 0; sched_yield()) {
        for (; in_use < count; in_use++) CHECK((blocks[in_use] = heap_alloc(BYTES, NULL)) != NULL);
        for (; in_use > count; in_use--) heap_free(blocks[in_use - 1], NULL);
        atomic_store(&done, count);
    }
    return unused;
}

static void tell(int count) {
    atomic_store(&told, count);
    while (atomic_load(&done) != count) sched_yield();
}

static size_t held_by_other(void) { return held_of(atomic_load(&other_heap), BYTES); }

/* It keeps both, by its own allocations. */
static void fill_other(void) {
    tell(2);
    tell(0);
    CHECK_EQ(held_by_other(), 2);
}

static pthread_t start_other(void) {
    pthread_t thread;
    atomic_store(&done, -1);
    CHECK(hak_malloc(MIB(8)) != NULL); /* no limit may be lower */
    CHECK_EQ(pthread_create(&thread, NULL, do_as_told, NULL), 0);
    fill_other();
    return thread;
}

static void leave_pages(uint64_t pages) {
    char limit[32];
    snprintf(limit, sizeof limit, "%" PRIu64, (counts_now().used_pages + pages) * PAGE_BYTES);
    CHECK_EQ(hak_option_set("hard_limit", limit), 0);
}

static void end_other(pthread_t thread) {
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
    atomic_store(&told, -1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

#define BESIDE_ANOTHER(body) \
    do {                     \
        NEED_BARRIER();      \
        IN_CHILD(body);      \
    } while (0)

static void ask_again(void) {
    pthread_t thread = start_other();
    leave_pages(0);
    for (int i = 0; i < 3; i++) {
        CHECK(heap_alloc(MIB(2), NULL) == NULL);
        CHECK_EQ(held_by_other(), 0); /* the first time, and every now and then */
        for (int k = 0; k < 5; k++) {
            fill_other();
            CHECK(heap_alloc(MIB(2), NULL) == NULL && heap_alloc(MIB(3), NULL) == NULL);
            CHECK_EQ(held_by_other(), 2);
            clock_pass(PAUSE_MS / 5 - (k == 0));
        }
        CHECK(heap_alloc(MIB(2), NULL) == NULL);
        CHECK_EQ(held_by_other(), 2);
        clock_pass(1);
    }
    end_other(thread);
}
TEST(who_asks_again_and_again_costs_others_little) { BESIDE_ANOTHER(ask_again); }

static void free_since(void) {
    pthread_t thread = start_other();
    tell(2);
    leave_pages(2);
    CHECK(heap_alloc(BYTES, NULL) == NULL);
    tell(0);
    CHECK_EQ(held_by_other(), 2); /* of which the limit knows nothing */
    void *block = heap_alloc(BYTES, NULL);
    CHECK(block != NULL);
    heap_free(block, NULL);
    end_other(thread);
}
TEST(what_others_freed_since_is_found) { BESIDE_ANOTHER(free_since); }

static void ask_for_less(void) {
    pthread_t thread = start_other();
    leave_pages(0);
    CHECK(heap_alloc(MIB(2), NULL) == NULL);
    fill_other();
    void *block = heap_alloc(BYTES + PAGE_BYTES, NULL); /* which is not what the other has */
    CHECK(block != NULL);
    end_other(thread);
}
TEST(less_is_another_matter) { BESIDE_ANOTHER(ask_for_less); }

static void helped(void) {
    pthread_t thread = start_other();
    leave_pages(0);
    void *block = heap_alloc(BYTES + PAGE_BYTES, NULL);
    CHECK(block != NULL && held_by_other() == 0);
    leave_pages(2 * 4); /* for what it takes again */
    fill_other();
    CHECK((block = heap_alloc(2 * BYTES, NULL)) != NULL);
    end_other(thread);
}
TEST(what_helped_is_done_again) { BESIDE_ANOTHER(helped); }

/* A block that grows is refused like a new one. */
static void grow(void) {
    pthread_t thread = start_other();
    char *block = heap_alloc(MIB(2), NULL);
    leave_pages(0);
    CHECK_EQ(heap_extend(block, MIB(4)), 0);
    CHECK_EQ(held_by_other(), 0);
    fill_other();
    CHECK_EQ(heap_extend(block, MIB(4)), 0);
    CHECK_EQ(held_by_other(), 2);
    end_other(thread);
}
TEST(so_is_who_asks_for_more) { BESIDE_ANOTHER(grow); }

static void grow_by_what_others_have(void) {
    pthread_t thread = start_other();
    char *block = heap_alloc(MIB(4), NULL);
    CHECK(block != NULL && heap_resize(block, MIB(2)) == block); /* with room behind it */
    leave_pages(0);
    CHECK_EQ(heap_extend(block, MIB(2) + BYTES), MIB(2) + BYTES);
    CHECK_EQ(held_by_other(), 0);
    leave_pages(2 * 4); /* for what it takes again */
    tell(2);
    tell(0);
    CHECK(held_by_other() != 0);
    leave_pages(0);
    CHECK_EQ(heap_extend(block, MIB(2) + 2 * BYTES), MIB(2) + 2 * BYTES); /* it helped: there is no pause */
    end_other(thread);
}
TEST(what_others_have_is_found_for_a_block_that_grows) { BESIDE_ANOTHER(grow_by_what_others_have); }

/* ---- what costs nobody ---------------------------------------------------------------------------------- */

enum { OTHERS = 6, SMALL_BYTES = 3000 };

static pthread_barrier_t all_began, one_ended;

static void *leave_some(void *kept) {
    CHECK((*(void **)kept = heap_alloc(SMALL_BYTES, NULL)) != NULL);
    pthread_barrier_wait(&all_began);
    return NULL;
}

static void *end_later(void *unused) {
    heap_free(heap_alloc(16, NULL), NULL);
    pthread_barrier_wait(&all_began);
    pthread_barrier_wait(&one_ended);
    return unused;
}

/* A slab that is half used, of a thread that ended before more than a refill looks at: no page becomes free by it. */
static void find_half_used(void) {
    pthread_t leaver, others[OTHERS];
    void *kept;
    CHECK(hak_malloc(MIB(8)) != NULL); /* no limit may be lower */
    CHECK_EQ(pthread_barrier_init(&all_began, NULL, OTHERS + 2), 0);
    CHECK_EQ(pthread_barrier_init(&one_ended, NULL, OTHERS + 1), 0);
    CHECK_EQ(pthread_create(&leaver, NULL, leave_some, &kept), 0);
    for (size_t i = 0; i < OTHERS; i++) CHECK_EQ(pthread_create(&others[i], NULL, end_later, NULL), 0);
    pthread_barrier_wait(&all_began);
    CHECK_EQ(pthread_join(leaver, NULL), 0);
    pthread_barrier_wait(&one_ended);
    for (size_t i = 0; i < OTHERS; i++) CHECK_EQ(pthread_join(others[i], NULL), 0);
    leave_pages(0);
    void *block = heap_alloc(SMALL_BYTES, NULL);
    CHECK(block != NULL);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
    heap_free(block, NULL);
    heap_free(kept, NULL);
}
TEST(a_slab_with_room_is_found) { IN_CHILD(find_half_used); }

/* Otherwise the block that is found room for comes on top, as a peak that never was. */
static void find_own(void) {
    enum { COUNT = 64 };
    void *blocks[COUNT];
    CHECK(hak_malloc(MIB(8)) != NULL); /* no limit may be lower */
    struct heap *heap = thread_heap();
    heap_collect();
    const uint64_t in_use = told_in_use(heap);
    for (size_t i = 0; i < COUNT; i++) CHECK((blocks[i] = heap_alloc(SMALL_BYTES, NULL)) != NULL);
    CHECK(told_in_use(heap) >= in_use + (uint64_t)COUNT * SMALL_BYTES);
    for (size_t i = 0; i < COUNT; i++) heap_free(blocks[i], NULL);
    leave_pages(0);
    CHECK(heap_alloc(MIB(2), NULL) == NULL);
    CHECK_EQ(footprint_in_use(), in_use);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
}
TEST(what_is_found_is_not_in_use) { IN_CHILD(find_own); }
