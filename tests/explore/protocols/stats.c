/* stats.c - statistics are read while threads work and end.
 *
 * Invariant: reading changes nothing and races with nobody. What is summed up may be of different moments, but every sum is
 * of numbers that there were: none is below zero, and nobody has more than all hold. */
#include "../model/model.h"

#include "watch/stats.h"

enum { BYTES = 32768 };

static struct stats_totals totals;
static void *blocks[2], *taken[1];

static void begin(void) {
    blocks[0] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
}
static void setup(void) {
    model_start();
    explore_as(0, begin);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}

static void read_all(void) { stats_read_totals(&totals); }
static void take(void) { taken[0] = model_take(BYTES); }
static void give(void) { model_give(blocks[0]); }
static void give_all(void) {
    model_give(blocks[0]);
    model_give(blocks[1]);
    struct heap *heap = thread_heap();
    os_lock_take(&heap->lock);
    stack_empty(heap, 1);
    os_lock_drop(&heap->lock);
}
static void end(void) { model_thread_exit(); }

static void check_totals(void) {
    enum { ALL = 8 << 20 };
    EXPLORE_CHECK(totals.free_small_blocks < 1000 && totals.free_small_bytes < ALL);
    EXPLORE_CHECK(totals.held_bytes < ALL && totals.dirty_bytes < ALL && totals.large_bytes < ALL);
    EXPLORE_CHECK(totals.in_use_bytes <= totals.held_bytes && totals.large_blocks < 1000);
}
static void check_taken(void) {
    check_totals();
    model_check_blocks((void *[]){blocks[0], blocks[1], taken[0]}, 3);
}
static void check_given(void) {
    check_totals();
    model_check_blocks(&blocks[1], 1);
}
static void check_released(void) {
    check_totals();
    model_check_blocks(NULL, 0);
}
static void check_left(void) {
    check_totals();
    model_check_blocks(blocks, 2);
}

EXPLORE(stats_and_take, .setup = setup, .threads = {take, read_all}, .check = check_taken);
EXPLORE(stats_and_give, .setup = setup, .threads = {give, read_all}, .check = check_given);
EXPLORE(stats_and_release, .setup = setup, .threads = {give_all, read_all}, .check = check_released);
EXPLORE(stats_and_exit, .setup = setup, .threads = {end, read_all}, .check = check_left);

static void check_remote(void) {
    check_totals();
    model_check_blocks((void *[]){blocks[1], taken[0]}, 2);
}
EXPLORE(stats_and_remote_free, .setup = setup, .threads = {take, read_all, give}, .check = check_remote, .deep = true);
