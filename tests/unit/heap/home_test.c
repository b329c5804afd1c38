/* home_test.c - where threads are many, those that begin use the slabs of heaps that they share. The other threads stand still meanwhile.
 *
 * Planted defects it was seen to catch:
 *   threads have slabs of their own, however many   where_threads_are_many_they_share_slabs
 *   threads share as soon as there are two          who_has_a_processor_has_slabs
 *   all share one heap                              two_heaps_are_shared_for_each_processor
 *   a shared heap that everybody left stays alive   what_everybody_freed_goes, a_child_of_threads_that_share
 *   what nobody shares goes to the commons at once  what_everybody_freed_goes, what_nobody_shares_waits
 *   what nobody shares stays where it is            others_take_what_nobody_shares
 *   what forsaken threads shared stays              a_child_of_threads_that_share
 *   whoever shares leaves as soon as he may         whoever_shares_goes_on
 *   what was kept before is kept                    whoever_gets_other_slabs_gives_back_what_he_kept
 *   who shares begins with as many as others        whoever_shares_begins_with_few
 *   however many slabs there are, all go at once    whoever_would_give_back_much_keeps_it
 *   what comes too late for who owned a slab waits  what_comes_late_is_passed_on
 *   without memory for a shared heap there is none  without_memory_nobody_shares
 *   a full stack that waits gets one more           what_does_not_fit_in_a_stack_that_waits_goes_home
 */
#include "heaps.h"

#include "child.h"
#include "crowd.h"
#include "faults/fail_calls.h"

#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/home.h"
#include "no_purger.h"
#include "region/books.h"

enum { BYTES = 900, HELD = 40 };

static void *kept[THREADS][HELD];

/* Each in its turn. */
static void *keep_some(void *argument) {
    const size_t self = (size_t)(uintptr_t)argument;
    pthread_mutex_lock(&one_by_one);
    for (size_t i = 0; i < HELD; i++) {
        CHECK((kept[self][i] = heap_alloc(BYTES, NULL)) != NULL);
        block_fill(kept[self][i], BYTES, self * HELD + i);
    }
    heaps[self] = thread_heap();
    pthread_mutex_unlock(&one_by_one);
    stop_here();
    for (size_t i = 0; i < HELD; i++) { /* those of the one beside it */
        const size_t beside = (self + 1) % THREADS;
        CHECK(block_holds(kept[beside][i], BYTES, beside * HELD + i));
        heap_free(kept[beside][i], NULL);
    }
    return NULL;
}

static void begin_threads(uint32_t for_processors) { start_threads(keep_some, for_processors); }

static uint64_t slabs_of(const struct heap *heap) { return counter_read(&heap->bins[size_class_of(BYTES)].slab_count); }

static size_t sharing(void) {
    size_t count = 0;
    for (size_t i = 0; i < THREADS; i++) count += heaps[i]->home != heaps[i];
    return count;
}

static bool is_first_of_home(size_t which) {
    for (size_t i = 0; i < which; i++)
        if (heaps[i]->home == heaps[which]->home) return false;
    return heaps[which]->home != heaps[which];
}

static size_t shared_heaps(void) {
    size_t count = 0;
    for (size_t i = 0; i < THREADS; i++) count += is_first_of_home(i);
    return count;
}

static struct heap *shared_heap(void) {
    for (size_t i = 0; i < THREADS; i++)
        if (heaps[i]->home != heaps[i]) return heaps[i]->home;
    return NULL;
}

static void share(void) {
    begin_threads(1);
    const unsigned class = size_class_of(BYTES);
    CHECK_EQ(sharing(), THREADS - 1);
    uint64_t blocks = 0, sharers = 0, taken = 0;
    for (size_t i = 0; i < THREADS; i++) {
        const struct heap *home = heaps[i]->home;
        CHECK_EQ(slabs_of(heaps[i]), 0); /* that of the first was salvaged */
        blocks += HELD + stack_held(heaps[i], class);
        if (home == heaps[i]) continue;
        CHECK_EQ(atomic_load(&home->state), HEAP_SHARED);
        for (size_t k = 0; k < HELD; k++) CHECK_EQ(page_word(page_index(kept[i][k])), heap_word(home, class));
        if (is_first_of_home(i)) {
            sharers += home->sharers;
            taken += counter_read(&home->bins[class].taken_blocks);
        }
    }
    CHECK_EQ(sharers, THREADS - 1);
    CHECK_EQ(taken, blocks);
    end_threads();
}
TEST(where_threads_are_many_they_share_slabs) { IN_CHILD(share); }

