/* purge_test.c - the steps of giving back, with the time in the test's hands: which slabs are searched when, whose buffers
 * and inboxes are emptied, and what may happen while the kernel works on a hole. madvise is interposed to make it happen
 * just then. In children, since what was visited stays in the process; only there are threads started.
 *
 * Planted defects it was seen to catch:
 *   every slab is searched at once, or visited too often   a_slab_is_searched_once_it_stays_unchanged
 *   nobody sleeps, or everybody                  a_sleepers_buffer_is_emptied
 *   everything leaves the awake alone            with_everything_everybodys_is
 *   inboxes are left as they are                 a_sleepers_inbox_is_taken_in
 *   bounds stay raised                           a_sleepers_stacks_are_emptied
 *   whoever allocates only by fast paths sleeps  a_sleepers_stacks_are_emptied
 *   the lock is held across the system call      its_owner_may_end: watchdog
 *   a slab that emptied is not given back, or looked at after   all_other_blocks_may_come_back
 *   everything is only what is due               everything_at_once
 *   a step in passing has no bound               a_step_does_only_so_much
 */
#include "child.h"
#include "clock.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/purge.h"
#include "heap/thread.h"
#include "own_heap.h"

#include <sched.h>
#include <sys/mman.h>

enum { VISIT_MS = 400, BYTES = 2048, STEP_SPAN_PAGES = 512 };

static void (*while_it_is_given_back)(void);
static bool refuse_to_give;

int madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED && while_it_is_given_back != NULL) {
        void (*now)(void) = while_it_is_given_back;
        while_it_is_given_back = NULL;
        now();
    }
    if (advice == MADV_DONTNEED && refuse_to_give) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static bool step(enum purge_pace pace) { return purge_steps(pace) != PURGE_DONE; }

static bool step_after(uint64_t ms) {
    clock_pass(ms);
    return step(PURGE_DUE);
}

static struct span_counts counts_now(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts;
}

static uint64_t part_bytes(void) { return counts_now().part_bytes; }

static void decay_in(uint64_t half_life_ms) {
    span_configure(
        &(struct span_settings){.decay_half_life_ms = half_life_ms, .huge_from_pages = UINT64_MAX});
}

static void never_decay(void) { decay_in(ACE_NEVER); }

/* ---- a slab with holes ---------------------------------------------------------------------------------- */

enum { MOST_BLOCKS = 8192 };
static struct {
    unsigned class;
    uint32_t first, blocks, bytes;
    void *kept[MOST_BLOCKS]; /* every eighth, as it was taken */
    uint32_t kept_count;
} sieve;

/* A slab of HEAP's all of whose blocks were used, and of which every eighth still is. */
static void make_sieve(struct heap *heap) {
    static void *all[MOST_BLOCKS];
    sieve.class = size_class_of(BYTES);
    sieve.blocks = slab_classes[sieve.class].blocks;
    sieve.bytes = slab_classes[sieve.class].block_bytes;
    sieve.kept_count = 0;
    sieve.first = add_slab(heap, sieve.class);
    os_lock_take(&heap->lock);
    CHECK_EQ(slab_take(sieve.first, all + sieve.blocks, sieve.blocks), sieve.blocks);
    for (uint32_t i = 0; i < sieve.blocks; i++) block_fill(all[i], sieve.bytes, i);
    bin_settle(heap, sieve.first);
    for (uint32_t i = 0; i < sieve.blocks; i++) {
        if (i % 8 == 0)
            sieve.kept[sieve.kept_count++] = all[i];
        else
            bin_put(heap, &all[i], 1);
    }
    os_lock_drop(&heap->lock);
}

static void check_sieve(void) {
    for (uint32_t i = 0; i < sieve.kept_count; i++)
        CHECK_AT(block_holds(sieve.kept[i], sieve.bytes, i * 8), i);
    CHECK_EQ(slab_at(sieve.first)->free, sieve.blocks - sieve.kept_count);
    uint32_t bits = 0;
    for (uint32_t word = 0; word * 64 < sieve.blocks; word++)
        bits += (uint32_t)__builtin_popcountll(slab_at(sieve.first)->bits[word]);
    CHECK_EQ(bits + sieve.blocks - slab_at(sieve.first)->carved, slab_at(sieve.first)->free);
}

