/* stack_test.c - the stacks of a heap of the test's own: what a spill keeps, how deep they get, and what
 * bounds them. What idle ones give back: stack_idle_test.c.
 *
 * Planted defects it was seen to catch:
 *   a spill gives the newest half                a_spill_gives_the_older_half
 *   of medium blocks, too, it gives half         of_medium_blocks_a_spill_gives_the_oldest
 *   a stack that may hold none takes one         of_medium_blocks_a_spill_gives_the_oldest
 *   growing loses the blocks                     swings_deepen_a_stack
 *   the budget is not looked at                  a_thread_keeps_to_its_budget
 *   medium blocks have none of their own         a_thread_keeps_to_that_of_medium_blocks
 *   a bin that shrinks keeps its blocks          a_thread_keeps_to_its_budget
 *   bins that miss keep what a greater budget gave  bins_in_use_give_where_the_budget_fell
 *   a fixed depth is not counted                 a_fixed_depth_is_bounded
 *   outgrown stacks are not given to the pool    outgrown_stacks_are_used_again
 *   of a stack of the pool a part is used        swings_deepen_a_stack
 *   many bins that miss in turns rob each other  many_bins_in_use_leave_each_other_alone
 *   a medium bin gives half                      a_medium_bin_gives_a_quarter
 *   a budget below the first depths is in vain   below_the_first_depths_all_that_was_deepened_is_given
 *   whoever asks counts what it has as others'   nobody_gives_for_what_does_not_fit
 *   what the last gives comes too late           the_last_that_gives_is_not_in_vain
 *   who gave depth has it back at once           who_gave_depth_must_miss_again_for_it
 *   what was loaded long ago counts              what_was_loaded_long_ago_is_forgotten
 */
#include "ace/depth.h"
#include "ace/budget.h"
#include "base/bits.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "own_stacks.h"

TEST(a_new_heap_has_empty_stacks) {
    struct heap *heap = make_heap(HEAP_DEAD);
    size_t slots = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        check_stack(heap, class);
        CHECK_EQ(stack_held(heap, class), 0);
        CHECK_EQ(heap->bins[class].depth, ace_depth_first(bytes_of(class), ACE_BALANCED));
        CHECK(heap->bins[class].stack == heap->first_stacks + slots); /* none lies over another */
        slots += heap->bins[class].capacity;
    }
    CHECK_EQ(slots, stack_first_slots());
}

/* A stack of COUNT blocks, the oldest first, is full and stays as deep; one more is freed: of the others the newest KEPT stay. */
static void check_spill(struct heap *heap, unsigned class, uint32_t count, size_t kept) {
    struct bin *bin = &heap->bins[class];
    void *blocks[64], *more;
    CHECK(count < 64 && count <= bin->capacity);
    bin->depth = bin->most = count;
    stack_set(heap, class, bin->stack, bin->stack);
    push(heap, class, count);
    memcpy(blocks, bin->bottom, count * sizeof *blocks);
    bool zero;
    while (bin_fill(heap, class, &more + 1, 1, &zero) == 0) add_slab(heap, class);
    blocks[count] = more;
    stack_push_beyond(heap, class, more);
    check_stack(heap, class);
    CHECK_EQ(stack_held(heap, class), kept + 1);
    CHECK(memcmp(bin->bottom, blocks + count - kept, (kept + 1) * sizeof *blocks) == 0);
    CHECK(bin->bottom == bin->stack);
    CHECK_EQ(blocks_out(heap, class), kept + 1);
    stack_empty(heap, class);
    CHECK_EQ(stack_held(heap, class), 0);
    CHECK_EQ(blocks_out(heap, class), 0);
}

TEST(a_spill_gives_the_older_half) {
    struct heap *heap = make_heap(HEAP_DEAD);
    for (unsigned class = 0; class < SMALL_CLASSES; class += 3)
        for (uint32_t count = heap->bins[class].depth; count > 0; count--) check_spill(heap, class, count, count / 2);
}

