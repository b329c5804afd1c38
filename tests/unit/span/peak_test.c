/* peak_test.c - a long span that no free run is long enough for: what is free and dirty goes back before more is held than ever.
 *
 * Planted defects it was seen to catch:
 *   nothing is returned                          a_long_span_returns_what_is_too_short
 *   below the peak something is, too             below_the_peak_nothing_is_returned
 *   short spans return something, too            short_spans_return_nothing
 *   all short runs are returned at once          one_take_returns_few_runs
 *   what it is cut from is returned, too         what_is_long_enough_stays
 *   what was spared for it is returned           what_was_spared_is_taken
 *   for a refused span something is returned     a_refused_span_returns_nothing
 */
#include "decays.h"

enum { LONG = 400, SHORT = 100 };

/* PAGES free and dirty pages, and a used one behind them: so they do not merge with what comes. */
static void leave(uint32_t pages) {
    const struct mine mine = take_keyed(pages, false, 1), behind = take_keyed(1, false, 2);
    CHECK(behind.first == mine.first + pages);
    span_give(mine.first);
}

static void start(uint32_t pages) {
    configure(LONG_MS, UINT64_MAX);
    purge_all();
    leave(pages);
}

static uint64_t returned_pages(void) { return counts_now().returned_pages; }

static void take_longer(void) {
    start(SHORT);
    const struct span_counts before = counts_now();
    CHECK(before.dirty_pages >= SHORT);
    CHECK(span_take(LONG, 1, ACE_SPARSE) != 0);
    CHECK(returned_pages() - before.returned_pages >= SHORT && counts_now().dirty_pages <= before.dirty_pages - SHORT);
    check_books();
}

TEST(a_long_span_returns_what_is_too_short) { IN_CHILD(take_longer); }

static void take_below_the_peak(void) {
    start(SHORT);
    uint32_t first = span_take(LONG, 1, ACE_SPARSE);
    CHECK(first != 0);
    memset(page_address(first), 1, LONG * PAGE_BYTES);
    span_give(first);
    purge_all();
    const uint64_t dirty = counts_now().dirty_pages, returned = returned_pages();
    leave(SHORT / 2);
    CHECK(counts_now().dirty_pages > dirty);
    CHECK(span_take(LONG - SHORT, 1, ACE_SPARSE) != 0); /* what was held then is not exceeded */
    CHECK_EQ(returned_pages(), returned);
}

TEST(below_the_peak_nothing_is_returned) { IN_CHILD(take_below_the_peak); }

static void take_short(void) {
    enum { SLAB = 16 };
    start(SLAB / 2);
    const uint64_t returned = returned_pages(), fresh = counts_now().fresh_pages;
    while (counts_now().fresh_pages == fresh) CHECK(span_take(SLAB, 1, ACE_SPARSE) != 0);
    CHECK_EQ(returned_pages(), returned);
}

TEST(short_spans_return_nothing) { IN_CHILD(take_short); }

/* Into a run that is long enough, but half of which is dirty only. */
static void take_what_is_half_dirty(void) {
    configure(ACE_NEVER, UINT64_MAX);
    const uint64_t fresh = counts_now().fresh_pages;
    while (counts_now().fresh_pages == fresh) CHECK(span_take(1, 1, ACE_SPARSE) != 0); /* nothing is free before what follows */
    const uint32_t run = span_take(LONG, 1, ACE_SPARSE);
    CHECK(run != 0 && span_take(1, 1, ACE_SPARSE) == run + LONG);
    purge_all();
    span_give(run);
    span_purging_lock();
    span_purge(LONG / 2);
    span_purging_unlock();
    CHECK_EQ(counts_now().dirty_pages, LONG / 2);
    CHECK(span_take(LONG + 1, 1, ACE_SPARSE) != 0); /* so that the next is a new peak */
    configure(LONG_MS, UINT64_MAX);
    const uint64_t returned = returned_pages();
    CHECK(span_take(LONG, 1, ACE_SPARSE) == run);
    CHECK_EQ(returned_pages(), returned);
}

