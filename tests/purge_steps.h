/* purge_steps.h - the steps of giving back, one at a time, with the clock in the test's hands, and another thread that goes
 * only as far as it is let. */
#ifndef TESTS_PURGE_STEPS_H
#define TESTS_PURGE_STEPS_H

#include "check.h"
#include "clock.h"
#include "heap/heap.h"
#include "heap/purge.h"
#include "span/span.h"

#include <sched.h>

CHECK_UNUSED static bool step(enum purge_pace pace) { return purge_steps(pace) != PURGE_DONE; }

CHECK_UNUSED static bool step_after(uint64_t ms) {
    clock_pass(ms);
    return step(PURGE_DUE);
}

CHECK_UNUSED static struct span_counts counts_now(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts;
}

CHECK_UNUSED static void decay_in(uint64_t half_life_ms) {
    span_configure(
        &(struct span_settings){.decay_half_life_ms = half_life_ms, .huge_from_pages = UINT64_MAX});
}

CHECK_UNUSED static void never_decay(void) { decay_in(ACE_NEVER); }

/* Another thread, its heap, how far it is, and how far it may go. */
static struct heap *_Atomic theirs;
static atomic_int says, may;

CHECK_UNUSED static void reach(int point) {
    atomic_store(&says, point);
    while (atomic_load(&may) < point) sched_yield();
}

CHECK_UNUSED static void let_reach(int point) {
    atomic_store(&may, point - 1);
    while (atomic_load(&says) < point) sched_yield();
}

#endif
