/* purge.c - returning to the kernel what has been free for a while.
 *
 * While the program works, the fewest dirty pages of the last one or two windows of time are what was not needed in
 * them: a share of these is returned at each tick. While it sleeps, a share of all dirty pages is. What is used again later was
 * returned in vain: ace_half_life_next then lengthens the half-life. */
#include "ace/decay.h"
#include "ace/pace.h"
#include "base/bits.h"
#include "span/bins.h"
#include "span/pages.h"
#include "span/state.h"

/* A window outlasts the time between two peaks of a server: what one peak leaves serves the
 * next (decision 0014). */
enum { LEAST_TICK_MS = 20, LATELY_MS = 2000, WINDOW_HALF_LIVES = 10 };

static struct {
    uint64_t low_water_pages;        /* fewest dirty pages of this window */
    uint64_t low_water_before_pages; /* and of the one before */
    uint64_t window_ms, tick_ms;     /* when they began */
    uint64_t retaken,
        returned;            /* lately: halved now and then, and cleared by a change of the half-life */
    uint64_t retaken_seen;   /* retaken at the last tick */
    uint64_t quiet_since_ms; /* when pages were last seen to be used again */
    uint64_t halved_ms;
    uint64_t due; /* pages due by the ticks so far; guarded by the purging lock */
} decay;

bool span_purging_try(void) { return os_lock_try(&spans.purging); }
void span_purging_lock(void) { os_lock_take(&spans.purging); }
void span_purging_unlock(void) { os_lock_drop(&spans.purging); }

void span_purging_reset(void) {
    os_lock_reset(&spans.purging);
    huge_note_child();
}

void purge_note_taken(uint32_t returned) {
    decay.low_water_pages = min_size(decay.low_water_pages, counter_read(&spans.counts.dirty_pages));
    decay.retaken += returned;
    counter_add(&spans.counts.retaken_pages, returned);
}

/* ---- the system calls ------------------------------------------------------------------------------ */

enum given { GIVEN, GIVEN_RENEWED, GIVEN_REFUSED, GIVEN_LOST };

static enum given give_back(uint32_t first, uint32_t pages, bool moved) {
    void *start = page_address(first);
    huge_break(first, pages); /* what is mapped afresh, too, would otherwise be made part of a huge page again */
    const enum os_moved renewed = moved ? os_renew(start, pages * PAGE_BYTES) : OS_NOT_MOVED;
    if (renewed == OS_MOVE_RENEWED) {
        huge_advise_again(first, pages);
        return GIVEN_RENEWED;
    }
    if (os_purge(start, pages * PAGE_BYTES)) return GIVEN;
    return renewed == OS_MOVE_LOST ? GIVEN_LOST : GIVEN_REFUSED;
}

/* Chunk by chunk, after the whole was refused: a single locked page keeps no more than its chunk. Returns how many
 * pages were returned. */
static uint32_t give_chunks_back(uint32_t first, uint32_t pages) {
    enum { TRIES = 2 }; /* if these are in vain, no chunk will go */
    uint32_t given = 0, tries = 0;
    for (uint32_t at = first, end = first + pages; at < end && (given != 0 || tries++ < TRIES);) {
        uint32_t part = min_u32(end - at, CHUNK_PAGES - at % CHUNK_PAGES);
        if (os_purge(page_address(at), part * PAGE_BYTES)) {
            span_lock();
            pages_mark_returned(at, part);
            span_unlock();
            given += part;
        }
        at += part;
    }
    return given;
}

/* The first run of dirty pages at or after FROM in the free span at HEAD, or the first MOST pages of it. */
static struct page_run dirty_run(uint32_t head, uint32_t from, uint32_t most) {
    uint32_t pages = pages_next_dirty(&from, head + span_at(head)->pages, most);
    return (struct page_run){from, pages};
}

/* The first dirty whole chunks of it, about MOST pages and at least a chunk. */
static struct page_run dirty_chunks(uint32_t head, uint32_t most) {
    for (uint32_t from = head;;) {
        struct page_run run = dirty_run(head, from, most + CHUNK_PAGES), whole = whole_chunks(run); /* it may begin within one */
        if (run.pages == 0 || whole.pages != 0) return whole;
        from = (uint32_t)(run.first + run.pages);
    }
}

static bool has_whole_chunk(uint32_t head) {
    return span_at(head)->dirty >= CHUNK_PAGES && dirty_chunks(head, CHUNK_PAGES).pages != 0;
}

/* The first run of about LIMIT dirty pages at most, or of one huge page, of a free span of ZONE, other than that at SPARED. Of huge pages,
 * while the program works, whole ones only: breaking one would cost it more than a part is worth. Otherwise a run that goes on ends with
 * one: its rest is next, and breaking it would be in vain. The span in *HEAD. Lock held. */
