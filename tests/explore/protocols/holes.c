/* holes.c - memory behind free blocks inside a slab goes back to the kernel while its owner works, ends, or gives the slab up.
 *
 * Invariant: the kernel never works on a block that someone has; blocks that are held back meanwhile are free again
 * afterwards, in a slab of whoever owns it then. */
#include "../model/model.h"

#include "heap/purge.h"
#include "span/span.h"

enum { BYTES = 32768 }; /* two blocks in a slab, each a kernel page */

static void *blocks[2], *taken[1];

static void empty_stack(void) {
    struct heap *heap = thread_heap();
    os_lock_take(&heap->lock);
    stack_empty(heap, 1);
    os_lock_drop(&heap->lock);
}
/* One block in use, the other in its slab. */
static void begin(void) {
    blocks[0] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
    model_give(blocks[1]);
    empty_stack();
    model_name_heap(thread_heap());
    model_name_slab(blocks[0]);
}
static void setup(void) {
    model_start();
    explore_as(0, begin);
    explore_as(1, model_without_heap);
}

static void give_holes(void) {
    span_purging_lock();
    purge_step(PURGE_ALL);
    span_purging_unlock();
}
static void take(void) { taken[0] = model_take(BYTES); }
static void give_all(void) {
    model_give(blocks[0]);
    empty_stack();
}
static void end(void) { model_thread_exit(); }

static void check_taken(void) {
    model_check_blocks((void *[]){blocks[0], taken[0]}, 2);
    model_check_spans();
}
static void check_given(void) {
    model_check_blocks(NULL, 0);
    model_check_spans();
}
static void check_left(void) {
    model_check_blocks(blocks, 1);
    model_check_spans();
}

/* The thread has ended already, and another takes over what it left. */
static void begin_another(void) { thread_ensure_heap(); }
static void begin_and_end(void) {
    begin();
    end();
}
static void setup_parked(void) {
    model_start();
    explore_as(0, begin_another);
    explore_as(2, begin_and_end);
    explore_as(1, model_without_heap);
}

EXPLORE(holes_and_take, .setup = setup, .threads = {take, give_holes}, .check = check_taken);
EXPLORE(holes_and_give, .setup = setup, .threads = {give_all, give_holes}, .check = check_given);
EXPLORE(holes_and_exit, .setup = setup, .threads = {end, give_holes}, .check = check_left);
EXPLORE(holes_and_salvage, .setup = setup_parked, .threads = {take, give_holes}, .check = check_taken);
