/* purge.c - what one step of returning memory to the kernel does. A step runs under the purging lock.
 *
 * Free spans decay at every step. Every VISIT_MS the heaps are visited: inboxes are drained, and the blocks in the
 * stacks and the buffer of a heap whose owner did nothing since the last visit are freed; a parked heap is retired
 * then, some slabs at a time. After that, slabs that did not change for some half-lives are searched for holes; now and then that search asks
 * for huge pages again, too, where all is in use again. If no thread worked for a while, no peak is expected to come back
 * soon, and free spans decay as fast as was configured. */
#include "heap/purge.h"

#include "ace/pace.h"
#include "base/bits.h"
#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "heap/thread.h"

/* A thread that slept at this many visits in a row has no share of what threads may keep: its stacks are empty. One
 * that wakes every second or so keeps its share: otherwise the shares of the others would fluctuate. */
enum { SLEEPER_VISITS = 8 };

/* The most that one step does. */
enum { STEP_SPAN_PAGES = 512, STEP_LOOKED_AT_PAGES = 4096, STEP_HOLES = 64 };

enum { SEARCHES_PER_MENDING = 8 }; /* which asks the kernel how much is resident */

static struct {
    uint64_t visit_ms;
    uint64_t work_ms;        /* when work was last seen */
    _Atomic bool saw_work;   /* read by other threads, too */
    bool asleep;             /* no thread worked for a while */
    bool searching;          /* a search for holes has begun, and goes on at next_page */
    bool all;                /* it takes slabs of any age */
    bool left;               /* it found something that is not due, or holes: there may be more next time */
    bool mending;            /* it asks for huge pages again */
    uint32_t searches;
    size_t next_page;
    uint64_t to_purge;       /* pages: those dirty when everything was asked for, less what was purged since */
    uint64_t in_use_bytes;   /* when it began */
    uint64_t returned_bytes; /* by this step */
} state;

bool purge_saw_work(void) { return atomic_load_explicit(&state.saw_work, memory_order_relaxed); }

/* ---- heaps ------------------------------------------------------------------------------------------- */

/* relaxed: a hint. */
static void **look_at(const front_slot *slot) { return atomic_load_explicit(slot, memory_order_relaxed); }

/* Whether no thread worked in HEAP since the last call, by slow paths or by fast ones. */
static bool sleeps(struct heap *heap) {
    uint32_t ticks = atomic_load_explicit(&heap->ticks, memory_order_relaxed); /* a hint */
    uintptr_t tops = (uintptr_t)look_at(&heap->front.buffer_top);
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        tops = tops * 31 + (uintptr_t)look_at(&heap->front.top[class]);
    bool sleeps = ticks == heap->ticks_seen && tops == heap->tops_seen;
    heap->ticks_seen = ticks;
    heap->tops_seen = tops;
    return sleeps;
}

/* Nothing is left in it until a thread begins with it; or it is forsaken, and another's to reap (thread.c). Hints, all: at worst it is
 * visited the next time. */
static bool is_retired(const struct heap *heap) {
    return atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_DEAD &&
           !atomic_load_explicit(&heap->seems_parked, memory_order_relaxed) &&
           atomic_load_explicit(&heap->slab_total, memory_order_relaxed) == 0;
}

static bool is_visited(const struct heap *heap) { return heap->visited; }

/* Does what sleeping owners would do at their next slow path; with ALL for every owner. */
static void visit_heaps(bool all) {
    bool saw_work = false;
    uint32_t sleepers = 0;
    struct heap *const first = registry_first();
    for (struct heap *heap = first; heap != NULL; heap = heap->next) {
        heap->visited = false;
        if (is_retired(heap)) continue;
        bool asleep = sleeps(heap);
        saw_work |= !asleep;
        heap->visited = asleep || all;
        heap->asleep_visits = (uint8_t)(asleep ? min_u32(heap->asleep_visits + 1u, SLEEPER_VISITS) : 0);
        const uint32_t life = atomic_load_explicit(&heap->state, memory_order_relaxed); /* a hint, too */
        if (life == HEAP_DEAD) {
            state.left |= !heap->visited || !thread_retire_some(heap);
        } else {
            sleepers += life == HEAP_LIVE && heap->asleep_visits == SLEEPER_VISITS;
        }
        if (heap->visited) state.left |= buffer_take_unlocked(heap);
    }
    registry_note_sleepers(sleepers);
    atomic_store_explicit(&state.saw_work, saw_work, memory_order_relaxed); /* a hint */
    stack_reclaim_lock();
    state.left |= stack_reclaim(is_visited);
    stack_reclaim_unlock();
    /* Of every heap: an owner that is awake drains only when a bin is used up. */
    for (struct heap *heap = first; heap != NULL; heap = heap->next) state.left |= remote_drain_unlocked(heap);
    state.left |= remote_drain_unlocked(&commons);
    remote_settle();
    large_settle();
}

