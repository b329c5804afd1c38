/* bins_test.c - the choice among free spans, against a model that knows the rule and looks at all.
 *
 * Chunks are of both zones at random. The bins are emptied first, so that only spans of this test hang in them; nothing here allocates.
 *
 * Planted defects it was seen to catch:
 *   a bin loses its bit before it is empty       both of the first
 *   longer before shorter                        the_choice_follows_the_rule
 *   clean before dirty                           the_choice_follows_the_rule
 *   lengths above 32 fall into wrong bins        the_choice_follows_the_rule
 *   clean huge pages serve a plain request       the_choice_follows_the_rule
 *   so do those of which one page is dirty       the_choice_follows_the_rule
 *   a clean span before the other zone's dirty   the_choice_follows_the_rule
 *   dirty pages of the huge zone are not sought  the_choice_follows_the_rule, dirty_pages_are_...
 *   the middle of a list is taken out badly      the_choice_follows_the_rule
 *   an aligned hole is not found                 the_choice_follows_the_rule
 *   an aligned start is enough, without pages    the_choice_follows_the_rule
 *   the longest is sought in one zone only       the_longest_is_of_any_zone_and_state
 */
#include "blocks.h"
#include "span/bins.h"
#include "span/pages.h"

enum { PAGES = 512 * CHUNK_PAGES, SPANS = 1000, LOOKED_AT = 8 };

struct model {
    uint32_t first, pages, dirty;
    uint64_t inserted; /* when; 0: not in a bin */
    enum span_zone zone;
};

static uint32_t base;
static struct model spans[SPANS];
static size_t span_count;
static uint64_t now;

static uint32_t any_free(void) {
    const struct span_start anywhere = {1, 0};
    const uint32_t first = bins_find(1, anywhere, ZONE_HUGE);
    return first != 0 ? first : bins_find(1, anywhere, ZONE_PLAIN);
}

static void empty_bins(void) {
    span_lock();
    for (uint32_t first; (first = any_free()) != 0;) bins_remove(first);
    span_unlock();
}

/* Cuts fresh pages into spans of random length, some pages dirty and in places used. */
static void start(struct rng *rng) {
    empty_bins();
    struct page_run run = window_extend(PAGES, SIZE_MAX);
    CHECK(run.pages >= PAGES);
    base = (uint32_t)run.first;
    span_count = 0;
    for (uint32_t at = base; at < base + PAGES; at += CHUNK_PAGES) page_chunk(at)->zone = rng_below(rng, 2) != 0;
    for (uint32_t at = base; span_count < SPANS && at + 200 < base + PAGES; span_count++) {
        uint32_t pages = 1 + (uint32_t)rng_below(rng, rng_below(rng, 4) ? 12 : 90);
        struct model *span = &spans[span_count];
        *span = (struct model){.first = at, .pages = pages, .zone = (enum span_zone)page_chunk(at)->zone};
        if (rng_below(rng, 2)) { /* its pages count as used here: what counts is that chunks differ */
            span->dirty = 1 + (uint32_t)rng_below(rng, pages);
            pages_mark_used(at, span->dirty);
            if (rng_below(rng, 2)) pages_mark_free(at, span->dirty);
        }
        at += pages + 1;
    }
}

/* Where a bin begins: every length to 32, then four to a doubling. */
static uint32_t bin_start(uint32_t pages) {
    if (pages <= 32) return pages;
    uint32_t power = 32;
    while (power * 2 <= pages) power *= 2;
    return power + (pages - power) / (power / 4) * (power / 4);
}

static bool is_better(const struct model *a, const struct model *b) {
    if (a->pages != b->pages) return a->pages < b->pages;
    unsigned a_used = pages_used_in_chunk(a->first), b_used = pages_used_in_chunk(b->first);
    return a_used != b_used ? a_used > b_used : a->first < b->first;
}

