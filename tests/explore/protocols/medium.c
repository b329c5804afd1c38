/* medium.c - medium blocks, each a slab by itself: taken from a sleeper to the last, freed and made longer by others than the owner
 * of their slab.
 *
 * Invariant: of the owner, who pops without a lock and says so meanwhile, and whoever takes from his stack, one has each block. A
 * slab that changes hands when another thread frees its block is in the lists of one heap, or of none and given back. What was
 * done with a block before is seen by its next user. */
#include "../model/model.h"

#include "heap/large.h"
#include "heap/purge.h"
#include "heap/registry.h"
#include "span/span.h"
#include "watch/stats.h"

enum { BYTES = 2 * 65536, PAGES = 2, CLASS = SMALL_CLASSES, DEPTH = 4 };
enum { LARGER_PAGES = 3, LARGER_BYTES = LARGER_PAGES * 65536, LARGER_CLASS = CLASS + 1 };

static void *blocks[2], *taken[2]; /* thread 0 has the blocks in hand */
static struct heap *owner, *other;

/* Takes and gives in turn, until the stack may hold DEPTH of them; it holds none now. */
static void deepen(void) {
    void *some[DEPTH + 1];
    thread_ensure_heap();
    struct bin *bin = &thread_heap()->bins[CLASS];
    for (unsigned round = 0; round < 32 && bin->depth < DEPTH; round++) {
        for (unsigned i = 0; i <= DEPTH; i++) some[i] = model_take(BYTES);
        for (unsigned i = 0; i <= DEPTH; i++) model_give(some[i]);
    }
    EXPLORE_CHECK(bin->depth == DEPTH);
    os_lock_take(&thread_heap()->lock);
    stack_empty(thread_heap(), CLASS);
    os_lock_drop(&thread_heap()->lock);
}
static void name_front(struct front *front, unsigned class) {
    explore_name(&front->top[class], "top");
    explore_name(&front->lo[class], "lo");
    explore_name(&front->hi[class], "hi");
    explore_name(&front->popping, "popping");
}

/* Leaves STACKED blocks in the stack, and two in hand. */
static void begin_owner(unsigned stacked) {
    void *some[DEPTH];
    deepen();
    for (unsigned i = 0; i < stacked; i++) some[i] = model_take(BYTES);
    blocks[1] = model_take(BYTES);
    blocks[0] = model_take(BYTES); /* the first of the list */
    for (unsigned i = 0; i < stacked; i++) model_give(some[i]);
    owner = thread_heap();
    EXPLORE_CHECK(stack_held(owner, CLASS) == stacked);
    name_front(&owner->front, CLASS);
    model_name_heap(owner);
    model_name_slab(blocks[0]);
}
static void begin_with_none(void) { begin_owner(0); }
static void begin_with_two(void) { begin_owner(2); }
static void begin_with_full(void) { begin_owner(DEPTH); }
/* Two in hand, and one of the next larger size in the stack. */
static void begin_with_larger(void) {
    thread_ensure_heap();
    for (unsigned i = 0; i < 2; i++) blocks[i] = model_take(BYTES);
    owner = thread_heap();
    for (unsigned i = 0; i < 32 && stack_held(owner, LARGER_CLASS) == 0; i++) model_give(model_take(LARGER_BYTES));
    EXPLORE_CHECK(stack_held(owner, LARGER_CLASS) == 1);
    name_front(&owner->front, LARGER_CLASS);
    model_name_heap(owner);
}
static void begin_other(void) {
    deepen();
    other = thread_heap();
    name_front(&other->front, CLASS);
    model_name_heap(other);
}

