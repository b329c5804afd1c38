/* remote.c - blocks freed by threads that do not own them.
 *
 * Invariant: such a block is never lost and never served while its freer still writes to it: it is in the remote bits of
 * its slab, and that slab hangs in the inbox of a heap whose thread comes by, or in none of which nothing is missing.
 * What the freer wrote before is seen by the next user (no race). */
#include "../model/model.h"

enum { BYTES = 32768 }; /* two blocks in a slab */

static void *blocks[4], *taken[4];

static void name_heap(void) {
    explore_name(&thread_heap()->inbox, "inbox");
    explore_name(&thread_heap()->lock.state, "lock");
    explore_name(&thread_heap()->state, "state");
}
static void name_slab(uint32_t first) {
    explore_name(&slab_remote_at(first)->queued, "queued");
    explore_name(&slab_remote_at(first)->inbox_next, "inbox_next");
    explore_name(&slab_remote_at(first)->inline_bits, "remote bits");
    explore_name(&slab_at(first)->owner, "owner");
}

static void take_two(void) {
    blocks[0] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
    name_heap();
    name_slab(slab_head(page_index(blocks[0])));
}

static void setup(void) {
    model_start();
    explore_as(0, take_two);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}

static void give_first(void) { model_give(blocks[0]); }
static void give_second(void) { model_give(blocks[1]); }
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
