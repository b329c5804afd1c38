/* settle.c - blocks given to heaps that no thread owns, and whoever passes by.
 *
 * Invariant: whoever gives a block to a dead heap, or somebody who is at it when he passes by, drains it: nothing waits there
 * when all have passed, and no heap is marked that nobody would come to. */
#include "../model/model.h"

enum { BYTES = 32768 }; /* two blocks in a slab */

static void *blocks[6]; /* of three slabs */

static void take_two(unsigned from) {
    blocks[from] = model_take(BYTES);
    blocks[from + 1] = model_take(BYTES);
    model_name_heap(thread_heap());
    model_name_slab(blocks[from]);
}
static void leave_two_slabs(void) {
    take_two(0);
    take_two(2);
    model_thread_exit();
}
static void leave_first_slab(void) {
    take_two(0);
    model_thread_exit();
}
static void take_second_slab(void) { take_two(2); }
static void take_third_slab(void) { take_two(4); }

/* As a handler gives it, who must not drain. */
static void mark_first(void) { remote_give(NULL, &blocks[0], 1); }
static void mark_third(void) { remote_give(NULL, &blocks[2], 1); }
static void mark_fifth(void) { remote_give(NULL, &blocks[4], 1); }

static void settle(void) { remote_settle(); }

/* As a thread gives what it had in its buffer. */
static void give_first(void) {
    mark_first();
    settle();
}
static void give_second(void) {
    remote_give(NULL, &blocks[1], 1);
    settle();
}
static void give_third(void) {
    mark_third();
    settle();
}

static void without_heaps(void) {
    explore_as(0, model_without_heap);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}
static void setup_one_heap(void) {
    model_start();
    explore_as(3, leave_two_slabs);
    without_heaps();
}
static void setup_two_heaps(void) {
    model_start();
    explore_as(2, take_second_slab);
    explore_as(3, leave_first_slab);
    explore_as(2, model_thread_exit);
    without_heaps();
}
static void setup_one_marked(void) {
    setup_two_heaps();
    explore_as(0, mark_third);
}
static void setup_both_marked(void) { /* one of two slabs, of which one is queued; behind it, one of the third */
    model_start();
    explore_as(2, take_third_slab);
    explore_as(3, leave_two_slabs);
    explore_as(2, model_thread_exit);
    without_heaps();
    explore_as(0, mark_fifth);
    explore_as(0, mark_first);
}

/* The slab went to the commons, and its dead heap was given a block of it before. */
static struct heap *dead;

static void leave_and_name(void) {
    take_two(0);
    dead = thread_heap();
    model_thread_exit();
}
static void setup_passed_on(void) {
    model_start();
    explore_as(3, leave_and_name);
    without_heaps();
    explore_as(0, mark_first);
}
static void hand_over_and_settle(void) {
    os_lock_take(&dead->lock);
    bin_hand_over(dead, UINT32_MAX);
    os_lock_drop(&dead->lock);
    remote_settle();
}
static void check_second(void) { model_check_blocks(&blocks[1], 1); }

static void check_given(void) { model_check_blocks((void *[]){blocks[1], blocks[3]}, 2); }
static void check_three_given(void) { model_check_blocks((void *[]){blocks[1], blocks[3], blocks[5]}, 3); }
static void check_second_too(void) { model_check_blocks(&blocks[3], 1); }

EXPLORE(settle_one_heap, .setup = setup_one_heap, .threads = {give_first, give_third}, .check = check_given);
EXPLORE(settle_two_heaps, .setup = setup_two_heaps, .threads = {give_first, give_third}, .check = check_given);

/* A heap is marked anew while the list that it hangs in is gone through. */
EXPLORE(settle_and_mark_anew, .setup = setup_both_marked, .threads = {settle, give_third}, .check = check_three_given);

/* What is drained is passed on to another dead heap, which is marked then. */
EXPLORE(settle_passed_on, .setup = setup_passed_on, .threads = {hand_over_and_settle, settle}, .check = check_second);

/* The list is taken by who finds one heap, while another is pushed. */
EXPLORE(settle_and_push, .setup = setup_one_marked, .threads = {settle, give_first}, .check = check_given);
EXPLORE(settle_twice_and_push, .setup = setup_one_marked, .threads = {settle, give_first, settle}, .check = check_given,
        .deep = true);
EXPLORE(settle_three_freers, .setup = setup_two_heaps, .threads = {give_first, give_third, give_second},
        .check = check_second_too, .deep = true);
