/* exit.c - a thread ends while others free its blocks, take over its slabs, and begin with its heap, which is parked meanwhile.
 *
 * Invariant: a block that is freed while its owner ends is found by whoever owns the slab at the end; nothing waits in a
 * heap that no thread owns; a slab is served by one heap at a time. */
#include "../model/model.h"

enum { BYTES = 32768 }; /* two blocks in a slab */

static void *blocks[4], *taken[2];

static void take_two(void) {
    blocks[0] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
    model_name_heap(thread_heap());
    model_name_slab(blocks[0]);
}
static void begin(void) { thread_ensure_heap(); }

static void end(void) { model_thread_exit(); }
static void give_first(void) { model_give(blocks[0]); }
static void give_second(void) { model_give(blocks[1]); }
static void give_first_home(void) { model_give_home(blocks[0]); }
static void give_second_home(void) { model_give_home(blocks[1]); }
static void take_one(void) { taken[0] = model_take(BYTES); }

static void setup(void) {
    model_start();
    explore_as(0, take_two);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}
static void check_second(void) { model_check_blocks(&blocks[1], 1); }
static void check_none(void) { model_check_blocks(NULL, 0); }
EXPLORE(exit_and_one_freer, .setup = setup, .threads = {end, give_first_home}, .check = check_second);
EXPLORE(exit_and_two_freers, .setup = setup, .threads = {end, give_first_home, give_second_home}, .check = check_none,
        .deep = true);

/* Another thread, with a heap of its own, adopts what is left behind. */
static void setup_adoption(void) {
    model_start();
    explore_as(0, take_two);
    explore_as(1, model_without_heap);
    explore_as(2, begin);
}
static void check_adopted(void) { model_check_blocks((void *[]){blocks[1], taken[0]}, 2); }
EXPLORE(exit_freer_adopter, .setup = setup_adoption, .threads = {end, give_first_home, take_one}, .check = check_adopted,
        .deep = true);

/* A thread begins, perhaps with the heap that the other leaves. */
static void setup_beginner(void) {
    model_start();
    explore_as(0, take_two);
    explore_as(1, model_without_heap);
}
EXPLORE(exit_freer_beginner, .setup = setup_beginner, .threads = {end, give_first_home, take_one}, .check = check_adopted,
        .deep = true);

/* Each ends with a block of the other in its buffer. */
static void take_third(void) {
    blocks[2] = model_take(BYTES);
    blocks[3] = model_take(BYTES);
}
static void give_third(void) {
    model_give(blocks[2]);
}
static void setup_crossed(void) {
    model_start();
    explore_as(0, take_two);
    explore_as(1, take_third);
    explore_as(0, give_third);
    explore_as(1, give_first);
}
static void check_crossed(void) { model_check_blocks((void *[]){blocks[1], blocks[3]}, 2); }
EXPLORE(exit_of_both, .setup = setup_crossed, .threads = {end, end}, .check = check_crossed,
        .deep = true);

/* The thread has ended, and its heap is parked, with a block in its stack: another begins with it, or takes from it, while a
 * visit retires it. */
static struct heap *parked;

static void leave_one(void) {
    take_two();
    parked = thread_heap();
    model_give(blocks[0]);
    model_thread_exit();
}
static void setup_parked(void) {
    model_start();
    explore_as(2, leave_one);
}
static void setup_parked_beside(void) {
    model_start();
    explore_as(1, begin); /* with another heap */
    explore_as(2, leave_one);
}
static void begin_and_go_on(void) { /* by fast paths */
    take_one();
    model_give(taken[0]);
    take_one();
}
static void retire(void) {
    thread_retire_parked(parked);
    remote_settle();
}
static void take_another(void) { taken[1] = model_take(BYTES); }
static void check_taken(void) { model_check_blocks((void *[]){blocks[1], taken[0]}, 2); }
static void check_other_taken(void) { model_check_blocks((void *[]){blocks[1], taken[1]}, 2); }
static void check_first_taken(void) { model_check_blocks(taken, 1); }
static void check_both_taken(void) { model_check_blocks((void *[]){blocks[1], taken[0], taken[1]}, 3); }
EXPLORE(parked_begin_and_retire, .setup = setup_parked, .threads = {take_one, retire}, .check = check_taken);
EXPLORE(parked_begin_and_salvage, .setup = setup_parked_beside, .threads = {begin_and_go_on, take_another},
        .check = check_both_taken);
EXPLORE(parked_retire_and_salvage, .setup = setup_parked_beside, .threads = {retire, take_another}, .check = check_other_taken);

static void setup_parked_freer(void) {
    model_start();
    explore_as(1, model_without_heap);
    explore_as(2, leave_one);
}
EXPLORE(parked_freer_and_retire, .setup = setup_parked_freer, .threads = {retire, give_second}, .check = check_none);
EXPLORE(parked_buffer_and_retire, .setup = setup_parked_freer, .threads = {retire, give_second_home}, .check = check_none);
EXPLORE(parked_freer_and_begin, .setup = setup_parked_freer, .threads = {take_one, give_second},
        .check = check_first_taken);