/* ---- holes ------------------------------------------------------------------------------------------- */

/* Returns every hole of a slab to the kernel; the result is how many. While the kernel works on one its blocks are
 * taken, so the slab stays. */
static unsigned give_holes(uint32_t first) {
    unsigned holes = 0;
    struct slab_hole hole;
    struct heap *owner = bin_lock_owner(first);
    for (uint32_t from = 0; owner != NULL && slab_hole_take(first, &from, &hole);) {
        const unsigned class = slab_at(first)->span.class;
        counter_add(&owner->bins[class].taken_blocks, hole.held);
        bin_settle(owner, first);
        os_lock_drop(&owner->lock);
        bool zeroed = span_purge_part(hole.start, hole.bytes);
        if (zeroed) state.returned_bytes += hole.bytes;
        holes++;
        owner = bin_lock_owner(first); /* some of its blocks are taken by us, so there is one */
        slab_hole_give(first, &hole, zeroed);
        counter_sub(&owner->bins[class].taken_blocks, hole.held);
        uint32_t free = slab_at(first)->free, blocks = slab_classes[class].blocks;
        bin_settle(owner, first);
        if (free == blocks) { /* released */
            state.to_purge += slab_classes[class].pages;
            break;
        }
        state.left = true;
    }
    if (owner != NULL) os_lock_drop(&owner->lock);
    return holes;
}

/* Whether it is time to search the slab at FIRST, if there is one: once it stayed unchanged for RIPE visits. */
static bool is_ripe(uint32_t first, uint8_t ripe) {
    /* relaxed, all: hints, and the purging lock is held. */
    if (page_word(first) == WORD_NONE || page_word(first) == WORD_LARGE) return false;
    struct slab *slab = slab_at(first);
    if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == NULL) return false;
    uint8_t age = atomic_load_explicit(&slab->age, memory_order_relaxed);
    if (age == SLAB_SEARCHED) return false;
    /* While the program works a hole is not worth breaking a huge page. */
    bool is_ripe = age >= ripe && (state.all || state.asleep || !span_may_be_huge(first));
    if (!is_ripe) state.left = true;
    uint8_t older = is_ripe ? SLAB_SEARCHED : age < SLAB_OLDEST ? age + 1 : SLAB_OLDEST;
    atomic_store_explicit(&slab->age, older, memory_order_relaxed);
    return is_ripe;
}

/* For how many visits a slab must stay unchanged: some half-lives, as for free spans. */
static uint8_t ripe_age(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return (uint8_t)ace_holes_ripe((struct ace_holes_input){
        .half_life_ms = counts.half_life_ms,
        .visit_ms = VISIT_MS,
        .most = SLAB_OLDEST,
        .objective = heap_settings.objective,
    });
}

static void mend_chunks(size_t from, size_t end) {
    for (size_t page = round_up(from, CHUNK_PAGES); page < end; page += CHUNK_PAGES) span_mend((uint32_t)page);
}

/* Looks at some of the slabs. True when none is left. */
static bool search_slabs(void) {
    const uint8_t ripe = state.all ? SLAB_CHANGED : ripe_age();
    const size_t from = state.next_page, end = span_end_page(), stop = min_size(end, from + STEP_LOOKED_AT_PAGES);
    for (unsigned holes = 0; state.next_page < stop && holes < STEP_HOLES; state.next_page++)
        if (is_ripe((uint32_t)state.next_page, ripe)) holes += give_holes((uint32_t)state.next_page);
    if (state.mending) mend_chunks(from, state.next_page);
    return state.next_page >= end;
}

