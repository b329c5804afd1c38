/* remote.c - blocks freed by threads that do not own them.
 *
 * Invariant: such a block is never lost and never served while its freer still writes to it: it is in the remote bits of
 * its slab, and that slab hangs in the inbox of a heap whose thread comes by, or in none of which nothing is missing.
 * What the freer wrote before is seen by the next user (no race). */
#include "../model/model.h"

enum { BYTES = 32768 }; /* two blocks in a slab */

static void *blocks[128], *taken[2];

static void take_two(void) {
    blocks[0] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
    model_name_heap(thread_heap());
    model_name_slab(blocks[0]);
}

static void setup(void) {
    model_start();
    explore_as(0, take_two);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}

static void give_first(void) { model_give_home(blocks[0]); }
static void give_second(void) { model_give_home(blocks[1]); }
static void take_one(void) { taken[0] = model_take(BYTES); }
static void take_one_twice(void) {
    taken[0] = model_take(BYTES);
    taken[1] = model_take(BYTES);
}

static void check_one(void) { model_check_blocks(taken, 1); }
static void check_two(void) { model_check_blocks(taken, 2); }
static void check_one_and_second(void) { model_check_blocks((void *[]){taken[0], blocks[1]}, 2); }

EXPLORE(remote_one_freer, .setup = setup, .threads = {take_one, give_first}, .check = check_one_and_second);
EXPLORE(remote_two_freers, .setup = setup, .threads = {take_one, give_first, give_second}, .check = check_one);
EXPLORE(remote_owner_takes_twice, .setup = setup, .threads = {take_one_twice, give_first, give_second}, .check = check_two, .deep = true);

/* Two slabs, both in the inbox at once. */
static void take_four(void) {
    take_two();
    blocks[2] = model_take(BYTES);
    blocks[3] = model_take(BYTES);
}
static void setup_two_slabs(void) {
    model_start();
    explore_as(0, take_four);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}
static void give_third(void) { model_give_home(blocks[2]); }
static void check_two_slabs(void) { model_check_blocks((void *[]){blocks[1], blocks[3], taken[0]}, 3); }
EXPLORE(remote_two_slabs, .setup = setup_two_slabs, .threads = {take_one, give_first, give_third}, .check = check_two_slabs);

/* A slab whose bits fill two words, of which one is given back by each. */
enum { SMALL_BYTES = 512, SMALL_BLOCKS = 128 };

static void take_slab(void) {
    for (unsigned i = 0; i < SMALL_BLOCKS; i++) blocks[i] = model_take(SMALL_BYTES);
    for (unsigned i = 0; i < SMALL_BLOCKS; i++) EXPLORE_CHECK(page_index(blocks[i]) == page_index(blocks[0]));
}
static void setup_small(void) {
    model_start();
    explore_as(0, take_slab);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}
static void take_small(void) { taken[0] = model_take(SMALL_BYTES); }
static void give_last(void) { model_give_home(blocks[SMALL_BLOCKS - 1]); }
static void check_small(void) {
    blocks[0] = taken[0];
    model_check_blocks(blocks, SMALL_BLOCKS - 1);
}
EXPLORE(remote_two_words, .setup = setup_small, .threads = {take_small, give_first, give_last}, .check = check_small, .deep = true);
