/* spans.c - free pages go back to the kernel while others take and give spans.
 *
 * Invariant: a span has one user at a time, and the kernel is one: what its user wrote stays. All books of the span layer
 * agree afterwards, and no page is lost. */
#include "../model/model.h"

#include "span/span.h"

enum { PAGES = 2, TAG = 77 };

static uint32_t first, taken[2];

static uint64_t *word_in(uint32_t page) { return page_address(page); }

static uint32_t take_tagged(void) {
    uint32_t page = span_take(PAGES, 1, ACE_SPARSE);
    EXPLORE_CHECK(page != 0);
    *word_in(page) = TAG;
    return page;
}
static void take(void) { taken[0] = take_tagged(); }
static void take_another(void) { taken[1] = take_tagged(); }
static void give(void) {
    EXPLORE_CHECK(*word_in(first) == TAG);
    span_give(first);
}
static void purge(void) {
    span_purging_lock();
    span_purge(UINT32_MAX);
    span_purging_unlock();
}

/* One used span, and behind it one that is dirty and free. */
static void setup(void) {
    model_start();
    first = take_tagged();
    uint32_t second = take_tagged();
    take(); /* keeps it apart from what is fresh */
    span_give(second);
}

static void check(void) {
    for (unsigned i = 0; i < 2; i++)
        if (taken[i] != 0) EXPLORE_CHECK(*word_in(taken[i]) == TAG);
    EXPLORE_CHECK(taken[0] != taken[1]);
    model_check_spans();
}

EXPLORE(spans_take_and_purge, .setup = setup, .threads = {take_another, purge}, .check = check);
EXPLORE(spans_give_and_purge, .setup = setup, .threads = {give, purge}, .check = check);
EXPLORE(spans_take_give_purge, .setup = setup, .threads = {take_another, give, purge}, .check = check);