/* If no thread worked for a while, no peak is expected to come back soon. */
static void set_pace(uint64_t now_ms) {
    const uint64_t idle_ms = now_ms - state.work_ms;
    const bool asleep = ace_pace(idle_ms, heap_settings.objective) == ACE_PACE_ASLEEP;
    if (asleep == state.asleep) return;
    heap_tell(&(struct ace_decision){
        .reason = asleep ? ACE_REASON_SLEEPS : ACE_REASON_WORKS,
        .from = state.asleep,
        .to = asleep,
        .inputs = {asleep ? idle_ms : 0},
    });
    state.asleep = asleep;
}

static uint64_t dirty_pages(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.dirty_pages;
}

static void begin_search(bool all, uint64_t now_ms) {
    state.searching = true;
    state.all = all;
    state.left = false;
    state.mending = !all && state.searches++ % SEARCHES_PER_MENDING == 0;
    state.next_page = CHUNK_PAGES;
    state.visit_ms = now_ms;
    state.in_use_bytes = footprint_in_use();
    visit_heaps(all);
    if (all) state.to_purge = dirty_pages(); /* no more than these: other threads may go on freeing for ever */
    if (purge_saw_work()) state.work_ms = now_ms;
    set_pace(now_ms);
}

/* ---- the step ---------------------------------------------------------------------------------------- */

/* Purges some of what was asked for, due or not. */
static struct span_purged purge_some(void) {
    const uint64_t wanted = min_size(state.to_purge, STEP_SPAN_PAGES);
    const struct span_purged purged = span_purge(wanted);
    state.to_purge = purged.tried_pages < wanted ? 0 : state.to_purge - min_size(state.to_purge, purged.tried_pages);
    return purged;
}

enum purge_result purge_step(enum purge_pace pace) {
    uint64_t now_ms = os_clock_ms();
    if (pace == PURGE_ALL || (pace == PURGE_DUE && !state.searching && now_ms - state.visit_ms >= VISIT_MS))
        begin_search(pace == PURGE_ALL, now_ms);
    state.returned_bytes = 0;
    bool ended = state.searching && search_slabs(), more = state.searching && !ended, more_spans;
    struct span_purged purged;
    if (pace == PURGE_DUE) {
        purged = span_decay(state.asleep ? SPAN_PACE_IDLE : SPAN_PACE_WORK, STEP_SPAN_PAGES, &more_spans);
    } else {
        purged = purge_some();
        more_spans = state.to_purge != 0;
    }
    footprint_returned(state.returned_bytes + purged.given_pages * PAGE_BYTES);
    if (ended) state.searching = false;
    if (more || more_spans) return PURGE_MORE;
    if (state.left || span_dirty_left() != 0) return PURGE_LATER;
    if (ended) footprint_settled(state.in_use_bytes);
    return PURGE_DONE;
}

enum purge_result purge_steps(enum purge_pace pace) {
    enum purge_result result;
    do {
        span_purging_lock();
        result = purge_step(pace);
        span_purging_unlock();
        if (pace == PURGE_ALL) pace = PURGE_ALL_ON;
    } while (result == PURGE_MORE);
    return result;
}

uint64_t heap_collect(void) {
    if (!slow_enter()) return 0;
    struct heap *heap = thread_heap();
    if (heap != NULL) { /* the only stacks that may be emptied directly */
        os_lock_take(&heap->lock);
        stack_empty_all(heap);
        footprint_tell(&heap->in_use_change); /* before the search reads what is in use: it settles the peak by that */
        os_lock_drop(&heap->lock);
    }
    while (thread_reap_forsaken()) {}
    uint64_t before = atomic_load_explicit(&os_counters.purged_bytes, memory_order_relaxed); /* a statistic */
    purge_steps(PURGE_ALL);
    uint64_t after = atomic_load_explicit(&os_counters.purged_bytes, memory_order_relaxed);
    slow_leave();
    return after - before;
}