TEST(what_is_long_enough_stays) { IN_CHILD(take_what_is_half_dirty); }

/* As a thread frees the blocks that it keeps before the process grows. */
static uint32_t kept;
static void give_kept(size_t pages) {
    (void)pages;
    if (kept != 0) span_give(kept);
    kept = 0;
}
static void take_what_was_kept(void) {
    start(SHORT);
    const struct mine mine = take_keyed(LONG, false, 1);
    CHECK(span_take(1, 1, ACE_SPARSE) != 0);
    kept = mine.first;
    span_on_growth(give_kept);
    const uint64_t returned = returned_pages();
    CHECK(span_take(LONG, 1, ACE_SPARSE) == mine.first);
    CHECK_EQ(kept, 0);
    CHECK_EQ(returned_pages(), returned);
}

TEST(what_was_spared_is_taken) { IN_CHILD(take_what_was_kept); }

static void take_too_much(void) {
    start(SHORT);
    const struct span_counts before = counts_now();
    span_configure(&(struct span_settings){
        .decay_half_life_ms = LONG_MS, .huge_from_pages = UINT64_MAX, .hard_pages = before.used_pages + before.dirty_pages + LONG / 2});
    CHECK_EQ(span_take(LONG, 1, ACE_SPARSE), 0);
    CHECK_EQ(returned_pages(), before.returned_pages);
}

TEST(a_refused_span_returns_nothing) { IN_CHILD(take_too_much); }

static void take_beside_many(void) {
    enum { RUNS = 64, RUN = 20, CALLS = 8 };
    uint32_t runs[RUNS];
    configure(LONG_MS, UINT64_MAX);
    for (size_t i = 0; i < RUNS; i++) {
        runs[i] = span_take(RUN, 1, ACE_SPARSE);
        CHECK(runs[i] != 0 && span_take(1, 1, ACE_SPARSE) != 0);
    }
    for (size_t i = 0; i < RUNS; i++) span_give(runs[i]);
    const uint64_t calls = calls_of(OS_CALL_MADVISE_FREE), returned = returned_pages();
    CHECK(span_take(RUNS * RUN, 1, ACE_SPARSE) != 0);
    CHECK(returned_pages() >= returned + 4 * RUN);
    CHECK(calls_of(OS_CALL_MADVISE_FREE) - calls <= CALLS);
}

TEST(one_take_returns_few_runs) { IN_CHILD(take_beside_many); }

static void take_what_never_decays(void) {
    start(SHORT);
    configure(ACE_NEVER, UINT64_MAX);
    const uint64_t returned = returned_pages();
    CHECK(span_take(LONG, 1, ACE_SPARSE) != 0);
    CHECK_EQ(returned_pages(), returned);
}

TEST(what_never_decays_stays) { IN_CHILD(take_what_never_decays); }

/* The next is taken before the last is freed, as by one step of a program after the other: about as much is used all the time. */
static void vary(void) {
    static const uint32_t lengths[] = {320, 480, 400, 352, 448};
    enum { LENGTHS = sizeof lengths / sizeof lengths[0], TURNS = 200 };
    configure(LONG_MS, UINT64_MAX);
    const uint64_t before = returned_pages();
    uint32_t last = span_take(lengths[0], 1, ACE_SPARSE);
    uint64_t early = 0;
    for (size_t turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < LENGTHS; i++) {
            const uint32_t next = span_take(lengths[(i + 1) % LENGTHS], 1, ACE_SPARSE);
            CHECK(last != 0 && next != 0);
            span_give(last);
            last = next;
        }
        if (turn == TURNS / 2) early = returned_pages();
    }
    const struct span_counts after = counts_now();
    CHECK(early > before && early - before <= 3 * (after.used_pages + after.dirty_pages));
    CHECK_EQ(after.returned_pages, early);
    check_books();
}

TEST(lengths_that_vary_settle) { IN_CHILD(vary); }