TEST(of_medium_blocks_a_spill_gives_the_oldest) {
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) {
        struct heap *heap = make_heap(HEAP_DEAD);
        void *block;
        bool zero;
        add_slab(heap, class);
        CHECK_EQ(bin_fill(heap, class, &block + 1, 1, &zero), 1);
        stack_push_beyond(heap, class, block); /* it may hold none */
        check_stack(heap, class);
        CHECK_EQ(stack_held(heap, class), 0);
        CHECK_EQ(heap->bins[class].slab_count, 0);
        adapt(heap, class, SWING, SWING);
        CHECK_AT(heap->bins[class].depth == 1 && heap->bins[class].capacity >= 8, class);
        for (uint32_t count = 8; count > 0; count--) check_spill(heap, class, count, count - 1);
    }
}

TEST(swings_deepen_a_stack) {
    use_much();
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct heap *heap = make_heap(HEAP_DEAD); /* of its own: the budget is not for all of them */
        struct bin *bin = &heap->bins[class];
        uint32_t most = ace_depth_most(bytes_of(class), ACE_BALANCED);
        heap_settings.thread_cache_bytes = GIB(1);
        for (uint32_t misses = 0; bin->depth < most; misses++) {
            CHECK_AT(misses < 20, class);
            uint32_t depth = bin->depth;
            push(heap, class, depth - stack_held(heap, class));
            void *oldest = depth != 0 ? *bin->bottom : NULL, *newest = depth != 0 ? stack_top(heap, class)[-1] : NULL;
            adapt(heap, class, 2, 0);
            CHECK_EQ(bin->depth, depth); /* two refills say nothing */
            adapt(heap, class, SWING - 2, SWING);
            CHECK_EQ(bin->depth, min_u32(class_is_medium(class) ? depth + depth / 4 + 1 : depth * 2, most));
            CHECK_EQ(bin->recent_refills + bin->recent_spills, 0);
            CHECK_EQ(stack_held(heap, class), depth);
            CHECK(depth == 0 || (*bin->bottom == oldest && stack_top(heap, class)[-1] == newest));
        }
        stack_empty(heap, class);
        check_stack(heap, class);
    }
    use_little();
}

/* A stack that cannot grow stays as it is, with its blocks, and asks again after as many misses. */
static void grow_without_memory(void) {
    enum { HEAPS = 60, CLASS = 3 };
    struct heap *heaps[HEAPS];
    size_t refused = 0;
    heap_settings.thread_cache_bytes = GIB(1);
    for (size_t i = 0; i < HEAPS; i++) {
        heaps[i] = make_heap(HEAP_DEAD);
        push(heaps[i], CLASS, 8);
    }
    fail_arm(FAIL_ANY, 1, true, 0);
    for (int round = 0; round < 12; round++) {
        for (size_t i = 0; i < HEAPS; i++) {
            struct bin *bin = &heaps[i]->bins[CLASS];
            uint32_t depth = bin->depth;
            void *oldest = *bin->bottom, *newest = stack_top(heaps[i], CLASS)[-1];
            if (depth == bin->most) continue;
            adapt(heaps[i], CLASS, SWING, SWING);
            refused += bin->depth == depth;
            CHECK_EQ(bin->recent_refills + bin->recent_spills, 0);
            CHECK_EQ(stack_held(heaps[i], CLASS), 8);
            CHECK(*bin->bottom == oldest && stack_top(heaps[i], CLASS)[-1] == newest);
        }
    }
    fail_disarm();
    CHECK(refused > 0);
    for (size_t i = 0; i < HEAPS; i++)
        while (heaps[i]->bins[CLASS].depth < heaps[i]->bins[CLASS].most) adapt(heaps[i], CLASS, SWING, SWING);
}

TEST(without_memory_a_stack_stays) { IN_CHILD(grow_without_memory); }

static size_t counted_bytes(const struct heap *heap, bool medium) {
    size_t sum = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        if (heap->bins[class].counted && class_is_medium(class) == medium) sum += heap->bins[class].depth * bytes_of(class);
    return sum;
}

