/* purge.c - what one step of giving back does. Everything here runs under the purging lock.
 *
 * Free spans decay at every step. Every VISIT_MS the heaps are visited: of a heap whose owner took no slow path since
 * the last visit, the blocks that wait in its buffer are given back and its inbox is drained, as the owner would do. Then
 * the slabs: one that did not change for some half-lives is searched for holes. Where nobody worked for a while
 * no peak is to come back soon, and free spans decay as fast as was configured. */
#include "heap/purge.h"

#include "base/bits.h"
#include "heap/alloc.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/registry.h"
#include "heap/thread.h"

enum { VISIT_MS = 400, ASLEEP_MS = 2000, HOLE_HALF_LIVES = 4, SHORT_SPAN_PAGES = 512, SHORT_SLAB_PAGES = 4096 };

static struct {
    uint64_t visit_ms;
    size_t next_page; /* the search for holes goes on here */
    bool left;        /* the last search found something, or will */
    _Atomic bool saw_work; /* read by others, too */
    uint64_t work_ms; /* when work was last seen */
    enum span_pace pace;
} state;

bool purge_saw_work(void) { return atomic_load_explicit(&state.saw_work, memory_order_relaxed); }

/* ---- heaps ------------------------------------------------------------------------------------------- */

/* A heap that nobody works in. */
static bool sleeps(struct heap *heap) {
    uint32_t ticks = atomic_load_explicit(&heap->ticks, memory_order_relaxed); /* a hint */
    bool sleeps = ticks == heap->ticks_seen;
    heap->ticks_seen = ticks;
    return sleeps;
}

static bool has_buffered(struct heap *heap) {
    return atomic_load_explicit(&heap->remote_count, memory_order_relaxed) != 0; /* a hint */
}

static void drain(struct heap *heap) {
    if (atomic_load_explicit(&heap->inbox, memory_order_relaxed) == 0) return; /* a hint */
    os_lock_take(&heap->lock);
    remote_drain(heap);
    os_lock_drop(&heap->lock);
    state.left = true;
}

/* Does what sleeping owners would do at their next slow path; with ALL for every owner. */
static void visit_heaps(bool all) {
    bool wanted = false, saw_work = false;
    struct heap *const first = registry_first();
    for (struct heap *heap = first; heap != NULL; heap = heap->next) {
        bool asleep = sleeps(heap);
        saw_work |= !asleep;
        heap->visited = asleep || all;
        heap->robbed = heap->visited && has_buffered(heap);
        if (heap->robbed) buffer_want(heap);
        wanted |= heap->robbed;
    }
    atomic_store_explicit(&state.saw_work, saw_work, memory_order_relaxed); /* a hint */
    bool barrier_passed = wanted && os_barrier_others();
    for (struct heap *heap = first; heap != NULL; heap = heap->next)
        if (heap->robbed) buffer_take(heap, barrier_passed);
    for (struct heap *heap = first; heap != NULL; heap = heap->next)
        if (heap->visited) drain(heap);
    drain(&commons);
    remote_settle();
}

/* ---- holes ------------------------------------------------------------------------------------------- */

/* Locks the heap that owns the slab at FIRST; NULL when none does. */
static struct heap *lock_owner(uint32_t first) {
    for (;;) {
        /* acquire: pairs with slab_set_owner. */
        struct heap *owner = atomic_load_explicit(&slab_at(first)->owner, memory_order_acquire);
        if (owner == NULL) return NULL;
        os_lock_take(&owner->lock);
        if (atomic_load_explicit(&slab_at(first)->owner, memory_order_relaxed) == owner) return owner; /* locked */
        os_lock_drop(&owner->lock);
    }
}

/* Gives every hole of a slab back. While the kernel works on one its blocks are taken, so the slab stays. */
static void give_holes(uint32_t first) {
    struct slab_hole hole;
    struct heap *owner = lock_owner(first);
    for (uint32_t from = 0; owner != NULL && slab_hole_take(first, &from, &hole);) {
        bin_settle(owner, first);
        os_lock_drop(&owner->lock);
        bool zeroed = span_purge_part(hole.start, hole.bytes);
        owner = lock_owner(first);
        slab_hole_give(first, &hole, zeroed);
        uint32_t free = slab_at(first)->free, blocks = slab_classes[slab_at(first)->span.class].blocks;
        bin_settle(owner, first);
        if (free == blocks) break; /* released */
        state.left = true;
    }
    if (owner != NULL) os_lock_drop(&owner->lock);
}

