/* kept.c - a thread keeps blocks of another heap in its stack, to use them again, while the stack is taken from it, it ends,
 * or the owner goes on.
 *
 * Invariant: a block that is kept is in one place, as its own are: with the keeper, or on its way home to the owner's slab. What the
 * keeper did with it is seen by its next user. */
#include "../model/model.h"

enum { BYTES = 32768 }; /* two blocks in a slab, four in a stack, of which three may be others' */

static void *blocks[3], *taken[2];
static struct heap *keeper;

static void take_two(void) {
    blocks[0] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
    model_name_heap(thread_heap());
    model_name_slab(blocks[0]);
}
static void take_three(void) {
    take_two();
    blocks[2] = model_take(BYTES);
    model_name_slab(blocks[2]);
}
static void begin(void) {
    thread_ensure_heap();
    keeper = thread_heap();
    model_name_heap(keeper);
    const unsigned class = size_class_of(BYTES);
    keeper->bins[class].streams = true; /* many were freed before */
    stack_set_keeping(keeper, class, true);
    EXPLORE_CHECK(keeper->front.keep[class] == keeper->bins[class].stack + 3);
}
static void keep_first(void) {
    begin();
    *(void **)blocks[0] = NULL; /* as model_give does */
    EXPLORE_CHECK(front_push(blocks[0]));
    EXPLORE_CHECK(stack_held(keeper, size_class_of(BYTES)) == 1);
}
static void keep_both(void) {
    keep_first();
    model_give(blocks[1]);
    EXPLORE_CHECK(stack_held(keeper, size_class_of(BYTES)) == 2);
}

/* Thread 0 keeps, thread 1 has no heap, thread 2 owns. */
static void setup_with(void (*keep)(void)) {
    model_start();
    explore_as(2, take_two);
    explore_as(0, keep);
    explore_as(1, model_without_heap);
}
static void setup_first(void) { setup_with(keep_first); }
static void setup_both(void) { setup_with(keep_both); }

static void take_one(void) { taken[0] = model_take(BYTES); }
static void take_two_more(void) {
    taken[0] = model_take(BYTES);
    taken[1] = model_take(BYTES);
}
static void give_second(void) { model_give(blocks[1]); }
static void end(void) { model_thread_exit(); }
static void revoke(void) {
    stack_raise(keeper);
    stack_take(keeper, os_barrier_others());
}

static void check_taken(void) { model_check_blocks(taken, 1); }
static void check_taken_twice(void) { model_check_blocks(taken, 2); }
static void check_none(void) { model_check_blocks(NULL, 0); }
static void check_taken_and_second(void) { model_check_blocks((void *[]){taken[0], blocks[1]}, 2); }

EXPLORE(kept_take_and_revoke, .setup = setup_both, .threads = {take_one, revoke}, .check = check_taken);
EXPLORE(kept_take_twice_and_revoke, .setup = setup_both, .threads = {take_two_more, revoke}, .check = check_taken_twice);
EXPLORE(kept_give_and_revoke, .setup = setup_first, .threads = {give_second, revoke}, .check = check_none);

/* What is given may lie below the bound that was raised, where another block lay before. */
static void setup_three(void) {
    model_start();
    explore_as(2, take_three);
    explore_as(0, keep_both);
    explore_as(1, model_without_heap);
}
static void take_give_give(void) {
    taken[0] = model_take(BYTES);
    model_give(blocks[2]);
    model_give(taken[0]);
}
EXPLORE(kept_take_give_give, .setup = setup_three, .threads = {take_give_give, revoke}, .check = check_none);

/* The owner needs a block while its own go home, or do not. */
static void setup_owner_goes_on(void) {
    model_start();
    explore_as(1, take_two);
    explore_as(0, keep_first);
}
EXPLORE(kept_end_and_take, .setup = setup_owner_goes_on, .threads = {end, take_one}, .check = check_taken_and_second);