static void take(void) { taken[0] = model_take(BYTES); }
static void take_twice(void) {
    taken[0] = model_take(BYTES);
    taken[1] = model_take(BYTES);
}
static void take_another(void) { taken[1] = model_take(BYTES); }
static void give(void) { model_give(blocks[0]); }
static void give_last(void) { model_give(blocks[1]); }
static void take_and_give(void) {
    take();
    model_give(taken[0]);
}
static void give_and_take(void) {
    give();
    take();
}
static void take_give_give(void) {
    take_and_give();
    give();
}
static void end(void) { model_thread_exit(); }
static void end_and_retire(void) {
    end();
    thread_retire_parked(owner);
    remote_settle();
}
static void purge(void) {
    span_purging_lock();
    purge_step(PURGE_ALL);
    span_purging_unlock();
}

/* What is used are slabs and large blocks. */
static void check(void *const *in_use, size_t count, size_t large_pages) {
    struct span_counts counts;
    uint64_t slab_pages = 0;
    model_check_blocks(in_use, count);
    model_check_spans();
    span_counts_read(&counts);
    for (const struct heap *heap = &commons; heap != NULL; heap = registry_next(heap)) {
        slab_pages += counter_read(&heap->bins[CLASS].slab_count) * PAGES;
        slab_pages += counter_read(&heap->bins[LARGER_CLASS].slab_count) * LARGER_PAGES;
        EXPLORE_CHECK(!atomic_load(&heap->front.popping) && !heap->raised);
    }
    EXPLORE_CHECK(counts.used_pages == slab_pages + large_pages);
}
static void check_in_hand(void) { check(blocks, 2, 0); }
static void check_given(void) { check(&blocks[1], 1, 0); }
static void check_all_given(void) { check(NULL, 0, 0); }
static void check_taken(void) { check((void *[]){blocks[0], blocks[1], taken[0]}, 3, 0); }
static void check_taken_twice(void) { check((void *[]){blocks[0], blocks[1], taken[0], taken[1]}, 4, 0); }
static void check_given_and_taken(void) { check((void *[]){blocks[1], taken[0]}, 2, 0); }
static void check_given_and_taken_twice(void) { check((void *[]){blocks[1], taken[0], taken[1]}, 3, 0); }
static void check_other_taken(void) { check((void *[]){blocks[1], taken[1]}, 2, 0); }
static void check_both_taken(void) { check((void *[]){blocks[0], blocks[1], taken[1]}, 3, 0); }
static void check_all_given_and_taken(void) { check(taken, 1, 0); }

/* ---- the stack of a sleeper ------------------------------------------------------------------------------------------- */

static void setup_without_others(void (*begin)(void)) {
    model_start();
    explore_as(0, begin);
    explore_as(1, model_without_heap);
    explore_as(2, model_without_heap);
}
static void setup_none(void) { setup_without_others(begin_with_none); }
static void setup_two(void) { setup_without_others(begin_with_two); }
static void setup_larger(void) { setup_without_others(begin_with_larger); }
static void setup_full(void) { setup_without_others(begin_with_full); }
static void revoke(void) {
    stack_raise(owner);
    stack_take(owner, os_barrier_others());
}
static void revoke_and_take(void) {
    revoke();
    take_another();
}
static bool is_owners(const struct heap *heap) { return heap == owner; }
static void reclaim(void) {
    stack_reclaim_lock();
    stack_reclaim(is_owners);
    stack_reclaim_unlock();
}
static void reveal(void) {
    reveal_helped();
    reveal_others(0);
}