/* Whether it is time to search the slab at FIRST, if there is one: once it stayed unchanged for RIPE visits. */
static bool is_ripe(uint32_t first, uint8_t ripe) {
    /* relaxed, all: hints, and the purging lock is held. */
    if (page_word(first) == WORD_NONE || page_word(first) == WORD_LARGE) return false;
    struct slab *slab = slab_at(first);
    if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == NULL) return false;
    uint8_t age = atomic_load_explicit(&slab->age, memory_order_relaxed);
    if (age == SLAB_SEARCHED) return false;
    /* While the program works a hole is not worth a huge page. */
    bool is_ripe = age >= ripe && (state.pace == SPAN_PACE_IDLE || !span_may_be_huge(first));
    if (!is_ripe) state.left = true;
    uint8_t older = is_ripe ? SLAB_SEARCHED : age < SLAB_OLDEST ? age + 1 : SLAB_OLDEST;
    atomic_store_explicit(&slab->age, older, memory_order_relaxed);
    return is_ripe;
}

/* How many visits a slab must stay unchanged, as free spans must for some half-lives. */
static uint8_t ripe_age(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return (uint8_t)min_size(HOLE_HALF_LIVES * min_size(counts.half_life_ms, UINT32_MAX) / VISIT_MS, SLAB_OLDEST);
}

/* Looks at up to MOST pages. True at the end of the window. */
static bool search_slabs(size_t most, bool all) {
    size_t end = span_end_page();
    size_t stop = min_size(end, state.next_page + most);
    size_t page = max_size(state.next_page, CHUNK_PAGES);
    const uint8_t ripe = all ? SLAB_CHANGED : ripe_age();
    for (; page < stop; page++)
        if (is_ripe((uint32_t)page, ripe)) give_holes((uint32_t)page);
    state.next_page = page < end ? page : 0;
    return state.next_page == 0;
}

/* ---- the step ---------------------------------------------------------------------------------------- */

static void visit(enum purge_pace pace) {
    uint64_t now_ms = os_clock_ms();
    bool starts = state.next_page == 0;
    if (pace != PURGE_ALL && starts && now_ms - state.visit_ms < VISIT_MS) return;
    if (pace == PURGE_ALL) {
        state.next_page = 0;
        state.pace = SPAN_PACE_IDLE;
    }
    if (starts || pace == PURGE_ALL) {
        state.visit_ms = now_ms;
        state.left = false;
        visit_heaps(pace == PURGE_ALL);
        if (purge_saw_work()) state.work_ms = now_ms;
        if (pace != PURGE_ALL) state.pace = now_ms - state.work_ms >= ASLEEP_MS ? SPAN_PACE_IDLE : SPAN_PACE_WORK;
    }
    search_slabs(pace == PURGE_SHORT ? SHORT_SLAB_PAGES : SIZE_MAX / 2, pace == PURGE_ALL);
}

bool purge_step(enum purge_pace pace) {
    uint64_t before = atomic_load_explicit(&os_counters.purged_bytes, memory_order_relaxed);
    visit(pace);
    if (pace == PURGE_ALL)
        span_purge_all();
    else
        span_decay(state.pace, pace == PURGE_SHORT ? SHORT_SPAN_PAGES : UINT64_MAX);
    uint64_t after = atomic_load_explicit(&os_counters.purged_bytes, memory_order_relaxed);
    footprint_returned(after - before);
    bool left = pace != PURGE_ALL && (state.left || state.next_page != 0 || span_dirty_left() != 0);
    if (!left) footprint_settled();
    return left;
}

uint64_t heap_collect(void) {
    if (!slow_enter()) return 0;
    struct heap *heap = thread_heap();
    if (heap != NULL) { /* the only stacks that may be emptied */
        os_lock_take(&heap->lock);
        for (unsigned class = 0; class < SIZE_CLASSES; class++) stack_empty(heap, class);
        os_lock_drop(&heap->lock);
    }
    thread_reap_forsaken();
    span_purging_lock();
    uint64_t before = atomic_load_explicit(&os_counters.purged_bytes, memory_order_relaxed); /* a statistic */
    purge_step(PURGE_ALL);
    uint64_t after = atomic_load_explicit(&os_counters.purged_bytes, memory_order_relaxed);
    span_purging_unlock();
    slow_leave();
    return after - before;
}
