/* pages_test.c - runs of bits across chunks, against a model of one byte a page. The pages come straight
 * from the window: the span layer never hears of them.
 *
 * Planted defects it was seen to catch:
 *   a run stops at the end of its first chunk    random_runs
 *   marking free also marks returned             random_runs
 *   pages used again stay returned               random_runs
 *   a move's mark is taken from the whole chunk  random_runs
 *   the dirty run that is found begins a chunk
 *   too early, or ends with its chunk            dirty_runs_are_found_whole
 *   what was given back is looked at again       what_went_is_not_looked_at_again
 *   what is used again passes for given back     random_runs
 *   clean pages between are looked at again      clean_pages_between_are_looked_at_once
 *   what was refused is looked at again          what_was_refused_is_not_looked_at_again
 *   a gap between clean stretches is clean, too  random_runs
 */
#include "blocks.h"
#include "span/pages.h"

enum { PAGES = 6 * CHUNK_PAGES };

static uint32_t base;
static bool used[PAGES], dirty[PAGES], returned[PAGES], moved[PAGES];

static void start(void) {
    struct page_run run = window_extend(PAGES, SIZE_MAX);
    CHECK(run.pages >= PAGES);
    base = (uint32_t)run.first;
    memset(used, 0, sizeof used);
    memset(dirty, 0, sizeof dirty);
    memset(returned, 0, sizeof returned);
    memset(moved, 0, sizeof moved);
}

static uint32_t count(const bool *bits, uint32_t first, uint32_t pages) {
    uint32_t sum = 0;
    for (uint32_t i = first; i < first + pages; i++) sum += bits[i];
    return sum;
}

static void set(bool *bits, uint32_t first, uint32_t pages, bool value) {
    for (uint32_t i = first; i < first + pages; i++) bits[i] = value;
}

/* Any run, often a short one, often one that begins or ends with a chunk. */
static void choose(struct rng *rng, uint32_t *first, uint32_t *pages) {
    uint32_t most = rng_below(rng, 3) ? 40 : PAGES;
    *first = (uint32_t)rng_below(rng, PAGES);
    if (rng_below(rng, 4) == 0) *first -= *first % CHUNK_PAGES;
    *pages = 1 + (uint32_t)rng_below(rng, most);
    if (rng_below(rng, 4) == 0) *pages = CHUNK_PAGES - *first % CHUNK_PAGES;
    if (*first + *pages > PAGES) *pages = PAGES - *first;
}

static void check_all(void) {
    for (uint32_t chunk = 0; chunk < PAGES; chunk += CHUNK_PAGES) {
        uint32_t inside = (uint32_t)count(used, chunk, CHUNK_PAGES);
        CHECK_EQ(pages_used_in_chunk(base + chunk), inside);
        CHECK_EQ(pages_used_in_chunk(base + chunk + CHUNK_PAGES - 1), inside);
    }
    for (uint32_t i = 0; i < PAGES; i++) {
        struct chunk bits = window.chunks[(base + i) / CHUNK_PAGES];
        CHECK_AT((bits.used >> (base + i) % CHUNK_PAGES & 1) == used[i], i);
        CHECK_AT((bits.touched >> (base + i) % CHUNK_PAGES & 1) == dirty[i], i);
        CHECK_AT((bits.returned >> (base + i) % CHUNK_PAGES & 1) == returned[i], i);
        CHECK_AT((bits.moved >> (base + i) % CHUNK_PAGES & 1) == moved[i], i);
    }
}

TEST(random_runs) {
    struct rng rng = {check_now.seed};
    start();
    for (size_t i = 0; i < check_count(30000); i++) {
        uint32_t first, pages;
        choose(&rng, &first, &pages);
        uint32_t before = count(dirty, first, pages);
        CHECK_AT(pages_count_dirty(base + first, pages) == before, i);
        CHECK_AT(pages_any_moved(base + first, pages) == (count(moved, first, pages) != 0), i);
        switch (rng_below(&rng, 6)) {
        case 0: {
            struct pages_before was = pages_mark_used(base + first, pages);
            CHECK_AT(was.dirty == before, i);
            CHECK_AT(was.returned == count(returned, first, pages), i);
            set(used, first, pages, true);
            set(dirty, first, pages, true);
            set(returned, first, pages, false);
            break;
        }
        case 1:
            pages_mark_held(base + first, pages);
            set(used, first, pages, true);
            break;
        case 2:
            pages_mark_free(base + first, pages);
            set(used, first, pages, false);
            break;
        case 3:
            pages_mark_moved(base + first, pages, true);
            set(moved, first, pages, true);
            break;
        case 4:
            pages_mark_moved(base + first, pages, false);
            set(moved, first, pages, false);
            break;
        default:
            pages_mark_returned(base + first, pages);
            set(dirty, first, pages, false);
            set(returned, first, pages, true);
        }
        if (i % 16 == 0) check_all();
    }
    check_all();
}