EXPLORE(medium_pop, .setup = setup_two, .threads = {take, revoke}, .check = check_taken);
EXPLORE(medium_pop_larger, .setup = setup_larger, .threads = {take, revoke}, .check = check_taken);
EXPLORE(medium_push, .setup = setup_two, .threads = {give, revoke}, .check = check_given);
EXPLORE(medium_pop_twice, .setup = setup_two, .threads = {take_twice, revoke}, .check = check_taken_twice);
EXPLORE(medium_pop_and_push, .setup = setup_two, .threads = {take_and_give, revoke}, .check = check_in_hand);
EXPLORE(medium_push_and_pop, .setup = setup_two, .threads = {give_and_take, revoke}, .check = check_given_and_taken);
EXPLORE(medium_pop_push_push, .setup = setup_two, .threads = {take_give_give, revoke}, .check = check_given);
EXPLORE(medium_spilled, .setup = setup_full, .threads = {give, revoke}, .check = check_given);
EXPLORE(medium_pop_and_used_again, .setup = setup_two, .threads = {take, revoke_and_take}, .check = check_taken_twice);
EXPLORE(medium_push_and_used_again, .setup = setup_two, .threads = {give, revoke_and_take}, .check = check_other_taken);
EXPLORE(medium_revoked_twice, .setup = setup_two, .threads = {take, reclaim, reclaim}, .check = check_taken);
EXPLORE(medium_revoked_twice_and_pushed, .setup = setup_two, .threads = {give_and_take, reclaim, reclaim},
        .check = check_given_and_taken);
EXPLORE(medium_by_purge, .setup = setup_two, .threads = {give_and_take, purge}, .check = check_given_and_taken);
EXPLORE(medium_by_reveal, .setup = setup_two, .threads = {take_twice, reveal}, .check = check_taken_twice);
EXPLORE(medium_end_and_revoke, .setup = setup_two, .threads = {end, revoke}, .check = check_in_hand);

/* ---- freed by another, who has room for it or has not ------------------------------------------------------------------ */

static void setup_with_other(void (*begin)(void)) {
    model_start();
    explore_as(0, begin);
    explore_as(1, begin_other);
    explore_as(2, model_without_heap);
}
static void setup_other_and_none(void) { setup_with_other(begin_with_none); }
static void setup_other_and_two(void) { setup_with_other(begin_with_two); }
static void setup_other_and_full(void) { setup_with_other(begin_with_full); }
static void give_and_take_another(void) {
    give();
    take_another();
}
static void revoke_other(void) {
    stack_raise(other);
    stack_take(other, os_barrier_others());
}
static void give_in_a_handler(void) {
    thread_state.busy = true;
    give();
    thread_state.busy = false;
}

EXPLORE(medium_given_back, .setup = setup_none, .threads = {take, give}, .check = check_given_and_taken);
EXPLORE(medium_taken_over, .setup = setup_other_and_none, .threads = {take, give}, .check = check_given_and_taken);
EXPLORE(medium_taken_over_and_used, .setup = setup_other_and_none, .threads = {take, give_and_take_another},
        .check = check_given_and_taken_twice);
EXPLORE(medium_by_two_freers, .setup = setup_other_and_none, .threads = {take, give, give_last}, .check = check_all_given_and_taken);
EXPLORE(medium_beside_owners_free, .setup = setup_other_and_full, .threads = {give_last, give}, .check = check_all_given);
EXPLORE(medium_taken_over_and_revoked, .setup = setup_other_and_none, .threads = {take, give_and_take_another, revoke_other},
        .check = check_given_and_taken_twice);
EXPLORE(medium_in_a_handler, .setup = setup_none, .threads = {take_twice, give_in_a_handler},
        .check = check_given_and_taken_twice);
EXPLORE(medium_given_back_and_end, .setup = setup_two, .threads = {end_and_retire, give}, .check = check_given);
EXPLORE(medium_taken_over_and_end, .setup = setup_other_and_two, .threads = {end_and_retire, give_and_take_another}, .check = check_other_taken);
EXPLORE(medium_given_back_and_purge, .setup = setup_none, .threads = {purge, give}, .check = check_given);
EXPLORE(medium_taken_over_and_purge, .setup = setup_other_and_two, .threads = {purge, give_and_take_another},
        .check = check_other_taken);
EXPLORE(medium_taken_over_purge_take, .setup = setup_other_and_two, .threads = {purge, give, take}, .check = check_given_and_taken,
        .deep = true);

/* Each frees a block of the other. */
static void setup_crossed(void) {
    setup_other_and_two();
    explore_as(1, take_another);
}
static void give_taken(void) { model_give(taken[1]); }
EXPLORE(medium_crossed, .setup = setup_crossed, .threads = {give_taken, give}, .check = check_given);
EXPLORE(medium_both_reveal, .setup = setup_crossed, .threads = {reveal, reveal}, .check = check_both_taken);