/* All that was kept comes back: the slab goes. */
static void give_sieve(struct heap *owner) {
    check_sieve();
    CHECK(atomic_load(&slab_at(sieve.first)->owner) == owner);
    CHECK_EQ(owner->bins[sieve.class].slabs[slab_at(sieve.first)->bucket], sieve.first); /* in its list */
    os_lock_take(&owner->lock);
    bin_put(owner, sieve.kept, sieve.kept_count);
    os_lock_drop(&owner->lock);
    CHECK_EQ(page_word(sieve.first), WORD_NONE);
}

static void touch(struct heap *heap) {
    void *block;
    os_lock_take(&heap->lock);
    CHECK_EQ(slab_take(sieve.first, &block + 1, 1), 1);
    CHECK_EQ(slab_put(sieve.first, &block, 1), 1);
    os_lock_drop(&heap->lock);
}

static uint64_t purges(void) { return atomic_load(&os_counters.calls[OS_CALL_MADVISE_FREE]); }

static void search_when_quiet(void) {
    struct heap *heap = make_heap(HEAP_LIVE);
    decay_in(VISIT_MS / 4);                /* a slab is ripe after four half-lives, that is one visit */
    while (step_after(VISIT_MS)) continue; /* what was there before */
    make_sieve(heap);
    uint64_t before = part_bytes();
    CHECK(step_after(VISIT_MS)); /* it has changed */
    for (int i = 0; i < 5; i++) {
        touch(heap);
        CHECK(step_after(VISIT_MS)); /* and does so all the time */
        CHECK(step_after(VISIT_MS - 1));
        CHECK(step_after(0));
        CHECK_EQ(part_bytes(), before);
        clock_pass(1);
    }
    CHECK(step_after(VISIT_MS)); /* once unchanged */
    CHECK(part_bytes() > before);
    check_sieve();
    uint64_t given = part_bytes() - before;
    CHECK(given >= (size_t)sieve.blocks * sieve.bytes / 8);
    for (int i = 0; i < 9; i++) step_after(VISIT_MS);
    CHECK_EQ(part_bytes() - before, given); /* what was searched is not searched again */
    CHECK(!step_after(VISIT_MS));
    touch(heap);
    step_after(VISIT_MS);
    CHECK_EQ(part_bytes() - before, given);
    step_after(VISIT_MS);
    CHECK(part_bytes() - before > given); /* until it changes */
    give_sieve(heap);
}

TEST(a_slab_is_searched_once_it_stays_unchanged) { IN_CHILD(search_when_quiet); }

static void purge_all(void) {
    struct heap *heap = make_heap(HEAP_LIVE);
    never_decay();
    make_sieve(heap);
    uint32_t span = span_take(700, 1, false);
    memset(page_address(span), 'x', 700 * PAGE_BYTES);
    span_give(span);
    footprint_add((int64_t)MIB(100));
    footprint_add(-(int64_t)MIB(90));
    CHECK(footprint_returnable() >= MIB(90));
    uint64_t before = part_bytes();
    step(PURGE_ALL);
    CHECK(part_bytes() > before);
    CHECK_EQ(counts_now().dirty_pages, 0);
    check_sieve();
    uint64_t calls = purges();
    CHECK(!step_after(VISIT_MS)); /* nothing is left */
    CHECK_EQ(footprint_returnable(), 0);
    CHECK_EQ(purges(), calls);
    footprint_add(-(int64_t)MIB(10));
    give_sieve(heap);
}

TEST(everything_at_once) { IN_CHILD(purge_all); }

