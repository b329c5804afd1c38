/* window.c - the window grows while several want memory, and its words are read without a lock.
 *
 * Invariant: what it gives two threads never overlaps, and its books are there before anybody uses them; whoever has a
 * block reads the word of its page as the block's owner wrote it. */
#include "../model/model.h"

#include "span/span.h"

enum { PAGES = 20, BYTES = 32768 };

static struct page_run runs[2];

static void extend_into(struct page_run *run) {
    window_lock();
    *run = window_extend(PAGES, SIZE_MAX);
    window_unlock();
    EXPLORE_CHECK(run->pages >= PAGES && run->first % CHUNK_PAGES == 0);
    for (size_t page = run->first; page < run->first + run->pages; page += CHUNK_PAGES) span_at(page)->pages = 1;
}
static void extend(void) { extend_into(&runs[0]); }
static void extend_too(void) { extend_into(&runs[1]); }
static void check_runs(void) {
    bool before = runs[0].first < runs[1].first;
    EXPLORE_CHECK(runs[before ? 0 : 1].first + runs[before ? 0 : 1].pages <= runs[before ? 1 : 0].first);
}
EXPLORE(window_extends_twice, .setup = model_start, .threads = {extend, extend_too}, .check = check_runs);

/* Each needs more than what is left of what the other brought. */
enum { SPAN_PAGES = 33 };
static uint32_t spans_taken[2];

static void take_span(void) { spans_taken[0] = span_take(SPAN_PAGES, 1, ACE_SPARSE); }
static void take_span_too(void) { spans_taken[1] = span_take(SPAN_PAGES, 1, ACE_SPARSE); }
static void check_spans(void) {
    uint32_t a = spans_taken[0], b = spans_taken[1];
    EXPLORE_CHECK(a != 0 || b != 0);
    EXPLORE_CHECK(a == 0 || b == 0 || (a < b ? a + SPAN_PAGES <= b : b + SPAN_PAGES <= a));
    model_check_spans();
}
EXPLORE(window_brings_fresh_memory, .setup = model_start, .threads = {take_span, take_span_too}, .check = check_spans);

/* A block of a slab that was just made goes to another thread, which gives it back. */
static _Atomic uint32_t passed;
static void *block;

static void make(void) {
    block = model_take(BYTES);
    atomic_store_explicit(&passed, 1, memory_order_release);
}
static void give_passed(void) {
    explore_await(&passed, 1);
    model_give(block);
}
static void begin(void) { thread_ensure_heap(); }
static void setup_passing(void) {
    model_start();
    explore_as(0, begin);
    explore_as(1, model_without_heap);
}
static void check_passed(void) { model_check_blocks(NULL, 0); }
EXPLORE(window_words_are_seen, .setup = setup_passing, .threads = {make, give_passed}, .check = check_passed);