static struct page_run find_run(enum span_zone zone, uint32_t spared, enum span_pace pace, uint32_t limit, uint32_t *head) {
    const bool huge = zone == ZONE_HUGE, whole = huge && pace == SPAN_PACE_WORK;
    *head = bins_find_dirty(zone, spared, whole ? has_whole_chunk : NULL);
    if (*head == 0) return (struct page_run){0, 0};
    if (huge) limit = max_u32(limit - limit % CHUNK_PAGES, CHUNK_PAGES);
    struct page_run run = whole ? dirty_chunks(*head, limit) : dirty_run(*head, *head, limit);
    run.pages = min_size(run.pages, limit);
    const size_t beyond = (run.first + run.pages) % CHUNK_PAGES;
    if (huge && run.pages == limit) run.pages -= beyond; /* at least a chunk, so it does not begin there */
    return run;
}

/* Tries to return one run of dirty free pages, about LIMIT at most, of a span other than that at SPARED, to the kernel, and adds what was
 * returned to *GIVEN_PAGES. The run is a used span while the kernel works on it, so no thread takes or merges it. The result is
 * its length; 0 when there is none. What was refused is not dirty any more. */
static uint32_t purge_one(uint32_t limit, uint32_t spared, enum span_pace pace, uint64_t *given_pages) {
    span_lock();
    uint32_t head;
    struct page_run found = find_run(ZONE_HUGE, spared, pace, limit, &head);
    if (found.pages == 0) found = find_run(ZONE_PLAIN, spared, pace, limit, &head);
    const uint32_t first = (uint32_t)found.first, run = (uint32_t)found.pages;
    if (run != 0) span_carve(head, first, run);
    counter_sub(&spans.counts.used_pages, run); /* not really in use: no limit and no peak is to count it */
    bool moved = run != 0 && pages_any_moved(first, run);
    span_unlock();
    if (run == 0) return 0;

    enum given given = give_back(first, run, moved);
    uint32_t pages = run;
    if (given == GIVEN_REFUSED) pages = run > CHUNK_PAGES ? give_chunks_back(first, run) : 0;
    span_lock();
    counter_add(&spans.counts.used_pages, run);
    if (given == GIVEN_LOST) {
        span_lose(first, run);
        span_unlock();
        return run;
    }
    if (pages == run) pages_mark_returned(first, run);
    if (given == GIVEN_RENEWED) pages_mark_moved(first, run, false);
    counter_add(&spans.counts.returned_pages, pages);
    decay.returned += pages;
    if (pages != run) pages_mark_refused(first, run);
    span_free(first, run);
    span_unlock();
    *given_pages += pages;
    return run;
}

static struct span_purged purge_pages(uint64_t pages, enum span_pace pace) {
    struct span_purged purged = {0, 0};
    for (uint32_t tried = 1; purged.tried_pages < pages && tried != 0; purged.tried_pages += tried)
        tried = purge_one((uint32_t)min_size(pages - purged.tried_pages, window.pages), 0, pace, &purged.given_pages);
    return purged;
}

struct span_purged span_purge(uint64_t most_pages) { return purge_pages(most_pages, SPAN_PACE_IDLE); }

/* The longest runs first, and few of them: that bounds the system calls of one take. */
void purge_before_peak(uint32_t spared, size_t growth) {
    enum { MOST_RUNS = 8 };
    span_lock();
    uint64_t due = ace_decay_before_peak((struct ace_peak_input){
        .held = span_held_bytes() / PAGE_BYTES,
        .peak = counter_read(&spans.held_pages_peak),
        .growth = growth,
        .half_life_ms = spans.settings.decay_half_life_ms,
        .objective = spans.settings.objective,
    });
    span_unlock();
    if (due == 0 || !span_purging_try()) return;
    for (uint32_t runs = 0, tried = 1; runs < MOST_RUNS && due != 0 && tried != 0; runs++) {
        uint64_t given = 0;
        tried = purge_one((uint32_t)min_size(due, window.pages), spared, SPAN_PACE_WORK, &given);
        due -= min_size(due, tried);
    }
    span_purging_unlock();
}

uint64_t span_dirty_left(void) {
    span_lock();
    uint64_t dirty = counter_read(&spans.counts.dirty_pages), kept = ace_kept_pages(spans.settings.objective);
    span_unlock();
    return dirty > kept ? dirty : 0;
}

bool span_purge_part(void *address, size_t bytes) {
    size_t first = page_index(address), last = page_index((char *)address + bytes - 1);
    huge_break((uint32_t)first, (uint32_t)(last - first + 1));
    if (!os_purge(address, bytes)) return false;
    span_lock();
    counter_add(&spans.counts.part_bytes, bytes);
    span_unlock();
    return true;
}

/* ---- when and how much ------------------------------------------------------------------------------ */

static uint64_t window_ms(void) { return WINDOW_HALF_LIVES * spans.settings.decay_half_life_ms; }

/* For how long no returned page was used again, since some could have been. */
static uint64_t quiet_ms(uint64_t now_ms) {
    uint64_t quiet = now_ms - decay.quiet_since_ms;
    return quiet - min_size(quiet, 2 * window_ms());
}