static bool fits(const struct model *span, uint32_t pages, struct span_start start) {
    for (uint32_t at = span->first; at + pages <= span->first + span->pages; at++)
        if (is_aligned((char *)page_address(at) - start.at_pages * PAGE_BYTES, start.align_pages * PAGE_BYTES)) return true;
    return false;
}

/* Of the spans in one set: the best of the newest LOOKED_AT, in the lowest bin that may do where one does. */
static const struct model *naive_find_in(uint32_t pages, struct span_start start, enum span_zone zone,
                                         bool in_state(const struct model *)) {
    uint32_t bin = bin_start(pages);
    for (;;) {
        const struct model *chosen = NULL;
        uint64_t older_than = UINT64_MAX;
        for (int looked_at = 0; looked_at < LOOKED_AT; looked_at++) {
            const struct model *newest = NULL;
            for (size_t i = 0; i < span_count; i++) {
                const struct model *span = &spans[i];
                if (!span->inserted || bin_start(span->pages) != bin) continue;
                if (span->zone != zone || !in_state(span)) continue;
                if (span->inserted < older_than && (!newest || span->inserted > newest->inserted)) newest = span;
            }
            if (newest == NULL) break;
            older_than = newest->inserted;
            if (fits(newest, pages, start) && (chosen == NULL || is_better(newest, chosen))) chosen = newest;
        }
        uint32_t next = UINT32_MAX;
        for (size_t i = 0; i < span_count; i++) {
            uint32_t start_of = bin_start(spans[i].pages);
            if (!spans[i].inserted || spans[i].zone != zone || !in_state(&spans[i])) continue;
            if (start_of > bin && start_of < next) next = start_of;
        }
        if (chosen != NULL || next == UINT32_MAX) return chosen;
        bin = next;
    }
}

static bool is_dirty(const struct model *span) { return span->dirty != 0; }
static bool is_clean(const struct model *span) { return span->dirty == 0; }

/* Whether half of the first PAGES pages there that start as asked are dirty. */
static bool is_half_dirty(const struct model *span, uint32_t pages, struct span_start start) {
    uint32_t at = span->first;
    while (!is_aligned((char *)page_address(at) - start.at_pages * PAGE_BYTES, start.align_pages * PAGE_BYTES)) at++;
    const uint32_t end = min_u32(at + pages, span->first + span->dirty);
    return end > at && (end - at) * 2 >= pages;
}

/* What is dirty, of its own zone, then of the other, if half of it is dirty there; then what is clean, of its own. */
static uint32_t naive_find(uint32_t pages, struct span_start start, enum span_zone zone) {
    const struct model *best = naive_find_in(pages, start, zone, is_dirty);
    if (best == NULL) {
        best = naive_find_in(pages, start, zone == ZONE_PLAIN ? ZONE_HUGE : ZONE_PLAIN, is_dirty);
        if (best != NULL && !is_half_dirty(best, pages, start)) best = NULL;
    }
    if (best == NULL) best = naive_find_in(pages, start, zone, is_clean);
    return best != NULL ? best->first : 0;
}

static void check_records(const struct model *model) {
    const struct span *span = span_at(model->first);
    CHECK_EQ(span->kind, SPAN_FREE);
    CHECK_EQ(span->pages, model->pages);
    CHECK_EQ(span->dirty, model->dirty);
    if (model->pages == 1) return;
    CHECK_EQ(span_at(model->first + model->pages - 1)->kind, SPAN_FREE_LAST);
    CHECK_EQ(span_at(model->first + model->pages - 1)->head, model->first);
}

static void toggle(struct model *span) {
    if (span->inserted == 0) {
        bins_insert(span->first, span->pages, span->dirty);
        check_records(span);
        span->inserted = ++now;
    } else {
        bins_remove(span->first);
        span->inserted = 0;
    }
}

static bool any_dirty(enum span_zone zone) {
    for (size_t i = 0; i < span_count; i++)
        if (spans[i].inserted && spans[i].zone == zone && is_dirty(&spans[i])) return true;
    return false;
}

