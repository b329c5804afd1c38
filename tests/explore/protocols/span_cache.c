/* span_cache.c - large blocks that a thread keeps are taken away by others, while it takes and keeps some.
 *
 * Invariant: of the owner, who holds no lock, and one who shuts what is kept, waits for a barrier and looks whether he is at
 * it, at most one is: each block is kept once, or in hand, or given back. What the one did the other sees. */
#include "../model/model.h"

#include "heap/large.h"
#include "heap/purge.h"
#include "heap/span_cache.h"
#include "span/span.h"

enum { BYTES = 2 * 65536, PAGES = 2, KEPT = 2 };

static void *taken[2];
static struct heap *owner;

/* The owner keeps KEPT blocks, and may keep one more. */
static void keep_some(void) {
    for (unsigned round = 0; round < 12; round++) {
        void *blocks[KEPT + 1];
        for (unsigned i = 0; i <= KEPT; i++) blocks[i] = model_take(BYTES);
        for (unsigned i = 0; i <= KEPT; i++) model_give(blocks[i]);
    }
    taken[1] = model_take(BYTES);
    owner = thread_heap();
    EXPLORE_CHECK(owner->kept[PAGES - 1].held == KEPT && owner->kept[PAGES - 1].limit > KEPT);
    explore_name(&owner->keeping, "keeping");
    explore_name(&owner->kept_shut, "shut");
    explore_name(&owner->kept_pages, "kept pages");
    explore_name(&owner->kept_spans, "kept spans");
    model_name_heap(owner);
}
static void setup(void) {
    model_start();
    taken[0] = NULL;
    explore_as(0, keep_some);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}

static void take(void) { taken[0] = model_take(BYTES); }
static void give(void) {
    model_give(taken[1]);
    taken[1] = NULL;
}
static void take_and_give(void) {
    take();
    give();
}
static void give_and_take(void) {
    give();
    take();
}
static bool is_owners(const struct heap *heap) { return heap == owner; }
static void take_away(void) { span_cache_reclaim(is_owners); }
static void purge(void) {
    span_purging_lock();
    purge_step(PURGE_ALL);
    span_purging_unlock();
}

/* What is used is in hand or kept; and nothing is kept twice. */
static void check(void) {
    struct span_counts counts;
    const uint64_t in_hand = (taken[0] != NULL) + (taken[1] != NULL);
    uint64_t kept = 0;
    for (uint32_t first = owner->kept[PAGES - 1].first; kept < owner->kept[PAGES - 1].held; first = span_at(first)->next, kept++) {
        EXPLORE_CHECK(first != 0 && large_is_kept(first) && span_at(first)->pages == PAGES);
        for (unsigned i = 0; i < 2; i++) EXPLORE_CHECK(taken[i] == NULL || page_index(taken[i]) != first);
    }
    EXPLORE_CHECK(kept == counter_read(&owner->kept_spans) && kept * PAGES == counter_read(&owner->kept_pages));
    EXPLORE_CHECK(taken[0] == NULL || taken[0] != taken[1]);
    span_counts_read(&counts);
    EXPLORE_CHECK(counts.used_pages == (kept + in_hand) * PAGES);
    EXPLORE_CHECK(!atomic_load(&owner->keeping) && !atomic_load(&owner->kept_shut));
    model_check_spans();
}

EXPLORE(span_cache_take, .setup = setup, .threads = {take, take_away}, .check = check);
EXPLORE(span_cache_give, .setup = setup, .threads = {give, take_away}, .check = check);
EXPLORE(span_cache_take_and_give, .setup = setup, .threads = {take_and_give, take_away}, .check = check);
EXPLORE(span_cache_give_and_take, .setup = setup, .threads = {give_and_take, take_away}, .check = check);
EXPLORE(span_cache_taken_away_twice, .setup = setup, .threads = {take, take_away, take_away}, .check = check);
EXPLORE(span_cache_by_purge, .setup = setup, .threads = {give_and_take, purge}, .check = check);
