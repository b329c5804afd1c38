/* purge.c - giving back to the kernel what has been free for a while.
 *
 * The fewest dirty pages of a period were not needed in it: of these a share is given back at its end. What is used
 * again later was given back for nothing: ace_half_life_next then takes more time over it. */
#include "ace/decay.h"
#include "base/bits.h"
#include "span/bins.h"
#include "span/pages.h"
#include "span/state.h"

/* Less than KEPT_PAGES stay. */
enum { LEAST_TICK_MS = 20, KEPT_PAGES = 16, LATELY_MS = 2000 };

static struct {
    uint64_t low_water_pages; /* fewest dirty pages since the last tick */
    uint64_t tick_ms;
    uint64_t retaken, returned; /* lately: halved every now and then, and gone with a change of the half-life */
    uint64_t retaken_seen;      /* of retaken, by the last tick */
    uint64_t quiet_since_ms;    /* when pages were last seen to be used again */
    uint64_t halved_ms;
} decay;

bool span_purging_try(void) { return os_lock_try(&spans.purging); }
void span_purging_lock(void) { os_lock_take(&spans.purging); }
void span_purging_unlock(void) { os_lock_drop(&spans.purging); }
void span_purging_reset(void) { os_lock_reset(&spans.purging); }

void purge_note_taken(uint32_t returned) {
    if (spans.counts.dirty_pages < decay.low_water_pages) decay.low_water_pages = spans.counts.dirty_pages;
    decay.retaken += returned;
    spans.counts.retaken_pages += returned;
}

/* ---- the system calls ------------------------------------------------------------------------------ */

static bool give_back(uint32_t first, uint32_t pages, bool moved) {
    void *start = page_address(first);
    if (moved) return os_renew(start, pages * PAGE_BYTES);
    huge_break(first, pages);
    return os_purge(start, pages * PAGE_BYTES);
}

/* Gives one run of at most LIMIT dirty free pages back. The run is a used span while the kernel works on it, so nobody
 * takes or merges it. Returns its length; 0 when there is none, or the kernel refused. */
static uint32_t purge_one(uint32_t limit) {
    span_lock();
    uint32_t head = bins_find_dirty(), first = head, run = 0;
    if (head != 0) run = min_u32(pages_next_dirty(&first, head + span_at(head)->pages), limit);
    if (run != 0) span_carve(head, first, run);
    bool moved = run != 0 && pages_any_moved(first, run);
    span_unlock();
    if (run == 0) return 0;

    bool zeroed = give_back(first, run, moved);

    span_lock();
    if (zeroed) {
        pages_mark_returned(first, run);
        if (moved) {
            pages_mark_moved(first, run, false);
            if (spans.moved_runs != 0) spans.moved_runs--;
        }
        spans.counts.returned_pages += run;
        decay.returned += run;
    }
    uint32_t free_span = span_free(first, run);
    if (!zeroed) bins_set_refused(free_span);
    span_unlock();
    return zeroed ? run : 0;
}

static void purge_pages(uint64_t pages) {
    while (pages != 0) {
        uint32_t purged = purge_one((uint32_t)min_size(pages, UINT32_MAX));
        if (purged == 0) return;
        pages -= min_size(pages, purged);
    }
}

void span_purge_all(void) { purge_pages(UINT64_MAX); }

uint64_t span_dirty_left(void) {
    span_lock();
    uint64_t dirty = spans.counts.dirty_pages;
    span_unlock();
    return dirty > KEPT_PAGES ? dirty : 0;
}

bool span_purge_part(void *address, size_t bytes) {
    size_t first = page_index(address), last = page_index((char *)address + bytes - 1);
    huge_break((uint32_t)first, (uint32_t)(last - first + 1));
    if (!os_purge(address, bytes)) return false;
    span_lock();
    spans.counts.part_bytes += bytes;
    span_unlock();
    return true;
}

/* ---- when and how much ------------------------------------------------------------------------------ */

/* Lock held. */
static void adapt_half_life(uint64_t now_ms) {
    if (decay.retaken > decay.retaken_seen) decay.quiet_since_ms = now_ms;
    struct ace_half_life_decision next = ace_half_life_next((struct ace_half_life_input){
        .half_life_ms = spans.counts.half_life_ms,
        .configured_ms = spans.settings.decay_half_life_ms,
        .quiet_ms = now_ms - decay.quiet_since_ms,
        .returned = decay.returned,
        .retaken = decay.retaken,
    });
    if (next.reason == ACE_HALF_LIFE_QUIET) decay.quiet_since_ms = now_ms;
    if (next.reason != ACE_HALF_LIFE_KEEP) decay.returned = decay.retaken = 0;
    if (now_ms - decay.halved_ms >= max_size(LATELY_MS, 2 * next.half_life_ms)) {
        decay.halved_ms = now_ms;
        decay.returned /= 2;
        decay.retaken /= 2;
    }
    decay.retaken_seen = decay.retaken;
    spans.counts.half_life_ms = next.half_life_ms;
}

/* How many pages are due now. Starts the next period. */
static uint64_t pages_due(void) {
    uint64_t due = 0;
    uint64_t now_ms = os_clock_ms();
    span_lock();
    uint64_t elapsed_ms = now_ms - decay.tick_ms;
    if (decay.tick_ms == 0 || now_ms < decay.tick_ms) {
        decay.tick_ms = decay.quiet_since_ms = decay.halved_ms = now_ms;
    } else if (elapsed_ms >= LEAST_TICK_MS && elapsed_ms >= spans.counts.half_life_ms / 8) {
        adapt_half_life(now_ms);
        due = ace_decay_pages(decay.low_water_pages, elapsed_ms, spans.counts.half_life_ms);
        decay.tick_ms = now_ms;
        decay.low_water_pages = spans.counts.dirty_pages;
        if (spans.counts.dirty_pages <= KEPT_PAGES) due = 0;
    }
    span_unlock();
    return due;
}

void span_decay_plainly(void) {
    span_lock();
    spans.counts.half_life_ms = spans.settings.decay_half_life_ms;
    decay.returned = decay.retaken = decay.retaken_seen = 0;
    span_unlock();
}

void span_decay(uint64_t most_pages) {
    if (spans.settings.decay_half_life_ms != ACE_NEVER) purge_pages(min_size(pages_due(), most_pages));
}
