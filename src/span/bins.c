/* bins.c - the bins, and the choice among the spans of one bin. */
#include "span/bins.h"

#include "os/assert.h"
#include "span/pages.h"

enum {
    EXACT_BINS = 32,
    STEPS = 4,                           /* bins to a doubling above */
    BINS = EXACT_BINS + STEPS * (32 - 5), /* lengths are below 2^32 pages */
    BIN_WORDS = (BINS + 63) / 64,
    LOOKED_AT = 8, /* spans of one bin: enough to find a good one, few enough for bounded work */
};

/* Spans without dirty pages, and spans with some, each in bins of their own. */
enum state { CLEAN, DIRTY, STATES };

static struct set {
    uint32_t spans;
    uint32_t bins[BINS];
    uint64_t filled[BIN_WORDS]; /* a bit for each bin that is not empty */
} sets[ZONES * STATES + 1]; /* the last of gaps, which are clean */

HAK_INLINE struct set *set_at(enum span_zone zone, enum state state) {
    HAK_ASSERT(zone != ZONE_GAP || state == CLEAN);
    return &sets[zone * STATES + state];
}

static enum state state_of(const struct span *span) { return span->dirty == 0 ? CLEAN : DIRTY; }

static struct set *set_of(uint32_t first) { return set_at((enum span_zone)page_chunk(first)->zone, state_of(span_at(first))); }

static unsigned bin_of(uint32_t pages) {
    if (pages <= EXACT_BINS) return pages - 1;
    unsigned log = highest_bit(pages);
    return EXACT_BINS + (log - 5) * STEPS + ((pages >> (log - 2)) & (STEPS - 1));
}

static void label_free(uint32_t first, uint32_t pages, uint32_t dirty) {
    struct span *span = span_at(first);
    span->kind = SPAN_FREE;
    span->pages = pages;
    span->dirty = dirty;
    if (pages > 1) {
        struct span *last = span_at(first + pages - 1);
        last->kind = SPAN_FREE_LAST;
        last->head = first;
    }
}

void bins_insert(uint32_t first, uint32_t pages, uint32_t dirty) {
    struct span *span = span_at(first);
    unsigned bin = bin_of(pages);
    label_free(first, pages, dirty);
    span->bin = (uint8_t)bin;
    span->prev = 0;
    struct set *set = set_of(first);
    span->next = set->bins[bin];
    if (span->next != 0) span_at(span->next)->prev = first;
    set->bins[bin] = first;
    set->spans++;
    set->filled[bin / 64] |= (uint64_t)1 << (bin % 64);
}

void bins_remove(uint32_t first) {
    struct span *span = span_at(first);
    struct set *set = set_of(first);
    set->spans--;
    if (span->next != 0) span_at(span->next)->prev = span->prev;
    if (span->prev != 0) {
        span_at(span->prev)->next = span->next;
    } else {
        set->bins[span->bin] = span->next;
        if (span->next == 0) set->filled[span->bin / 64] &= ~((uint64_t)1 << (span->bin % 64));
    }
}

/* Mostly the span stays in its bin, and only its links in the list change. */
void bins_change(uint32_t from, uint32_t first, uint32_t pages, uint32_t dirty) {
    struct span *old = span_at(from), *span = span_at(first);
    const unsigned bin = old->bin;
    if (bin != bin_of(pages) || state_of(old) != (dirty == 0 ? CLEAN : DIRTY)) {
        bins_remove(from);
        bins_insert(first, pages, dirty);
        return;
    }
    const uint32_t prev = old->prev, next = old->next;
    label_free(first, pages, dirty);
    span->bin = (uint8_t)bin;
    span->prev = prev;
    span->next = next;
    if (next != 0) span_at(next)->prev = first;
    if (prev != 0)
        span_at(prev)->next = first;
    else
        set_of(first)->bins[bin] = first;
}

/* The first filled bin from BIN on; BINS when there is none. */
static unsigned next_filled(const struct set *set, unsigned bin) {
    for (unsigned word = bin / 64; word < BIN_WORDS; word++) {
        uint64_t bits = set->filled[word];
        if (word == bin / 64) bits &= ~(uint64_t)0 << (bin % 64);
        if (bits != 0) return word * 64 + lowest_bit(bits);
    }
    return BINS;
}