TEST(the_choice_follows_the_rule) {
    struct rng rng = {check_now.seed};
    start(&rng);
    for (size_t i = 0; i < check_count(10000); i++) {
        size_t few = i / 1000 % 2 ? span_count : 12; /* full bins, and nearly empty ones */
        toggle(&spans[rng_below(&rng, few)]);
        uint32_t pages = 1 + (uint32_t)rng_below(&rng, rng_below(&rng, 2) ? 40 : 170);
        uint32_t align = rng_below(&rng, 2) ? 1 : 1u << rng_below(&rng, 8);
        const struct span_start where = {align, rng_below(&rng, 2) ? 0 : rng_below(&rng, align)};
        CHECK_AT(bins_find(pages, where, ZONE_PLAIN) == naive_find(pages, where, ZONE_PLAIN), i);
        CHECK_AT(bins_find(pages, where, ZONE_HUGE) == naive_find(pages, where, ZONE_HUGE), i);
        for (int zone = 0; zone < ZONES; zone++) {
            uint32_t dirty = bins_find_dirty((enum span_zone)zone, 0, NULL);
            CHECK_AT((dirty != 0) == any_dirty((enum span_zone)zone), i);
            if (dirty == 0) continue;
            CHECK_AT(span_at(dirty)->kind == SPAN_FREE && span_at(dirty)->dirty != 0, i);
            CHECK_AT(page_chunk(dirty)->zone == zone, i);
        }
    }
    empty_bins();
}

TEST(nothing_fits_and_everything_is_found_again) {
    struct rng rng = {check_now.seed + 1};
    start(&rng);
    CHECK_EQ(any_free(), 0);
    CHECK(bins_find_dirty(ZONE_PLAIN, 0, NULL) == 0 && bins_find_dirty(ZONE_HUGE, 0, NULL) == 0);
    for (size_t i = 0; i < span_count; i++) toggle(&spans[i]);
    CHECK_EQ(bins_find(PAGES, (struct span_start){1, 0}, ZONE_HUGE), 0);
    for (size_t left = span_count; left > 0; left--) {
        uint32_t first = any_free();
        size_t i = 0;
        while (i < span_count && (spans[i].first != first || !spans[i].inserted)) i++;
        CHECK_AT(i < span_count, left);
        bins_remove(first);
        spans[i].inserted = 0;
    }
    CHECK_EQ(any_free(), 0);
    CHECK(bins_find_dirty(ZONE_PLAIN, 0, NULL) == 0 && bins_find_dirty(ZONE_HUGE, 0, NULL) == 0);
}

/* The longest bins are emptied of dirty pages first. */
TEST(dirty_pages_are_sought_in_long_spans_first) {
    struct rng rng = {check_now.seed + 2};
    start(&rng);
    for (size_t i = 0; i < span_count; i++) toggle(&spans[i]);
    for (int zone = 0; zone < ZONES; zone++) {
        uint32_t bin = UINT32_MAX;
        for (uint32_t first; (first = bins_find_dirty((enum span_zone)zone, 0, NULL)) != 0; bins_remove(first)) {
            CHECK(span_at(first)->dirty != 0 && bin_start(span_at(first)->pages) <= bin);
            bin = bin_start(span_at(first)->pages);
        }
    }
    empty_bins();
}

static bool is_any(uint32_t first) { return first != 0; }

TEST(the_longest_is_of_any_zone_and_state) {
    struct rng rng = {check_now.seed + 3};
    start(&rng);
    for (size_t i = 0; i < span_count; i++) toggle(&spans[i]);
    uint32_t bin = UINT32_MAX;
    size_t found = 0;
    for (uint32_t first; (first = bins_find_longest(is_any)) != 0; bins_remove(first), found++) {
        CHECK_AT(bin_start(span_at(first)->pages) <= bin, found);
        bin = bin_start(span_at(first)->pages);
    }
    CHECK_EQ(found, span_count);
}