static void own(void) {
    begin_threads(THREADS);
    CHECK_EQ(sharing(), 0);
    for (size_t i = 0; i < THREADS; i++) CHECK(slabs_of(heaps[i]) != 0);
    end_threads();
}
TEST(who_has_a_processor_has_slabs) { IN_CHILD(own); }

static void in_turn(void) {
    begin_threads(1);
    CHECK_EQ(shared_heaps(), 2);
    end_threads();
}
static void each_in_turn(void) {
    begin_threads(2); /* the main thread and three more have slabs */
    CHECK_EQ(shared_heaps(), THREADS - 3);
    end_threads();
}
TEST(two_heaps_are_shared_for_each_processor) {
    IN_CHILD(in_turn);
    IN_CHILD(each_in_turn);
}

static void nobody(void) {
    begin_threads(1);
    struct heap *shared = shared_heap();
    const uint64_t slabs = sum_of_heaps().slabs;
    CHECK(slabs_of(shared) != 0);
    end_threads();
    CHECK_EQ(shared->sharers, 0);
    CHECK_EQ(atomic_load(&shared->state), HEAP_DEAD);
    CHECK(shared->parked);
    CHECK_EQ(atomic_load(&shared->inbox), 0);
    CHECK(sum_of_heaps().slabs <= slabs);
    /* What they freed and kept was freed. */
    reveal_own();
    CHECK_EQ(slabs_of(shared) + slabs_of(&commons), 0);
    CHECK_EQ(atomic_load(&shared->slab_total), 0);
}
TEST(what_everybody_freed_goes) { IN_CHILD(nobody); }

static struct heap *last_heap;
static struct heap *last_home;
static void *last_block;

static void *look_at_home(void *blocks) {
    for (size_t i = 0; i < (size_t)(uintptr_t)blocks; i++) CHECK((last_block = heap_alloc(BYTES, NULL)) != NULL);
    thread_ensure_heap();
    last_heap = thread_heap();
    last_home = last_heap->home;
    return NULL;
}

/* With two for each processor the next would have slabs of its own; it has the heap of one that shared. */
static void go_on(void) {
    begin_threads(1);
    run_thread(look_at_home, NULL);
    struct heap *const shared = last_home, *const heap = last_heap;
    CHECK(shared != heap);
    heap_settings.processors = THREADS; /* not even one for each but the last */
    run_thread(look_at_home, NULL);
    CHECK(last_heap == heap);
    CHECK(last_home == shared);
    heap_settings.processors = THREADS + 2;
    run_thread(look_at_home, NULL);
    CHECK(last_heap == heap);
    CHECK(last_home == heap);
    CHECK(!heap->shares);
    end_threads();
}
TEST(whoever_shares_goes_on) { IN_CHILD(go_on); }

/* One thread shares, and leaves some blocks in use; many others have slabs of their own. */
static struct heap *share_alone(void) {
    begin_threads(THREADS + 2);
    heap_settings.processors = 1;
    run_thread(look_at_home, (void *)(uintptr_t)3);
    CHECK(last_home != last_heap && last_home->parked);
    CHECK_EQ(slabs_of(last_home), 1);
    return last_home;
}

static void *free_one(void *block) {
    heap_free(block, NULL);
    CHECK(thread_heap() == NULL);
    return NULL;
}