/* Bins of CLASSES classes at a time, PARTS times, the first of them FIRST, want more than BUDGET. */
static void keep_to(size_t budget, unsigned first, unsigned classes, unsigned parts) {
    struct heap *heap = make_heap(HEAP_DEAD);
    const bool medium = class_is_medium(first);
    const counter *const bytes = medium ? &heap->medium_depth.bytes : &heap->small_depth.bytes;
    struct rng rng = {check_now.seed + budget};
    uint32_t grown = 0, shrunk = 0;
    const size_t count = check_count(20000);
    for (size_t i = 0; i < count; i++) {
        unsigned class = first + (unsigned)rng_below(&rng, classes) + (unsigned)(i * 2 * parts / count % parts) * classes;
        uint32_t depth[SIZE_CLASSES];
        for (unsigned c = 0; c < SIZE_CLASSES; c++) depth[c] = heap->bins[c].depth;
        if (stack_has_room(heap, class)) push(heap, class, 1);
        adapt(heap, class, SWING, SWING);
        CHECK_EQ(counter_read(&heap->small_depth.bytes), counted_bytes(heap, false));
        CHECK_EQ(counter_read(&heap->medium_depth.bytes), counted_bytes(heap, true));
        bool grew = heap->bins[class].depth > depth[class];
        grown += grew;
        CHECK(!grew || counter_read(bytes) <= budget);
        for (unsigned c = 0; c < SIZE_CLASSES; c++) {
            if (c != class) CHECK_AT(heap->bins[c].depth <= depth[c], c);
            shrunk += heap->bins[c].depth < depth[c];
            CHECK_AT(heap->bins[c].depth >= ace_depth_first(bytes_of(c), ACE_BALANCED), c);
            check_stack(heap, c);
            if (i % 64 == 0) CHECK_AT(blocks_out(heap, c) == stack_held(heap, c), c);
        }
    }
    CHECK_AT(grown > 2 * parts && shrunk > 0, shrunk); /* it was the budget that decided */
}

TEST(a_thread_keeps_to_its_budget) {
    const size_t budgets[] = {KIB(64), KIB(512), MIB(2)};
    for (size_t b = 0; b < 3; b++) {
        heap_settings.thread_cache_bytes = budgets[b];
        keep_to(budgets[b], 0, 12, 5);
    }
    heap_settings.thread_cache_bytes = MIB(2);
}

TEST(a_thread_keeps_to_that_of_medium_blocks) {
    const size_t budgets[] = {KIB(512), MIB(2), MIB(16)};
    use_much();
    for (size_t b = 0; b < 3; b++) {
        heap_settings.thread_cache_bytes = budgets[b] / 2; /* this thread is alone: it may have twice as much */
        keep_to(budgets[b], SMALL_CLASSES, 5, 2);
    }
    use_little();
    heap_settings.thread_cache_bytes = MIB(2);
}

/* What adapt changes: of how many bins the depth. */
static uint64_t changed_by(struct heap *heap, unsigned class, uint32_t refills, uint32_t spills) {
    uint32_t before[SIZE_CLASSES];
    uint64_t changes = 0;
    for (unsigned c = 0; c < SIZE_CLASSES; c++) before[c] = heap->bins[c].depth;
    adapt(heap, class, refills, spills);
    for (unsigned c = 0; c < SIZE_CLASSES; c++) changes += heap->bins[c].depth != before[c];
    return changes;
}

