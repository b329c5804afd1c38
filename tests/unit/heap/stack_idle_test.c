/* stack_idle_test.c - what idle stacks of a heap of the test's own give back, and which pass for idle.
 *
 * Planted defects it was seen to catch:
 *   idle stacks keep what they have              what_is_idle_is_given_back, idle_stacks_make_room_for_others
 *   a stack in use is taken for idle             what_is_idle_is_given_back
 *   so is that which a slab is wanted for        what_is_idle_is_given_back, idle_medium_stacks_are_emptied
 *   a medium stack that is only freed to is not  idle_medium_stacks_are_emptied
 */
#include "child.h"
#include "heap/thread.h"
#include "own_stacks.h"

/* So many look at each stack once, and at fewer than four, from the first class on, twice. */
enum { LOOKS = (SIZE_CLASSES + 3) / 4, BIG = 4, WANTED = 13 };

static void look_at_all(struct heap *heap) {
    heap->idle_hand = 0;
    for (int i = 0; i < LOOKS; i++) {
        const uint64_t before = blocks_out(heap, BIG);
        stack_give_idle(heap, WANTED);
        CHECK(before - blocks_out(heap, BIG) <= 1024);
    }
    CHECK(heap->idle_hand >= SIZE_CLASSES && heap->idle_hand < SIZE_CLASSES + 4);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) check_stack(heap, class);
}

TEST(what_is_idle_is_given_back) {
    enum { IDLE = 7, USED = 9, EMPTY = 11 };
    struct heap *heap = make_heap(HEAP_DEAD);
    heap_settings.thread_cache_bytes = GIB(1);
    for (int i = 0; i < 12; i++) adapt(heap, BIG, SWING, SWING);
    push(heap, BIG, 5000);
    push(heap, IDLE, 20);
    push(heap, USED, 20);
    push(heap, WANTED, 20);
    look_at_all(heap);
    CHECK_EQ(stack_held(heap, IDLE), 20); /* it may have come only now */
    void *newest = stack_pop(heap, USED);
    bin_put(heap, &newest, 1);
    look_at_all(heap);
    CHECK_EQ(stack_held(heap, IDLE), 0);
    CHECK_EQ(blocks_out(heap, IDLE), 0);
    CHECK_EQ(heap->bins[IDLE].slab_count, 0);
    CHECK_EQ(stack_held(heap, USED), 19);
    CHECK_EQ(stack_held(heap, EMPTY), 0);
    CHECK_EQ(stack_held(heap, BIG), 5000 - 1024);
    for (int i = 0; i < 5; i++) look_at_all(heap);
    CHECK_EQ(stack_held(heap, BIG) + stack_held(heap, USED), 0);
    CHECK_EQ(stack_held(heap, WANTED), 20);
    heap_settings.thread_cache_bytes = MIB(2);
}

/* Of medium blocks one stack at a time, and no small one. */
static void look_at_all_medium(struct heap *heap, unsigned wanted) {
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) stack_give_idle(heap, wanted);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) check_stack(heap, class);
}

TEST(idle_medium_stacks_are_emptied) {
    enum { SMALL = 7, FREED_TO = SMALL_CLASSES, USED, MISSED, KEPT = 4 };
    struct heap *heap = make_heap(HEAP_DEAD);
    use_much();
    heap_settings.thread_cache_bytes = GIB(1);
    for (unsigned class = FREED_TO; class <= MISSED; class++) {
        while (heap->bins[class].depth <= KEPT) adapt(heap, class, SWING, SWING);
        push(heap, class, KEPT);
        heap->front.wanted[class - SMALL_CLASSES] = true;
    }
    push(heap, SMALL, 20);
    look_at_all_medium(heap, MISSED);
    CHECK_EQ(stack_held(heap, FREED_TO), KEPT); /* it was wanted before */
    push(heap, FREED_TO, 1);
    heap->front.wanted[USED - SMALL_CLASSES] = true;
    look_at_all_medium(heap, MISSED);
    CHECK_EQ(stack_held(heap, FREED_TO), 0);
    CHECK_EQ(heap->bins[FREED_TO].slab_count, 0);
    CHECK_EQ(stack_held(heap, USED), KEPT);
    look_at_all_medium(heap, MISSED);
    CHECK_EQ(stack_held(heap, USED), 0);
    CHECK_EQ(stack_held(heap, MISSED), KEPT);
    CHECK_EQ(stack_held(heap, SMALL), 20);
    use_little();
    heap_settings.thread_cache_bytes = MIB(2);
}

/* One size after the other: what the thread does not need it does not keep. */
static void use_one_after_the_other(void) {
    enum { BLOCKS = 512 };
    static void *blocks[BLOCKS];
    uint64_t most = 0;
    for (unsigned class = 0; class < ALIGNED_CLASS; class++) {
        for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = heap_alloc(bytes_of(class), NULL)) != NULL);
        for (size_t i = 0; i < BLOCKS; i++) heap_free(blocks[i], NULL);
        size_t held = 0;
        for (unsigned earlier = 0; earlier + 24 < class; earlier++)
            held += stack_held(thread_heap(), earlier) * bytes_of(earlier);
        if (held > most) most = held;
    }
    CHECK_AT(most < KIB(64), most);
}

TEST(idle_stacks_make_room_for_others) { IN_CHILD(use_one_after_the_other); }
