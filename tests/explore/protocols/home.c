/* home.c - threads that share the slabs of a heap, while one of them leaves or begins, and others free its blocks.
 *
 * Invariant: a block is given to one of them; what is freed while the last leaves is found by whoever owns the slab then. */
#include "../model/model.h"

enum { BYTES = 32768 }; /* two blocks in a slab */

static void *blocks[2], *taken[2];

static void take_two(void) {
    blocks[0] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
    model_name_heap(thread_heap()->home);
    model_name_slab(blocks[0]);
}
static void begin(void) { thread_ensure_heap(); }
static void take_one(void) { taken[0] = model_take(BYTES); }
static void end(void) { model_thread_exit(); }
static void give_first(void) { model_give(blocks[0]); }
static void give_first_home(void) { model_give_home(blocks[0]); }

static void start(void) {
    model_start();
    heap_settings.processors = 0; /* every thread shares */
}

/* Both stacks are empty, beside a slab with room. */
enum { SMALL_BYTES = 512 };
static void *kept;

static void keep_one(void) {
    struct heap *heap;
    kept = model_take(SMALL_BYTES);
    heap = thread_heap();
    os_lock_take(&heap->lock);
    stack_empty_all(heap);
    os_lock_drop(&heap->lock);
    model_name_heap(heap->home);
    model_name_slab(kept);
}
static void setup_both(void) {
    start();
    explore_as(0, keep_one);
    explore_as(1, begin);
}
static void take_small(void) { taken[0] = model_take(SMALL_BYTES); }
static void take_small_too(void) { taken[1] = model_take(SMALL_BYTES); }
static void check_taken(void) { model_check_blocks((void *[]){kept, taken[0], taken[1]}, 3); }
EXPLORE(home_both_refill, .setup = setup_both, .threads = {take_small, take_small_too}, .check = check_taken);

/* What one has the other frees, on its own stack, and leaves. */
static void setup_crossed(void) {
    start();
    explore_as(0, take_two);
    explore_as(1, begin);
}
static void give_first_and_end(void) {
    give_first();
    end();
}
static void check_second(void) { model_check_blocks(&blocks[1], 1); }
EXPLORE(home_left_by_both, .setup = setup_crossed, .threads = {end, give_first_and_end}, .check = check_second, .deep = true);

/* The only one who shares leaves. */
static void setup_freer(void) {
    start();
    explore_as(0, take_two);
    explore_as(1, model_without_heap);
}
EXPLORE(home_left_and_freer, .setup = setup_freer, .threads = {end, give_first_home}, .check = check_second);

static void setup_beginner(void) {
    start();
    explore_as(0, take_two);
}
static void check_begun(void) { model_check_blocks((void *[]){blocks[0], blocks[1], taken[0]}, 3); }
EXPLORE(home_left_and_begun, .setup = setup_beginner, .threads = {end, take_one}, .check = check_begun);
static void check_begun_and_second(void) { model_check_blocks((void *[]){blocks[1], taken[0]}, 2); }
EXPLORE(home_left_freer_and_begun, .setup = setup_freer, .threads = {end, give_first_home, take_one}, .check = check_begun_and_second,
        .deep = true);

/* All have left: another begins, frees, or takes what is there away. */
static struct heap *left;

static void leave_both(void) {
    take_two();
    left = thread_heap()->home;
    model_thread_exit();
}
static void setup_left(void) {
    start();
    explore_as(2, leave_both);
    explore_as(1, model_without_heap);
}
static void retire(void) {
    thread_retire_parked(left);
    remote_settle();
}
EXPLORE(home_parked_begin_and_retire, .setup = setup_left, .threads = {take_one, retire}, .check = check_begun);
EXPLORE(home_parked_freer_and_retire, .setup = setup_left, .threads = {retire, give_first}, .check = check_second);
EXPLORE(home_parked_begin_and_freer, .setup = setup_left, .threads = {take_one, give_first}, .check = check_begun_and_second);

/* A heap with a slab of its own is parked; the next thread that begins with it shares those of another. */
static void leave_second(void) {
    take_two();
    model_give(blocks[0]);
    model_thread_exit();
}
static void setup_changed(void) {
    model_start();
    heap_settings.processors = 100;
    explore_as(2, leave_second);
    heap_settings.processors = 0;
    explore_as(1, model_without_heap);
}
static void give_second(void) { model_give(blocks[1]); }
static void check_begun_alone(void) { model_check_blocks(taken, 1); }
EXPLORE(home_changed_and_freer, .setup = setup_changed, .threads = {take_one, give_second}, .check = check_begun_alone);