/* In passing only so much at a time. */
static void purge_short(void) {
    decay_in(100);
    uint32_t span = span_take(5000, 1, false);
    memset(page_address(span), 'x', 5000 * PAGE_BYTES);
    step_after(VISIT_MS);
    span_give(span);
    uint64_t dirty = counts_now().dirty_pages;
    clock_pass(1000000);
    for (int i = 0; i < 5; i++) {
        span_purging_lock();
        CHECK_EQ(purge_step(PURGE_DUE), PURGE_MORE);
        span_purging_unlock();
        CHECK_EQ(dirty - counts_now().dirty_pages, STEP_SPAN_PAGES);
        dirty -= STEP_SPAN_PAGES;
    }
    step_after(1000000);
    step_after(1000000);
    CHECK_EQ(span_dirty_left(), 0);
}

TEST(a_step_does_only_so_much) { IN_CHILD(purge_short); }

/* ---- sleepers: their stacks ------------------------------------------------------------------------------- */

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
            CHECK((blocks[i] = heap_alloc(bytes)) != NULL);
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
    if (!os_barrier_others()) return;
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

static void rob_without_barrier(void) {
    struct heap *heap;
    never_decay();
    heap_free(heap_alloc(100), NULL);
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

/* ---- sleepers: their buffers ------------------------------------------------------------------------------ */

enum { GIVEN = 50 };
static void *given[GIVEN];
static struct heap *_Atomic theirs;
static atomic_int says, may; /* how far the other thread is, and may go */

static void reach(int point) {
    atomic_store(&says, point);
    while (atomic_load(&may) < point) sched_yield();
}

static void let_reach(int point) {
    atomic_store(&may, point - 1);
    while (atomic_load(&says) < point) sched_yield();
}

static void *free_and_sleep(void *unused) {
    heap_free(heap_alloc(100), NULL);
    atomic_store(&theirs, thread_heap());
    for (size_t i = 0; i < GIVEN; i++) heap_free(given[i], NULL);
    reach(1);
    for (int i = 0; i < 3; i++) heap_free(heap_alloc(MIB(1)), NULL); /* some slow paths */
    reach(2);
    return unused;
}

static uint32_t waiting(void) { return atomic_load(&atomic_load(&theirs)->remote_count); }

/* A slab of the heap MINE whose blocks wait in the buffer of a sleeper; 0 where nobody can take them out. */
static uint32_t fill_buffer(struct heap *mine, pthread_t *owner) {
    never_decay();
    if (!os_barrier_others()) return 0;
    uint32_t first = add_slab(mine, 20);
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
    if (first == 0) return;
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
    for (size_t i = 0; i < GIVEN; i++) CHECK((given[i] = heap_alloc(5000)) != NULL);
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
    uint32_t slabs = heap->bins[size_class_of(5000)].slab_count;
    uint64_t used = counts_now().used_pages;
    remote_give(given, GIVEN);
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

/* ---- while the kernel works on a hole ----------------------------------------------------------------------- */

static struct heap *sieve_heap;
static int happened;

static void hand_over(void) {
    happened++;
    os_lock_take(&sieve_heap->lock);
    atomic_store(&sieve_heap->state, HEAP_DEAD);
    bin_hand_over(sieve_heap);
    os_lock_drop(&sieve_heap->lock);
}

static void give_what_was_kept(void) {
    happened++;
    os_lock_take(&sieve_heap->lock);
    bin_put(sieve_heap, sieve.kept, sieve.kept_count);
    os_lock_drop(&sieve_heap->lock);
    CHECK(page_word(sieve.first) != WORD_NONE); /* the hole's blocks are out */
}

static void adopt(void) {
    happened++;
    os_lock_take(&sieve_heap->lock);
    CHECK(bin_adopt(sieve_heap, sieve.class));
    os_lock_drop(&sieve_heap->lock);
}

static void leave_between(void) {
    never_decay();
    make_sieve(sieve_heap = make_heap(HEAP_LIVE));
    while_it_is_given_back = hand_over;
    step(PURGE_ALL);
    CHECK_EQ(happened, 1);
    give_sieve(&commons);
}

static void adopt_between(void) {
    never_decay();
    make_sieve(&commons);
    sieve_heap = make_heap(HEAP_LIVE);
    while_it_is_given_back = adopt;
    step(PURGE_ALL);
    CHECK_EQ(happened, 1);
    give_sieve(sieve_heap);
}

/* The last blocks in use come back meanwhile: then the slab goes when the hole is done. */
static void empty_between(void) {
    never_decay();
    make_sieve(sieve_heap = make_heap(HEAP_LIVE));
    uint64_t used = counts_now().used_pages;
    while_it_is_given_back = give_what_was_kept;
    step(PURGE_ALL);
    CHECK_EQ(happened, 1);
    CHECK_EQ(page_word(sieve.first), WORD_NONE);
    CHECK_EQ(used - counts_now().used_pages, slab_classes[sieve.class].pages);
    CHECK_EQ(sieve_heap->bins[sieve.class].slab_count, 0);
    CHECK_EQ(counts_now().dirty_pages, 0); /* and its pages went after it */
}

static void refuse_holes(void) {
    never_decay();
    make_sieve(sieve_heap = make_heap(HEAP_LIVE));
    uint64_t before = part_bytes();
    refuse_to_give = true;
    step(PURGE_ALL);
    refuse_to_give = false;
    CHECK_EQ(part_bytes(), before);
    give_sieve(sieve_heap);
}

TEST(its_owner_may_end) { IN_CHILD(leave_between); }
TEST(another_may_adopt_the_slab) { IN_CHILD(adopt_between); }
TEST(all_other_blocks_may_come_back) { IN_CHILD(empty_between); }
TEST(the_kernel_may_refuse) { IN_CHILD(refuse_holes); }

/* Then the tail of a slab of dirty pages is not said to be zero. */
static void refuse_a_tail(void) {
    static void *blocks[MOST_BLOCKS];
    never_decay();
    uint32_t span = span_take(64, 1, false);
    memset(page_address(span), 'x', 64 * PAGE_BYTES);
    span_give(span);
    struct heap *heap = make_heap(HEAP_LIVE);
    uint32_t first = add_slab(heap, size_class_of(BYTES));
    uint32_t of_a_page = (uint32_t)os_page_bytes() / BYTES; /* so that the tail begins with a page */
    CHECK_EQ(slab_take(first, blocks + of_a_page, of_a_page), of_a_page);
    bin_settle(heap, first);
    CHECK(!slab_at(first)->span.zero);
    for (int i = 0; i < 2; i++) { /* refused, and then not */
        refuse_to_give = i == 0;
        step(PURGE_ALL);
        CHECK_EQ(slab_next_is_zero(first), i == 1);
        if (i == 0)
            CHECK_EQ(slab_take(first, blocks + of_a_page, of_a_page), of_a_page); /* it changed: once more */
    }
    CHECK_EQ(slab_take(first, blocks + 1, 1), 1);
    CHECK(block_is_zero(blocks[0], BYTES));
}

TEST(a_refused_tail_is_not_zero) { IN_CHILD(refuse_a_tail); }

static pthread_t leaver;

static void *make_sieve_and_end(void *unused) {
    heap_free(heap_alloc(100), NULL);
    atomic_store(&theirs, thread_heap());
    make_sieve(thread_heap());
    reach(1);
    return unused;
}

static void end_thread(void) {
    happened++;
    atomic_store(&may, 1);
    CHECK_EQ(pthread_join(leaver, NULL), 0);
}

static void exit_between(void) {
    never_decay();
    CHECK_EQ(pthread_create(&leaver, NULL, make_sieve_and_end, NULL), 0);
    let_reach(1);
    while_it_is_given_back = end_thread;
    step(PURGE_ALL);
    CHECK_EQ(happened, 1);
    CHECK_EQ(atomic_load(&atomic_load(&theirs)->state), HEAP_DEAD);
    give_sieve(&commons);
}

TEST(its_thread_may_end) { IN_CHILD(exit_between); }
