/* purge_test.c - the steps of giving back, with the time in the test's hands: which slabs are searched when, and what may
 * happen while the kernel works on a hole. madvise is interposed to make it happen just then. In children, since what was
 * visited stays in the process; only there are threads started. What others do for sleepers: purge_sleepers_test.c.
 *
 * Planted defects it was seen to catch:
 *   every slab is searched at once, or visited too often   a_slab_is_searched_once_it_stays_unchanged
 *   the lock is held across the system call      its_owner_may_end: watchdog
 *   a slab that emptied is not given back, or looked at after   all_other_blocks_may_come_back
 *   everything is only what is due               everything_at_once
 *   a program that gives all back passes for asleep   what_was_learned_outlasts_it
 *   a step in passing has no bound               a_step_does_only_so_much
 *   whoever gives all back works for those who free meanwhile   what_others_free_meanwhile_is_not_waited_for
 *   a search mends nothing                       what_is_in_use_again_is_mended
 *   what the caller's stacks held counts as in use   what_was_collected_is_not_in_use
 */
#include "child.h"
#include "clock.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/purge.h"
#include "heap/thread.h"
#include "in_use.h"
#include "os_counts.h"
#include "own_heap.h"
#include "purge_steps.h"

#include <sys/mman.h>

enum { BYTES = 2048, STEP_SPAN_PAGES = 512 };

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

static uint64_t part_bytes(void) { return counts_now().part_bytes; }

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

static uint64_t purges(void) { return calls_of(OS_CALL_MADVISE_FREE); }

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
    uint32_t span = span_take(700, 1, ACE_SPARSE);
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

static uint32_t use_pages(void) {
    enum { PAGES = 700 };
    const uint32_t span = span_take(PAGES, 1, ACE_SPARSE);
    memset(page_address(span), 'x', PAGES * PAGE_BYTES);
    return span;
}

/* What was returned because the program asked for it, and is used again soon, was returned too soon. */
static void learn_after_all(void) {
    decay_in(500);
    step_after(VISIT_MS); /* time begins */
    for (size_t bytes = 16; bytes < KIB(8); bytes *= 2) hak_free(hak_malloc(bytes)); /* and work */
    span_give(use_pages());
    step(PURGE_ALL);
    use_pages();
    step_after(VISIT_MS / 2);
    CHECK_EQ(counts_now().half_life_ms, 2000);
    step(PURGE_ALL);
    step_after(VISIT_MS / 2);
    CHECK_EQ(counts_now().half_life_ms, 2000);
}

TEST(what_was_learned_outlasts_it) { IN_CHILD(learn_after_all); }

enum { SPANS = 8, SPAN_PAGES = 700 };
static uint32_t spans_of_others[SPANS];
static int given_meanwhile;

static void give_one_more(void) {
    span_give(spans_of_others[given_meanwhile++]);
    if (given_meanwhile < SPANS) while_it_is_given_back = give_one_more;
}

static void purge_beside_others(void) {
    never_decay();
    for (int i = 0; i < SPANS; i++) CHECK((spans_of_others[i] = span_take(SPAN_PAGES, 1, ACE_SPARSE)) != 0);
    step(PURGE_ALL);
    give_one_more();
    const struct span_counts before = counts_now();
    step(PURGE_ALL);
    CHECK_EQ(counts_now().returned_pages - before.returned_pages, before.dirty_pages);
    CHECK(given_meanwhile > 1 && given_meanwhile < SPANS);
    step(PURGE_ALL);
    CHECK(counts_now().returned_pages - before.returned_pages >= 2 * before.dirty_pages); /* it goes the next time */
}

TEST(what_others_free_meanwhile_is_not_waited_for) { IN_CHILD(purge_beside_others); }

