/* revocation.c - blocks are taken from the stack of a thread that sleeps, or seems to.
 *
 * Invariant: whoever raises the bound of another thread's stack, waits for a barrier and then takes from below, takes no
 * block that the owner takes too, however late the owner notices: each block is in one place. What the owner did with a
 * block before is seen by its next user. */
#include "../model/model.h"

#include "heap/purge.h"
#include "span/span.h"

enum { BYTES = 32768, STACKED = 4, ALL = 6 };

static void *blocks[ALL], *taken[2]; /* in the end two of the blocks are in hand, or more */
static struct heap *owner;

/* Leaves STACKED blocks in the stack, and the others in hand. */
static void fill_stack(void) {
    for (unsigned i = 0; i < ALL; i++) blocks[i] = model_take(BYTES);
    owner = thread_heap();
    EXPLORE_CHECK(stack_held(owner, 1) == 0);
    for (unsigned i = 0; i < STACKED; i++) model_give(blocks[i]);
    explore_name(&owner->front.top[1], "top");
    explore_name(&owner->front.lo[1], "lo");
    explore_name(&owner->front.hi[1], "hi");
    model_name_heap(owner);
}
static void setup(void) {
    model_start();
    explore_as(0, fill_stack);
    explore_as(1, model_without_heap);
}

static void revoke(void) {
    stack_raise(owner);
    stack_take(owner, os_barrier_others());
}
static void take(void) { taken[0] = model_take(BYTES); }
static void take_twice(void) {
    taken[0] = model_take(BYTES);
    taken[1] = model_take(BYTES);
}
static void give(void) { model_give(blocks[4]); }
static void take_and_give(void) {
    taken[0] = model_take(BYTES);
    model_give(taken[0]);
}
static void give_and_take(void) {
    model_give(blocks[4]);
    taken[0] = model_take(BYTES);
}

static void check_taken(void) { model_check_blocks((void *[]){blocks[4], blocks[5], taken[0]}, 3); }
static void check_taken_twice(void) { model_check_blocks((void *[]){blocks[4], blocks[5], taken[0], taken[1]}, 4); }
static void check_given(void) { model_check_blocks(&blocks[5], 1); }
static void check_as_before(void) { model_check_blocks(&blocks[4], 2); }
static void check_given_and_taken(void) { model_check_blocks((void *[]){blocks[5], taken[0]}, 2); }

EXPLORE(revocation_take, .setup = setup, .threads = {take, revoke}, .check = check_taken);
EXPLORE(revocation_give, .setup = setup, .threads = {give, revoke}, .check = check_given);
EXPLORE(revocation_take_twice, .setup = setup, .threads = {take_twice, revoke}, .check = check_taken_twice);
EXPLORE(revocation_take_and_give, .setup = setup, .threads = {take_and_give, revoke}, .check = check_as_before);
EXPLORE(revocation_give_and_take, .setup = setup, .threads = {give_and_take, revoke}, .check = check_given_and_taken);

/* After one block was taken there is room for two: what is given then may lie below the bound that was raised, where
 * another block lay before. */
static void take_give_give(void) {
    taken[0] = model_take(BYTES);
    model_give(blocks[4]);
    model_give(taken[0]);
}
static void leave_room(void) { taken[1] = model_take(BYTES); }
static void setup_with_room(void) {
    setup();
    explore_as(0, leave_room);
}
static void check_room_filled(void) { model_check_blocks((void *[]){blocks[5], taken[1]}, 2); }
EXPLORE(revocation_take_give_give, .setup = setup_with_room, .threads = {take_give_give, revoke}, .check = check_room_filled);

/* All that the purge thread does to heaps. */
static void purge(void) {
    span_purging_lock();
    purge_step(PURGE_ALL);
    span_purging_unlock();
}
EXPLORE(revocation_by_purge, .setup = setup, .threads = {take, purge}, .check = check_taken);
EXPLORE(revocation_by_purge_take_twice, .setup = setup, .threads = {take_twice, purge}, .check = check_taken_twice);