static void begin_anew(void) {
    struct heap *const shared = share_alone();
    const uint64_t adopted = counter_read(&shared->bins[size_class_of(BYTES)].adopted_slabs);
    for (int i = 0; i < 10; i++) {
        run_thread(look_at_home, (void *)(uintptr_t)3);
        CHECK(last_home == shared && shared->parked);
        CHECK_EQ(slabs_of(shared), 1);
        CHECK_EQ(counter_read(&shared->bins[size_class_of(BYTES)].adopted_slabs), adopted);
    }
    const struct bin *bin = &shared->bins[size_class_of(BYTES)];
    const uint64_t taken = counter_read(&bin->taken_blocks), in_use = footprint_in_use();
    run_thread(free_one, last_block);
    CHECK_EQ(counter_read(&bin->taken_blocks), taken - 1);
    CHECK_EQ(footprint_in_use(), in_use - slab_classes[size_class_of(BYTES)].block_bytes);
    thread_retire_parked(shared);
    CHECK(!shared->parked);
    CHECK_EQ(atomic_load(&shared->slab_total), 0);
    run_thread(look_at_home, NULL);
    CHECK(last_home == shared);
    end_threads();
}
TEST(what_nobody_shares_waits) { IN_CHILD(begin_anew); }

static void lack_some(void) {
    struct heap *const shared = share_alone();
    CHECK(!salvage_slab(size_class_of(60000)));
    CHECK(salvage_slab(size_class_of(BYTES)));
    CHECK_EQ(slabs_of(shared), 0);
    CHECK_EQ(slabs_of(&commons), 1);
    end_threads();
}
TEST(others_take_what_nobody_shares) { IN_CHILD(lack_some); }

static void change(void) {
    begin_threads(THREADS + 2);
    run_thread(look_at_home, (void *)(uintptr_t)3); /* they stay in use */
    struct heap *const heap = last_heap;
    CHECK(last_home == heap);
    CHECK_EQ(slabs_of(heap), 1);
    heap_settings.processors = 1;
    run_thread(look_at_home, NULL);
    CHECK(last_heap == heap && last_home != heap);
    CHECK_EQ(slabs_of(heap), 0);
    CHECK_EQ(stack_held(heap, size_class_of(BYTES)), 0);
    CHECK_EQ(slabs_of(&commons), 1);
    end_threads();
}
TEST(whoever_gets_other_slabs_gives_back_what_he_kept) { IN_CHILD(change); }

static void *keep_much(void *unused) {
    do CHECK((last_block = heap_alloc(BYTES, NULL)) != NULL);
    while (atomic_load(&thread_heap()->slab_total) <= HAND_OVER_SLABS);
    last_heap = thread_heap();
    return unused;
}

static void change_with_much(void) {
    begin_threads(THREADS + 2);
    run_thread(keep_much, NULL);
    struct heap *const heap = last_heap;
    heap_settings.processors = 1;
    run_thread(look_at_home, NULL);
    CHECK(last_heap == heap && last_home == heap);
    CHECK(slabs_of(heap) > HAND_OVER_SLABS);
    end_threads();
}
/* A thread's first operation would take as long as there are slabs. */
TEST(whoever_would_give_back_much_keeps_it) { IN_CHILD(change_with_much); }

enum { USED = 14 };
static size_t held_after[USED];

static void *use_some(void *argument) {
    (void)argument;
    for (size_t i = 0; i < USED; i++) {
        CHECK(heap_alloc(BYTES, NULL) != NULL);
        held_after[i] = stack_held(thread_heap(), size_class_of(BYTES));
    }
    last_home = thread_heap()->home;
    last_heap = thread_heap();
    return NULL;
}

/* In a heap that nobody had before: blocks come by two, four and so on, or by half the depth at once. */
static void begin_sharing(void) {
    begin_threads(1);
    run_thread(use_some, NULL);
    CHECK(last_home != last_heap);
    CHECK(held_after[0] == 1 && held_after[1] == 0 && held_after[2] == 3 && held_after[5] == 0 && held_after[6] == 7 && held_after[13] == 0);
    end_threads();
}
static void begin_with_slabs(void) {
    begin_threads(THREADS + 2);
    run_thread(use_some, NULL);
    CHECK(last_home == last_heap);
    CHECK_EQ(held_after[0] + 1, heap_settings.first_depths[size_class_of(BYTES)] / 2);
    end_threads();
}
TEST(whoever_shares_begins_with_few) {
    IN_CHILD(begin_sharing);
    IN_CHILD(begin_with_slabs);
}

