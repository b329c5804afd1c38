/* salvage.c - where there are many threads, one that lacks a slab takes one of another's that is half free, while its owner goes
 * on and others free its blocks.
 *
 * Invariant: a slab is served by one heap at a time, and a block that is freed meanwhile is found by whoever owns it then. */
#include "../model/model.h"

#include "heap/registry.h"

enum { BYTES = 512, MOST = 129 }; /* 128 blocks in a slab */

static void *blocks[MOST], *taken[2];
static size_t held;

static void take_first(void) {
    blocks[held++] = model_take(BYTES);
    model_name_heap(thread_heap());
    model_name_slab(blocks[0]);
}
static void take_all_at_hand(void) {
    take_first();
    while (stack_held(thread_heap(), size_class_of(BYTES)) != 0) blocks[held++] = model_take(BYTES);
}
static void begin(void) { thread_ensure_heap(); }

static void start(unsigned owner, void (*body)(void)) {
    held = 0;
    model_start();
    heap_settings.processors = 100;
    explore_as(owner, body);
    heap_settings.processors = 0; /* so it shares */
    explore_as(1, begin);
}
static void give_first(void) { model_give(blocks[0]); }
static void take_another(void) { taken[1] = model_take(BYTES); }
static void check_taken(void) {
    blocks[0] = taken[0];
    blocks[held] = taken[1];
    model_check_blocks(blocks[0] == NULL ? blocks + 1 : blocks, held + (blocks[0] != NULL));
}

/* By fast paths. */
static void setup(void) { start(0, take_first); }
static void go_on(void) {
    model_give(blocks[0]);
    taken[0] = model_take(BYTES);
}
EXPLORE(salvage_from_the_living, .setup = setup, .threads = {go_on, take_another}, .check = check_taken);

/* By a refill. */
static void setup_used_up(void) { start(0, take_all_at_hand); }
static void refill(void) {
    taken[0] = blocks[0];
    blocks[held++] = model_take(BYTES);
}
EXPLORE(salvage_and_refill, .setup = setup_used_up, .threads = {refill, take_another}, .check = check_taken);

/* The owner waits for a processor. */
static void setup_waiting(void) {
    start(2, take_first);
    explore_as(0, model_without_heap);
}
EXPLORE(salvage_and_freer, .setup = setup_waiting, .threads = {give_first, take_another}, .check = check_taken);
