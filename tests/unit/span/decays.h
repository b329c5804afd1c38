/* decays.h - milliseconds of decay that pass when a test says so; in children, since what decay knows stays in the process. */
#ifndef TESTS_UNIT_SPAN_DECAYS_H
#define TESTS_UNIT_SPAN_DECAYS_H

#include "child.h"
#include "clock.h"
#include "spans.h"

enum { LOOKS = 16, LEAST_TICK_MS = 20, KEPT_PAGES = 16, WINDOW_HALF_LIVES = 10, LONG_MS = 1000000 };

static void decay_at(enum span_pace pace, uint64_t most_pages) {
    span_purging_lock();
    bool more;
    span_decay(pace, most_pages, &more);
    span_purging_unlock();
}

static void decay(uint64_t most_pages) { decay_at(SPAN_PACE_WORK, most_pages); }

static void pass(uint64_t ms) {
    clock_pass(ms);
    for (int i = 0; i < LOOKS; i++) decay(UINT64_MAX);
}

/* PAGES dirty pages that were free through one whole period. Returns how many dirty ones there are. */
static uint64_t make_dirty(uint64_t half_life_ms, uint32_t pages) {
    configure(half_life_ms, UINT64_MAX);
    span_give(take_keyed(pages, false, 1).first);
    purge_all(); /* what was dirty before, too */
    struct mine mine = take_keyed(pages, false, 1);
    pass(LONG_MS);
    CHECK_EQ(span_dirty_left(), 0);
    span_give(mine.first);
    for (int i = 0; i < 2; i++) pass(LONG_MS); /* still used at the beginning of one of two windows */
    CHECK(counts_now().dirty_pages >= pages);
    CHECK_EQ(span_dirty_left(), counts_now().dirty_pages);
    configure(half_life_ms + 1, UINT64_MAX); /* another and back: the half-life is as it was, whatever was used again */
    configure(half_life_ms, UINT64_MAX);
    return counts_now().dirty_pages;
}

#endif