/* In passing only so much at a time. */
static void purge_short(void) {
    decay_in(100);
    uint32_t span = span_take(5000, 1, ACE_SPARSE);
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

/* ---- huge pages ------------------------------------------------------------------------------------------ */

enum { LONG_MS = 60 * 1000 }; /* the process sleeps */

static void decay_with_huge_pages(void) {
    span_configure(&(struct span_settings){.decay_half_life_ms = VISIT_MS / 4, .huge_from_pages = 0});
}

/* A slab with a huge page behind it, all of it in use: its blocks. */
static void **take_huge_slab(struct heap *heap, uint32_t *first, uint32_t *count) {
    static void *all[MOST_BLOCKS];
    const unsigned class = size_class_of(BYTES);
    do *first = add_slab_of(heap, class, true);
    while (!span_may_be_huge(*first));
    *count = slab_classes[class].blocks;
    os_lock_take(&heap->lock);
    CHECK_EQ(slab_take(*first, all + *count, *count), *count);
    bin_settle(heap, *first);
    os_lock_drop(&heap->lock);
    for (uint32_t i = 0; i < *count; i++) memset(all[i], 1, BYTES);
    return all;
}

static void put_back(struct heap *heap, void **blocks, uint32_t count) {
    os_lock_take(&heap->lock);
    bin_put(heap, blocks, count);
    os_lock_drop(&heap->lock);
}

static void rest(void) {
    for (int i = 0; i < 20; i++) step_after(LONG_MS);
}

static void mend_after_a_rest(void) {
    struct heap *heap = make_heap(HEAP_LIVE);
    decay_with_huge_pages();
    uint32_t first, count;
    void **blocks = take_huge_slab(heap, &first, &count);
    put_back(heap, blocks, count / 2);
    rest();
    CHECK(!span_may_be_huge(first));
    os_lock_take(&heap->lock);
    CHECK_EQ(slab_take(first, blocks + count / 2, count / 2), count / 2);
    bin_settle(heap, first);
    os_lock_drop(&heap->lock);
    for (uint32_t i = 0; i < count; i++) memset(blocks[i], 1, BYTES);
    while (page_chunk(first)->used != UINT32_MAX) {
        const uint32_t span = span_take(1, 1, ACE_DENSE);
        CHECK(span != 0);
        memset(page_address(span), 1, PAGE_BYTES);
    }
    for (int i = 0; i < 8; i++) step_after(VISIT_MS);
    CHECK(span_may_be_huge(first));
}

TEST(what_is_in_use_again_is_mended) { IN_CHILD(mend_after_a_rest); }

/* ---- while the kernel works on a hole ----------------------------------------------------------------------- */

static struct heap *sieve_heap;
static int happened;

static void hand_over(void) {
    happened++;
    os_lock_take(&sieve_heap->lock);
    atomic_store(&sieve_heap->state, HEAP_DEAD);
    bin_hand_over(sieve_heap, UINT32_MAX);
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
    CHECK_EQ(counts_now().dirty_pages, 0); /* and its pages went after it, as if they had been free before */
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
    uint32_t span = span_take(64, 1, ACE_SPARSE);
    memset(page_address(span), 'x', 64 * PAGE_BYTES);
    span_give(span);
    struct heap *heap = make_heap(HEAP_LIVE);
    uint32_t first = add_slab(heap, ALIGNED_CLASS + 3);
    CHECK_EQ(slab_classes[ALIGNED_CLASS + 3].block_bytes, BYTES);
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
    heap_free(heap_alloc(100, NULL), NULL);
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
    CHECK(atomic_load(&theirs)->parked);
    give_sieve(atomic_load(&theirs));
}

TEST(its_thread_may_end) { IN_CHILD(exit_between); }

/* ---- on request ------------------------------------------------------------------------------------------- */

static void collect_own(void) {
    enum { COUNT = 64 };
    void *blocks[COUNT];
    never_decay();
    heap_free(heap_alloc(BYTES, NULL), NULL);
    heap_collect();
    struct heap *heap = thread_heap();
    const uint64_t in_use = told_in_use(heap);
    for (size_t i = 0; i < COUNT; i++) CHECK((blocks[i] = heap_alloc(BYTES, NULL)) != NULL);
    CHECK(told_in_use(heap) >= in_use + COUNT * BYTES);
    for (size_t i = 0; i < COUNT; i++) heap_free(blocks[i], NULL);
    heap_collect();
    CHECK_EQ(footprint_in_use(), in_use);
    CHECK_EQ(footprint_returnable(), 0);
}

TEST(what_was_collected_is_not_in_use) { IN_CHILD(collect_own); }