/* Eight bins that are all in use want twice of what there is: some get it, and it stays. */
TEST(bins_in_use_leave_each_other_alone) {
    enum { BINS = 8, SETTLE = 2000, MISSES = 20000 };
    struct heap *heap = make_heap(HEAP_DEAD);
    struct rng rng = {check_now.seed};
    uint64_t changes = 0;
    heap_settings.thread_cache_bytes = MIB(1);
    for (size_t i = 0; i < SETTLE + MISSES; i++) {
        const unsigned class = size_class_of(KIB(1)) + (unsigned)rng_below(&rng, BINS);
        const bool spill = rng_below(&rng, 2);
        if (spill && stack_has_room(heap, class)) push(heap, class, 1);
        const uint64_t changed = changed_by(heap, class, !spill, spill);
        if (i >= SETTLE) changes += changed;
    }
    CHECK(counter_read(&heap->small_depth.bytes) > MIB(1) / 2);
    CHECK_AT(changes < MISSES / 20, changes);
    heap_settings.thread_cache_bytes = MIB(2);
}

/* The more there are, the more often the others ask between two misses of one. */
TEST(many_bins_in_use_leave_each_other_alone) {
    enum { BINS = 24, TURNS = 1000, SETTLE = 200 };
    struct heap *heap = make_heap(HEAP_DEAD);
    uint64_t changes = 0;
    heap_settings.thread_cache_bytes = MIB(1);
    for (size_t turn = 0; turn < TURNS; turn++)
        for (unsigned class = size_class_of(512); class < size_class_of(512) + BINS; class++) {
            const uint64_t changed = changed_by(heap, class, 1, 0);
            if (turn >= SETTLE) changes += changed;
        }
    CHECK(counter_read(&heap->small_depth.bytes) > MIB(1) / 2);
    CHECK_EQ(changes, 0);
    heap_settings.thread_cache_bytes = MIB(2);
}

/* So does a medium one, until the others asked 128 times since it missed: then it gives a quarter. */
TEST(a_medium_bin_gives_a_quarter) {
    enum { GIVES = SMALL_CLASSES, ASKS = SMALL_CLASSES + 2, IDLE = 128 };
    struct heap *heap = make_heap(HEAP_DEAD);
    heap_settings.thread_cache_bytes = MIB(1); /* this thread is alone: it may have twice as much */
    for (int i = 0; i < 20; i++) adapt(heap, GIVES, SWING, SWING);
    CHECK_EQ(heap->bins[GIVES].depth, 14); /* of 128 KiB; with 18 it would be too much */
    adapt(heap, ASKS, SWING, SWING);
    for (int round = 0; round < 2; round++) {
        adapt(heap, GIVES, 1, 0);
        for (int i = 0; i < IDLE; i++) {
            adapt(heap, ASKS, SWING, SWING);
            CHECK_EQ(heap->bins[GIVES].depth, 14);
            CHECK_EQ(heap->bins[ASKS].depth, 1);
        }
    }
    adapt(heap, ASKS, SWING, SWING);
    CHECK_EQ(heap->bins[GIVES].depth, 10);
    CHECK_EQ(heap->bins[ASKS].depth, 2);
    heap_settings.thread_cache_bytes = MIB(2);
}

/* Where it falls to less than half, bins give though they miss. */
TEST(bins_in_use_give_where_the_budget_fell) {
    enum { BINS = 3 };
    struct heap *heap = make_heap(HEAP_DEAD);
    const unsigned first = size_class_of(KIB(512));
    heap_settings.thread_cache_bytes = MIB(16);
    for (int i = 0; i < 10; i++)
        for (unsigned class = first; class < first + BINS; class++) adapt(heap, class, SWING, SWING);
    CHECK(counter_read(&heap->medium_depth.bytes) > MIB(16));
    heap_settings.thread_cache_bytes = MIB(1); /* the only thread may have twice as much */
    for (int i = 0; i < 8; i++) {
        for (unsigned class = first; class < first + BINS; class++) adapt(heap, class, 1, 0);
        stack_fit_budget(heap);
    }
    CHECK_AT(counter_read(&heap->medium_depth.bytes) <= 2 * MIB(2), counter_read(&heap->medium_depth.bytes));
    heap_settings.thread_cache_bytes = MIB(2);
}

