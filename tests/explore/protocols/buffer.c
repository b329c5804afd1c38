/* buffer.c - the buffer of blocks of other heaps is emptied for an owner who sleeps, or seems to.
 *
 * Invariant: every block that the owner kept is given back once, or still lies there, and who gives it sees what the owner did
 * with it. */
#include "heap/buffer.h"

#include "../model/model.h"

enum { BYTES = 65536, FULL = 4 }; /* so many fill the buffer */

static void *blocks[FULL];
static struct heap *owner;

static void take_all(void) {
    for (unsigned i = 0; i < FULL; i++) blocks[i] = model_take(BYTES);
}
static void keep_one(void) {
    model_give(blocks[0]);
    owner = thread_heap();
    model_name_heap(owner);
    EXPLORE_CHECK(owner != NULL);
}
static void begin_and_keep_one(void) {
    thread_ensure_heap();
    keep_one();
}
static void begin_and_keep_three(void) {
    begin_and_keep_one();
    model_give(blocks[1]);
    model_give(blocks[2]);
}
static void setup_with(void (*keep)(void)) {
    model_start();
    explore_as(2, take_all);
    explore_as(0, keep);
    explore_as(1, model_without_heap);
}
static void setup_one(void) { setup_with(begin_and_keep_one); }
static void setup_three(void) { setup_with(begin_and_keep_three); }

static void give_second(void) { model_give(blocks[1]); }
static void give_two(void) {
    model_give(blocks[1]);
    model_give(blocks[2]);
}
static void give_last(void) { model_give(blocks[3]); }
static void empty(void) {
    os_lock_take(&owner->lock);
    buffer_take(owner);
    os_lock_drop(&owner->lock);
}

static void check_two_left(void) { model_check_blocks(&blocks[2], 2); }
static void check_one_left(void) { model_check_blocks(&blocks[3], 1); }
static void check_none_left(void) { model_check_blocks(NULL, 0); }

EXPLORE(buffer_keep_one, .setup = setup_one, .threads = {give_second, empty}, .check = check_two_left);
EXPLORE(buffer_keep_two, .setup = setup_one, .threads = {give_two, empty}, .check = check_one_left);
EXPLORE(buffer_keep_the_last, .setup = setup_three, .threads = {give_last, empty}, .check = check_none_left);