/* The run that a loop over the pages finds. */
static uint32_t naive_dirty_run(uint32_t *first, uint32_t end, uint32_t most) {
    uint32_t at = *first;
    while (at < end && !dirty[at]) at++;
    *first = at;
    while (at < end && dirty[at] && at - *first < most) at++;
    return at - *first;
}

TEST(dirty_runs_are_found_whole) {
    struct rng rng = {check_now.seed};
    start();
    for (size_t i = 0; i < check_count(30000); i++) {
        uint32_t first, pages, end;
        choose(&rng, &first, &pages);
        if (i % 2) {
            pages_mark_used(base + first, pages);
        } else if (i % 8 == 0) {
            pages_mark_refused(base + first, pages);
        } else {
            pages_mark_returned(base + first, pages);
        }
        set(dirty, first, pages, i % 2);
        choose(&rng, &first, &pages);
        end = first + pages;
        CHECK_AT(pages_count_dirty(base + first, pages) == count(dirty, first, pages), i);
        uint32_t found = base + first, expected = first;
        uint32_t most = i % 3 ? 1 + (uint32_t)rng_below(&rng, 2 * CHUNK_PAGES) : UINT32_MAX;
        uint32_t length = naive_dirty_run(&expected, end, most);
        CHECK_AT(pages_next_dirty(&found, base + end, most) == length, i);
        if (length != 0) CHECK_AT(found == base + expected, i);
    }
}

/* Whoever looks there sees pages that nobody marked. */
static void put_bait_into(uint32_t chunk) { window.chunks[base / CHUNK_PAGES + chunk].touched |= 1; }

/* A span goes back piece by piece, and no piece costs more than the one before. */
TEST(what_went_is_not_looked_at_again) {
    start();
    pages_mark_used(base, PAGES);
    for (uint32_t chunk = 1; chunk < 4; chunk++) pages_mark_returned(base + chunk * CHUNK_PAGES, CHUNK_PAGES);
    pages_mark_returned(base, CHUNK_PAGES); /* and one before them */
    for (uint32_t chunk = 0; chunk < 4; chunk++) put_bait_into(chunk);
    CHECK_EQ(pages_count_dirty(base, PAGES), 2 * CHUNK_PAGES);
    uint32_t first = base;
    CHECK_EQ(pages_next_dirty(&first, base + PAGES, 7), 7);
    CHECK_EQ(first, base + 4 * CHUNK_PAGES);

    pages_mark_used(base + CHUNK_PAGES, 1); /* what lies behind it is still known */
    CHECK_EQ(pages_count_dirty(base + CHUNK_PAGES, PAGES - CHUNK_PAGES), 2 * CHUNK_PAGES + 1);
    first = base + CHUNK_PAGES + 1;
    CHECK_EQ(pages_next_dirty(&first, base + PAGES, 7), 7);
    CHECK_EQ(first, base + 4 * CHUNK_PAGES);
}

/* Behind what went lies what was clean before: the next search passes it once, for all that follow. */
TEST(clean_pages_between_are_looked_at_once) {
    enum { HALF = CHUNK_PAGES / 2 };
    start();
    pages_mark_used(base, PAGES);
    for (uint32_t at = 0; at < PAGES; at += CHUNK_PAGES) pages_mark_returned(base + at + HALF, HALF);
    for (uint32_t chunk = 0; chunk < PAGES / CHUNK_PAGES; chunk++) {
        uint32_t first = base;
        CHECK_EQ(pages_next_dirty(&first, base + PAGES, UINT32_MAX), HALF);
        CHECK_EQ(first, base + chunk * CHUNK_PAGES);
        CHECK_EQ(pages_count_dirty(base, first - base), 0);
        pages_mark_returned(first, HALF);
        put_bait_into(chunk);
    }
}

TEST(what_was_refused_is_not_looked_at_again) {
    start();
    pages_mark_used(base, PAGES);
    pages_mark_returned(base + 1, 1); /* a part of the first goes */
    for (uint32_t chunk = 0; chunk < 4; chunk++) {
        pages_mark_refused(base + chunk * CHUNK_PAGES, CHUNK_PAGES);
        window.chunks[base / CHUNK_PAGES + chunk].refused = 0; /* bait */
    }
    CHECK_EQ(pages_count_dirty(base, PAGES), 2 * CHUNK_PAGES);
}