/* Four first blocks of each of the largest sizes are more than the budget. */
TEST(below_the_first_depths_all_that_was_deepened_is_given) {
    struct heap *heap = make_heap(HEAP_DEAD);
    use_much();
    heap_settings.thread_cache_bytes = GIB(1);
    for (int i = 0; i < 20; i++)
        for (unsigned class = 0; class < SMALL_CLASSES; class++) adapt(heap, class, SWING, SWING);
    CHECK(heap->small_depth.extra_bytes > MIB(16));
    heap_settings.thread_cache_bytes = KIB(64);
    for (int i = 0; i < 20; i++) stack_fit_budget(heap);
    CHECK_EQ(heap->small_depth.extra_bytes, 0);
    for (unsigned class = 0; class < SMALL_CLASSES; class++)
        CHECK_AT(heap->bins[class].depth == ace_depth_first(bytes_of(class), ACE_BALANCED), class);
    use_little();
    heap_settings.thread_cache_bytes = MIB(2);
}

/* A heap whose bin of the class ASKS has a depth of 512, and that of GIVES one of DEPTH. */
static struct heap *make_deepened(unsigned asks, unsigned gives, uint32_t depth) {
    struct heap *heap = make_heap(HEAP_DEAD);
    use_much();
    heap_settings.thread_cache_bytes = GIB(1);
    while (heap->bins[asks].depth < 512) adapt(heap, asks, SWING, SWING);
    while (heap->bins[gives].depth < depth) adapt(heap, gives, SWING, SWING);
    return heap;
}

/* What it has itself makes no room for it: others give nothing for what does not fit even then. */
TEST(nobody_gives_for_what_does_not_fit) {
    const unsigned asks = size_class_of(64), gives = size_class_of(128);
    struct heap *heap = make_deepened(asks, gives, 128);
    heap_settings.thread_cache_bytes = KIB(64); /* 32 and 16 of it are given; 32 more are wanted, of which the other has 12 */
    for (int i = 0; i < 2 * ACE_BUDGET_IDLE; i++) adapt(heap, asks, SWING, SWING);
    CHECK_EQ(heap->bins[asks].depth, 512);
    CHECK_EQ(heap->bins[gives].depth, 128);
    use_little();
    heap_settings.thread_cache_bytes = MIB(2);
}

/* The last that is asked may give enough. */
TEST(the_last_that_gives_is_not_in_vain) {
    const unsigned asks = size_class_of(64), gives = size_class_of(128);
    struct heap *heap = make_deepened(asks, gives, 512);
    heap_settings.thread_cache_bytes = KIB(112); /* 32 and 64 of it are given, and 32 more are wanted */
    heap->bins[gives].asked = UINT8_MAX;
    heap->small_depth.hand = gives + 1;
    adapt(heap, asks, SWING, SWING);
    CHECK_EQ(heap->bins[gives].depth, 256);
    CHECK_EQ(heap->bins[asks].depth, 1024);
    use_little();
    heap_settings.thread_cache_bytes = MIB(2);
}

/* The misses of before, at the greater depth, are no reason to have it back. */
TEST(who_gave_depth_must_miss_again_for_it) {
    struct heap *heap = make_heap(HEAP_DEAD);
    const unsigned class = size_class_of(256);
    use_much();
    heap_settings.thread_cache_bytes = GIB(1);
    for (int i = 0; i < 20; i++) adapt(heap, class, SWING, SWING);
    for (int i = 0; i < 5; i++) adapt(heap, class, SWING, SWING); /* it has all that it may have, and goes on */
    const uint32_t most = heap->bins[class].depth;
    heap_settings.thread_cache_bytes = most * bytes_of(class) * 2 / 3;
    for (int i = 0; i < 2 * ACE_BUDGET_IDLE; i++) stack_fit_budget(heap);
    const uint32_t given = heap->bins[class].depth;
    CHECK_AT(given < most, given);
    heap_settings.thread_cache_bytes = GIB(1);
    adapt(heap, class, 1, 0);
    CHECK_EQ(heap->bins[class].depth, given);
    adapt(heap, class, SWING, SWING);
    CHECK(heap->bins[class].depth > given);
    use_little();
    heap_settings.thread_cache_bytes = MIB(2);
}

