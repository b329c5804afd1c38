/* large.c - large blocks that a signal handler frees wait in a list that anyone empties.
 *
 * Invariant: each is given back once, or still waits; a block is freed by one of two threads that free it. */
#include "../model/model.h"

#include "heap/large.h"
#include "span/span.h"

enum { BYTES = 4 * 65536 };

static void *blocks[2], *taken;

static void setup(void) {
    model_start();
    blocks[0] = heap_alloc(BYTES, NULL);
    blocks[1] = heap_alloc(BYTES, NULL);
    explore_as(0, model_without_heap);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}

/* As heap_free does inside a handler. */
static void free_in_handler(void *block) {
    thread_state.busy = true;
    heap_free(block, NULL);
    thread_state.busy = false;
}
static void free_first(void) { free_in_handler(blocks[0]); }
static void free_second(void) { free_in_handler(blocks[1]); }
static void take(void) { taken = model_take(BYTES); }

static void check(void) {
    struct span_counts counts;
    model_give(taken); /* which empties the list */
    span_counts_read(&counts);
    EXPLORE_CHECK(counts.used_pages == 0 && counts.taken == counts.given);
    model_check_spans();
}

EXPLORE(large_freed_in_a_handler, .setup = setup, .threads = {take, free_first, free_second}, .check = check);
