/* bins.c - the bins, and the choice among the spans of one bin. */
#include "span/bins.h"

#include "base/bits.h"
#include "span/pages.h"

enum {
    EXACT_BINS = 32,
    STEPS = 4,                           /* bins to a doubling above */
    BINS = EXACT_BINS + STEPS * (32 - 5), /* lengths are below 2^32 pages */
    BIN_WORDS = (BINS + 63) / 64,
    LOOKED_AT = 8, /* candidates of one bin: enough to find a good one, few enough for bounded work */
};

static uint32_t bins[BINS];
static uint64_t filled[BIN_WORDS]; /* a bit for each bin that is not empty */

static unsigned bin_of(uint32_t pages) {
    if (pages <= EXACT_BINS) return pages - 1;
    unsigned log = highest_bit(pages);
    return EXACT_BINS + (log - 5) * STEPS + ((pages >> (log - 2)) & (STEPS - 1));
}

void bins_insert(uint32_t first, uint32_t pages, uint32_t dirty) {
    struct span *span = span_at(first);
    unsigned bin = bin_of(pages);
    span->kind = SPAN_FREE;
    span->pages = pages;
    span->bin = (uint8_t)bin;
    span->dirty = dirty;
    span->prev = 0;
    span->next = bins[bin];
    if (span->next != 0) span_at(span->next)->prev = first;
    bins[bin] = first;
    filled[bin / 64] |= (uint64_t)1 << (bin % 64);
    if (pages > 1) {
        struct span *last = span_at(first + pages - 1);
        last->kind = SPAN_FREE_LAST;
        last->head = first;
    }
}

void bins_remove(uint32_t first) {
    struct span *span = span_at(first);
    if (span->next != 0) span_at(span->next)->prev = span->prev;
    if (span->prev != 0) {
        span_at(span->prev)->next = span->next;
    } else {
        bins[span->bin] = span->next;
        if (span->next == 0) filled[span->bin / 64] &= ~((uint64_t)1 << (span->bin % 64));
    }
}

/* The first filled bin from BIN on; BINS when there is none. */
static unsigned next_filled(unsigned bin) {
    for (unsigned word = bin / 64; word < BIN_WORDS; word++) {
        uint64_t bits = filled[word];
        if (word == bin / 64) bits &= ~(uint64_t)0 << (bin % 64);
        if (bits != 0) return word * 64 + lowest_bit(bits);
    }
    return BINS;
}

/* Shorter first, then dirty before clean, then the fuller 2 MiB, then the lower address. */
static bool is_better(uint32_t candidate, uint32_t best) {
    const struct span *a = span_at(candidate), *b = span_at(best);
    if (a->pages != b->pages) return a->pages < b->pages;
    if ((a->dirty != 0) != (b->dirty != 0)) return a->dirty != 0;
    unsigned a_used = pages_used_in_chunk(candidate), b_used = pages_used_in_chunk(best);
    if (a_used != b_used) return a_used > b_used;
    return candidate < best;
}

uint32_t bins_find(uint32_t pages) {
    for (unsigned bin = next_filled(bin_of(pages)); bin < BINS; bin = next_filled(bin + 1)) {
        uint32_t best = 0;
        unsigned looked_at = 0;
        for (uint32_t at = bins[bin]; at != 0 && looked_at < LOOKED_AT; at = span_at(at)->next) {
            if (span_at(at)->pages < pages) continue;
            looked_at++;
            if (best == 0 || is_better(at, best)) best = at;
        }
        if (best != 0) return best;
    }
    return 0;
}

uint32_t bins_find_dirty(void) {
    for (unsigned bin = BINS; bin-- > 0;) {
        if ((filled[bin / 64] >> (bin % 64) & 1) == 0) continue;
        for (uint32_t at = bins[bin]; at != 0; at = span_at(at)->next)
            if (span_at(at)->dirty != 0) return at;
    }
    return 0;
}