/* Shorter first, then the fuller 2 MiB, then the lower address. */
static bool is_better(uint32_t candidate, uint32_t best) {
    const struct span *a = span_at(candidate), *b = span_at(best);
    if (a->pages != b->pages) return a->pages < b->pages;
    unsigned a_used = pages_used_in_chunk(candidate), b_used = pages_used_in_chunk(best);
    if (a_used != b_used) return a_used > b_used;
    return candidate < best;
}

static uint32_t better_of(uint32_t a, uint32_t b) { return a == 0 || (b != 0 && is_better(b, a)) ? b : a; }

/* Whether the free span at FIRST has PAGES pages from such a start on. Not inline: requests without an alignment need none of it. */
static HAK_NOINLINE bool has_start(uint32_t first, uint32_t pages, struct span_start start) {
    return bins_start_from(first, start) + pages <= first + span_at(first)->pages;
}

/* Every span that is looked at counts, whether it fits or not. One with pages ENOUGH for any start fits; without an
 * alignment, so does every span of a higher bin. */
static uint32_t find_in(const struct set *set, uint32_t pages, struct span_start start) {
    if (set->spans == 0) return 0;
    const uint32_t enough = pages + (uint32_t)start.align_pages - 1;
    for (unsigned bin = next_filled(set, bin_of(pages)); bin < BINS; bin = next_filled(set, bin + 1)) {
        uint32_t best = 0;
        unsigned looked_at = 0;
        for (uint32_t at = set->bins[bin]; at != 0 && looked_at++ < LOOKED_AT; at = span_at(at)->next)
            if (span_at(at)->pages >= enough || (enough != pages && has_start(at, pages, start)))
                best = better_of(best, at);
        if (best != 0) return best;
    }
    return 0;
}

/* Whether half of the PAGES pages that would be cut out of the free span at HEAD are dirty. */
static bool is_half_dirty(uint32_t head, uint32_t pages, struct span_start start) {
    return 2 * pages_count_dirty((uint32_t)bins_start_from(head, start), pages) >= pages;
}

uint32_t bins_find(uint32_t pages, struct span_start start, enum span_zone zone) {
    enum span_zone other = zone == ZONE_PLAIN ? ZONE_HUGE : ZONE_PLAIN;
    uint32_t found = find_in(set_at(zone, DIRTY), pages, start);
    if (found == 0 && (found = find_in(set_at(other, DIRTY), pages, start)) != 0 && !is_half_dirty(found, pages, start)) found = 0;
    if (found == 0) found = find_in(set_at(zone, CLEAN), pages, start);
    return found;
}

uint32_t bins_find_gap(uint32_t pages) { return find_in(set_at(ZONE_GAP, CLEAN), pages, (struct span_start){1, 0}); }

static uint32_t find_accepted(uint32_t first, uint32_t spared, bool (*accepts)(uint32_t first)) {
    for (unsigned looked_at = 0; first != 0 && looked_at < LOOKED_AT; looked_at++, first = span_at(first)->next)
        if (first != spared && (accepts == NULL || accepts(first))) return first;
    return 0;
}

static uint32_t find_longest_in(const struct set *set, uint32_t spared, bool (*accepts)(uint32_t first)) {
    for (unsigned word = BIN_WORDS; word-- > 0;) {
        for (uint64_t filled = set->filled[word]; filled != 0; filled &= ~((uint64_t)1 << highest_bit(filled))) {
            uint32_t found = find_accepted(set->bins[word * 64 + highest_bit(filled)], spared, accepts);
            if (found != 0) return found;
        }
    }
    return 0;
}

uint32_t bins_find_dirty(enum span_zone zone, uint32_t spared, bool (*accepts)(uint32_t first)) {
    return find_longest_in(set_at(zone, DIRTY), spared, accepts);
}

static uint32_t longer_of(uint32_t a, uint32_t b) { return a == 0 || (b != 0 && span_at(b)->pages > span_at(a)->pages) ? b : a; }

uint32_t bins_find_longest(bool (*accepts)(uint32_t first)) {
    uint32_t longest = 0;
    for (int zone = 0; zone < ZONES; zone++)
        for (int state = 0; state < STATES; state++) longest = longer_of(longest, find_longest_in(set_at(zone, state), 0, accepts));
    return longest;
}