/* As of a thread that read whose slab it was before that shared, and pushes it where it was sought then. */
static void *find_late_block(void *unused) {
    void *block = heap_alloc(BYTES, NULL);
    struct heap *const heap = thread_heap(), *const home = heap->home;
    CHECK(block != NULL && home != heap);
    const struct bin *bin = &home->bins[size_class_of(BYTES)];
    const uint64_t returned = counter_read(&bin->remote_blocks);
    remote_give(NULL, &block, 1);
    atomic_store(&heap->inbox, atomic_exchange(&home->inbox, 0));
    CHECK(remote_has_some(heap) && !remote_has_some(home));
    for (int i = 0; i < 100 && remote_has_some(heap); i++) CHECK(heap_alloc(BYTES, NULL) != NULL);
    CHECK(!remote_has_some(heap));
    reveal_own();
    CHECK_EQ(counter_read(&bin->remote_blocks), returned + 1);
    return unused;
}
static void come_late(void) {
    begin_threads(1);
    run_thread(find_late_block, NULL);
    end_threads();
}
TEST(what_comes_late_is_passed_on) { IN_CHILD(come_late); }

static void share_without_memory(void) {
    thread_ensure_heap();
    struct heap *const heap = thread_heap();
    heap_settings.processors = 0;
    fail_arm(FAIL_ANY, 1, true, ENOMEM);
    while (books_take(16) != NULL) {}
    CHECK(home_choose(heap) == heap);
    fail_disarm();
    CHECK(home_choose(heap) != heap);
}
TEST(without_memory_nobody_shares) { IN_CHILD(share_without_memory); }

static void *fill_stack(void *unused) {
    enum { MOST = 2000 };
    static void *blocks[MOST];
    const unsigned class = size_class_of(BYTES);
    for (size_t i = 0; i < MOST; i++) CHECK((blocks[i] = heap_alloc(BYTES, NULL)) != NULL);
    last_heap = thread_heap();
    size_t freed = 0;
    while (stack_has_room(last_heap, class)) heap_free(blocks[freed++], NULL);
    last_block = blocks[freed];
    return unused;
}
static void free_beside_a_full_stack(void) {
    run_thread(fill_stack, NULL);
    const unsigned class = size_class_of(BYTES);
    const uint64_t held = stack_held(last_heap, class), in_use = footprint_in_use();
    const uint64_t taken = counter_read(&last_heap->bins[class].taken_blocks);
    CHECK(last_heap->parked && held != 0 && !stack_has_room(last_heap, class));
    run_thread(free_one, last_block);
    CHECK_EQ(stack_held(last_heap, class), held);
    CHECK_EQ(counter_read(&last_heap->bins[class].taken_blocks), taken - 1);
    CHECK_EQ(footprint_in_use(), in_use - slab_classes[class].block_bytes);
}
TEST(what_does_not_fit_in_a_stack_that_waits_goes_home) { IN_CHILD(free_beside_a_full_stack); }

static void allocate_in_child(void) {
    struct heap *shared = shared_heap();
    CHECK_EQ(atomic_load(&shared->state), HEAP_SHARED);
    for (size_t i = 0; i < THREADS; i++)
        for (size_t k = 0; k < HELD; k++) heap_free(kept[i][k], NULL);
    while (thread_reap_forsaken()) {}
    remote_settle();
    CHECK_EQ(shared->sharers, 0);
    CHECK_EQ(atomic_load(&shared->state), HEAP_DEAD);
    CHECK_EQ(atomic_load(&shared->slab_total), 0); /* no heap that waits leads there */
    reveal_own();
    CHECK_EQ(slabs_of(&commons), 0);
    for (int i = 0; i < 1000; i++) CHECK(heap_alloc(BYTES, NULL) != NULL);
}
static void fork_beside(void) {
    begin_threads(1);
    IN_CHILD(allocate_in_child);
    end_threads();
}
TEST(a_child_of_threads_that_share) { IN_CHILD(fork_beside); }