/* Lock held. */
static void tell_half_life(const struct ace_half_life_input *input, struct ace_half_life_decision next) {
    const bool retaken = next.reason == ACE_HALF_LIFE_RETAKEN;
    span_tell(&(struct ace_decision){
        .reason = retaken ? ACE_REASON_RETAKEN : ACE_REASON_QUIET,
        .from = input->half_life_ms,
        .to = next.half_life_ms,
        .inputs = {retaken ? input->returned : input->quiet_ms, retaken ? input->retaken : 0},
    });
}

/* Lock held. */
static void adapt_half_life(uint64_t now_ms) {
    if (spans.settings.fixed) return;
    if (decay.retaken > decay.retaken_seen) decay.quiet_since_ms = now_ms;
    const struct ace_half_life_input input = {
        .half_life_ms = counter_read(&spans.counts.half_life_ms),
        .configured_ms = spans.settings.decay_half_life_ms,
        .quiet_ms = quiet_ms(now_ms),
        .returned = decay.returned,
        .retaken = decay.retaken,
        .objective = spans.settings.objective,
    };
    struct ace_half_life_decision next = ace_half_life_next(input);
    if (next.reason != ACE_HALF_LIFE_KEEP) tell_half_life(&input, next);
    if (next.reason == ACE_HALF_LIFE_QUIET) decay.quiet_since_ms = now_ms - 2 * window_ms();
    if (next.reason != ACE_HALF_LIFE_KEEP) decay.returned = decay.retaken = 0;
    if (now_ms - decay.halved_ms >= max_size(LATELY_MS, 2 * next.half_life_ms)) {
        decay.halved_ms = now_ms;
        decay.returned /= 2;
        decay.retaken /= 2;
    }
    decay.retaken_seen = decay.retaken;
    counter_set(&spans.counts.half_life_ms, next.half_life_ms);
}

/* Dirty pages that were not needed lately. Lock held. */
static uint64_t unused_pages(enum span_pace pace) {
    if (pace == SPAN_PACE_IDLE) return counter_read(&spans.counts.dirty_pages);
    return min_size(decay.low_water_pages, decay.low_water_before_pages);
}

/* relaxed, as counters are: a thread that sees an old half-life sees the new one the next time. */
uint64_t span_decay_tick_ms(void) { return max_size(LEAST_TICK_MS, counter_read(&spans.counts.half_life_ms) / 8); }

/* How many pages are due now. Starts the next period. */
static uint64_t pages_due(enum span_pace pace) {
    uint64_t due = 0;
    uint64_t now_ms = os_clock_ms();
    span_lock();
    uint64_t elapsed_ms = now_ms - decay.tick_ms;
    if (decay.tick_ms == 0 || now_ms < decay.tick_ms) {
        decay.tick_ms = decay.window_ms = decay.quiet_since_ms = decay.halved_ms = now_ms;
    } else if (elapsed_ms >= span_decay_tick_ms()) {
        adapt_half_life(now_ms);
        due = ace_decay_pages(unused_pages(pace), elapsed_ms, counter_read(&spans.counts.half_life_ms));
        decay.tick_ms = now_ms;
        if (now_ms - decay.window_ms >= window_ms()) {
            decay.low_water_before_pages = decay.low_water_pages;
            decay.low_water_pages = counter_read(&spans.counts.dirty_pages);
            decay.window_ms = now_ms;
        }
        if (counter_read(&spans.counts.dirty_pages) <= ace_kept_pages(spans.settings.objective)) due = 0;
    }
    span_unlock();
    return due;
}

void span_decay_forget(void) {
    span_lock();
    const uint64_t learned_ms = counter_read(&spans.counts.half_life_ms), ms = spans.settings.decay_half_life_ms;
    if (learned_ms != ms) span_tell(&(struct ace_decision){.reason = ACE_REASON_FORGOTTEN, .from = learned_ms, .to = ms});
    counter_set(&spans.counts.half_life_ms, ms);
    decay.returned = decay.retaken = decay.retaken_seen = 0;
    span_unlock();
}

struct span_purged span_decay(enum span_pace pace, uint64_t most_pages, bool *more) {
    *more = false;
    span_lock();
    bool never = spans.settings.decay_half_life_ms == ACE_NEVER;
    span_unlock();
    if (never) return (struct span_purged){0, 0};
    if (pace == SPAN_PACE_IDLE) span_decay_forget();
    uint64_t due = pages_due(pace); /* includes what is still due */
    decay.due = max_size(decay.due, due);
    const uint64_t wanted = min_size(decay.due, most_pages);
    const struct span_purged purged = purge_pages(wanted, pace);
    /* What could not be found is no longer due. */
    decay.due = purged.tried_pages < wanted ? 0 : decay.due - min_size(decay.due, purged.tried_pages);
    *more = decay.due != 0;
    return purged;
}