/* Who took one over ends. */
static void give_and_end(void) {
    give();
    end();
}
static void retire_other(void) {
    thread_retire_parked(other);
    remote_settle();
}
EXPLORE(medium_taken_over_and_left, .setup = setup_other_and_two, .threads = {retire_other, give_and_end}, .check = check_given);

/* The owner has ended. What he left is handed over while others free it, or begin with it. */
static void begin_and_end(void) {
    begin_with_two();
    end();
}
static void setup_parked(void) {
    model_start();
    explore_as(1, begin_other); /* with another heap */
    explore_as(0, begin_and_end);
}
static void setup_parked_without_others(void) {
    model_start();
    explore_as(0, begin_and_end);
    explore_as(1, model_without_heap);
}
static void retire(void) {
    thread_retire_parked(owner);
    remote_settle();
}
EXPLORE(medium_given_back_and_retire, .setup = setup_parked_without_others, .threads = {retire, give}, .check = check_given);
EXPLORE(medium_taken_over_and_retire, .setup = setup_parked, .threads = {retire, give_and_take_another}, .check = check_other_taken);
EXPLORE(medium_taken_over_and_begin, .setup = setup_parked, .threads = {retire, give, take}, .check = check_given_and_taken);

/* ---- made longer ------------------------------------------------------------------------------------------------------- */

static void lengthen(void) {
    void *at = heap_resize(blocks[0], BYTES + 65536);
    EXPLORE_CHECK(at == NULL || at == blocks[0]); /* it is not moved, since it is short */
    EXPLORE_CHECK(*(void **)blocks[0] == blocks[0]);
}
static void lengthen_and_give(void) {
    lengthen();
    give();
}
static void check_large(void *const *in_use, size_t count) {
    const uint32_t first = (uint32_t)page_index(blocks[0]);
    EXPLORE_CHECK(page_word(first) == WORD_LARGE && *(void **)blocks[0] == blocks[0]);
    check(in_use, count, span_at(first)->pages);
}
static void check_lengthened(void) { check_large(&blocks[1], 1); }
static void check_lengthened_and_taken(void) { check_large((void *[]){blocks[1], taken[0]}, 2); }
static void check_lengthened_and_given(void) { check_large(NULL, 0); }

EXPLORE(medium_lengthened, .setup = setup_none, .threads = {take, lengthen}, .check = check_lengthened_and_taken);
EXPLORE(medium_lengthened_and_given, .setup = setup_other_and_full, .threads = {give_last, lengthen_and_give}, .check = check_all_given);
EXPLORE(medium_lengthened_by_owner, .setup = setup_two, .threads = {lengthen, revoke, give_last},
        .check = check_lengthened_and_given);
EXPLORE(medium_lengthened_and_end, .setup = setup_two, .threads = {end_and_retire, lengthen}, .check = check_lengthened);
EXPLORE(medium_lengthened_and_retire, .setup = setup_parked, .threads = {retire, lengthen}, .check = check_lengthened);
EXPLORE(medium_lengthened_and_purge, .setup = setup_two, .threads = {purge, lengthen}, .check = check_lengthened);

/* ---- statistics -------------------------------------------------------------------------------------------------------- */

static struct stats_totals totals;
static void read_all(void) { stats_read_totals(&totals); }
static void check_totals(void) {
    enum { MOST = 8 << 20 };
    EXPLORE_CHECK(totals.held_bytes < MOST && totals.large_bytes < MOST && totals.cached_bytes < MOST);
    EXPLORE_CHECK(totals.in_use_bytes <= totals.held_bytes && totals.large_blocks < 1000);
    check_given();
}
EXPLORE(medium_and_stats, .setup = setup_other_and_none, .threads = {read_all, give}, .check = check_totals);