TEST(what_was_loaded_long_ago_is_forgotten) {
    enum { LOADED = 100000, MISSES = 400 };
    struct heap *heap = make_heap(HEAP_DEAD);
    const unsigned class = size_class_of(256);
    use_much();
    heap_settings.thread_cache_bytes = GIB(1);
    for (int i = 0; i < LOADED; i++) adapt(heap, class, 1, 0);
    CHECK_EQ(heap->bins[class].depth, ace_depth_batch(256, ACE_BALANCED));
    for (int i = 0; i < MISSES; i++) adapt(heap, class, 1, 1);
    CHECK_EQ(heap->bins[class].depth, ace_depth_most(256, ACE_BALANCED));
    use_little();
    heap_settings.thread_cache_bytes = MIB(2);
}

TEST(outgrown_stacks_are_used_again) {
    struct heap *heap = make_heap(HEAP_DEAD);
    uint64_t before = 0;
    heap_settings.thread_cache_bytes = GIB(1);
    for (int round = 0; round < 10; round++) {
        for (unsigned class = 0; class < SIZE_CLASSES; class++)
            for (int i = 0; i < 20; i++) adapt(heap, class, SWING, SWING);
        stack_reset_all(heap);
        if (round == 0) before = books_bytes();
        CHECK_EQ(books_bytes(), before);
        CHECK_EQ(counter_read(&heap->small_depth.bytes) + counter_read(&heap->medium_depth.bytes), 0);
    }
    heap_settings.thread_cache_bytes = MIB(2);
}

TEST(a_fixed_depth_is_bounded) {
    uint16_t depths[SIZE_CLASSES];
    for (unsigned class = 0; class < SIZE_CLASSES; class++) depths[class] = 1000;
    heap_settings.fixed = true;
    stack_set_depths(depths, true);
    struct heap *heap = make_heap(HEAP_DEAD);
    uint64_t bytes = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        uint32_t most = ace_depth_most(bytes_of(class), ACE_BALANCED);
        CHECK_EQ(heap->bins[class].depth, most < 1000 ? most : 1000);
        for (int i = 0; i < 12; i++) adapt(heap, class, SWING, SWING);
        CHECK_EQ(heap->bins[class].depth, most < 1000 ? most : 1000);
        bytes += (uint64_t)heap->bins[class].depth * bytes_of(class);
    }
    CHECK_EQ(counter_read(&heap->small_depth.bytes) + counter_read(&heap->medium_depth.bytes), bytes); /* it is used by all that miss */
    heap_settings.fixed = false;
    stack_set_depths(NULL, false);
}

TEST(depths_of_some_sizes_are_fixed) {
    enum { FIXED = 3 };
    use_much();
    stack_set_depths((uint16_t[SIZE_CLASSES]){[FIXED] = 500}, false);
    struct heap *heap = make_heap(HEAP_DEAD);
    heap_settings.thread_cache_bytes = GIB(1);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        CHECK_EQ(heap->bins[class].depth, class == FIXED ? 500 : ace_depth_first(bytes_of(class), ACE_BALANCED));
        for (int i = 0; i < 64; i++) adapt(heap, class, SWING, SWING); /* the others are idle */
        CHECK_EQ(heap->bins[class].depth, class == FIXED ? 500 : ace_depth_most(bytes_of(class), ACE_BALANCED));
    }
    stack_set_depths((uint16_t[SIZE_CLASSES]){[FIXED] = 500}, true);
    heap = make_heap(HEAP_DEAD);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        for (int i = 0; i < 12; i++) adapt(heap, class, SWING, SWING);
        CHECK_EQ(heap->bins[class].depth, class == FIXED ? 500 : ace_depth_first(bytes_of(class), ACE_BALANCED));
    }
    stack_set_depths(NULL, false);
    heap_settings.thread_cache_bytes = MIB(2);
    use_little();
}
