/* purger.c - the purge thread ends just when there is something to do again.
 *
 * Invariant: when all is quiet and enough could be given back to be worth a thread, there is one. It may not end unseen
 * by a thread that, in turn, counts on it. What could be given back is never less than what went out of use since: no thread
 * lowers a peak that another just raised. */
#include "../model/model.h"

#include "heap/footprint.h"
#include "heap/purger.h"

#define MARK_BYTES HAK_MIB(1) /* with two threads: purger.c */

static void begin(void) { thread_ensure_heap(); }

/* The purge thread runs, as the third thread of the test, and finds nothing left. */
static void start_purge_thread(void) {
    footprint_add(2 * MARK_BYTES);
    footprint_add(-(int64_t)(2 * MARK_BYTES));
    purger_farewell();
    EXPLORE_CHECK(purger_is_running());
    footprint_settled(0);
    EXPLORE_CHECK(footprint_returnable() == 0);
}
static void setup(void) {
    model_start_with_purge_thread();
    explore_as(0, begin);
    explore_as(1, begin);
    explore_as(0, start_purge_thread);
}

/* Its last operations: what it frees is worth a thread. */
static void free_much(void) {
    footprint_add(2 * MARK_BYTES);
    footprint_add(-(int64_t)(2 * MARK_BYTES));
    purger_farewell();
}
static void free_much_before(void) {
    footprint_add(-(int64_t)(2 * MARK_BYTES));
    purger_farewell();
}
static void setup_in_use(void) {
    setup();
    footprint_add(2 * MARK_BYTES);
}

static void check(void) {
    if (footprint_returnable() >= MARK_BYTES) EXPLORE_CHECK(purger_is_running());
    /* As many are on their way or running as the mark says: one or none. */
    EXPLORE_CHECK(atomic_load(&model_threads_started) - atomic_load(&model_threads_ended) == purger_is_running());
}

enum { PURGE_THREADS = 1 << 1 | 1 << 2 };

EXPLORE(purger_ends_as_much_is_freed, .setup = setup_in_use,
        .threads = {free_much_before, model_started_thread, model_started_thread}, .check = check,
        .may_wait = PURGE_THREADS);
/* A second purge thread stays on its way: with it the search was stopped after 20 minutes. */
EXPLORE(purger_ends_as_much_comes_and_goes, .setup = setup, .threads = {free_much, model_started_thread}, .check = check,
        .may_wait = PURGE_THREADS, .deep = true);

/* ---- the peak ------------------------------------------------------------------------------------------- */

static void take_some(void) { footprint_add(MARK_BYTES); }
static void take_more(void) { footprint_add(2 * MARK_BYTES); }
static void give_back_some(void) { footprint_returned(MARK_BYTES / 2); }
static void settle_at_nothing(void) { footprint_settled(0); }

/* All at once: what was in use last is what can be given back. */
static void free_all(void) {
    EXPLORE_CHECK(footprint_in_use() == 3 * MARK_BYTES);
    footprint_add(-(int64_t)(3 * MARK_BYTES));
    EXPLORE_CHECK(footprint_returnable() == 3 * MARK_BYTES);
}

EXPLORE(purger_peak_raised_by_two, .threads = {take_some, take_more}, .check = free_all);
EXPLORE(purger_peak_as_some_is_returned, .threads = {take_some, take_more, give_back_some}, .check = free_all);
EXPLORE(purger_peak_as_all_is_settled, .threads = {take_some, take_more, settle_at_nothing}, .check = free_all);
