/* pages.c - the bits of pages.h, chunk by chunk. */
#include "span/pages.h"

#include "base/bits.h"

/* One chunk's share of a run of pages. */
struct share {
    struct chunk *chunk;
    uint32_t mask;
    uint32_t pages;
};

/* The share that starts at FIRST of a run that ends before END. */
static struct share share_at(uint32_t first, uint32_t end) {
    uint32_t within = first % CHUNK_PAGES;
    uint32_t pages = min_u32(end - first, CHUNK_PAGES - within);
    return (struct share){page_chunk(first), bit_range(within, pages), pages};
}

/* How many of the share's bits are set in BITS: mostly all or none. */
HAK_INLINE uint32_t count_in(uint32_t bits, struct share share) {
    bits &= share.mask;
    return bits == 0 ? 0 : bits == share.mask ? share.pages : count_bits(bits);
}

HAK_INLINE uint32_t dirty_in(const struct chunk *chunk) { return chunk->touched & ~chunk->refused; }

/* No page of FIRST .. END - 1 is dirty: what was returned to the kernel last, or refused by it, with what was before
 * beside it and what was found clean on the way there. A long span is returned in many pieces; for each the others, and
 * the clean pages between them, would be searched and counted again. */
static struct {
    uint32_t first, end;
} cleaned;

/* AT, or the end of the cleaned stretch if it lies in that. */
HAK_INLINE uint32_t past_cleaned(uint32_t at) { return at >= cleaned.first && at < cleaned.end ? cleaned.end : at; }

/* Touched by FIRST .. END - 1, or overlapped: both are one stretch then. */
static bool adjoins_cleaned(uint32_t first, uint32_t end) { return first <= cleaned.end && end >= cleaned.first; }

static void lengthen_cleaned(uint32_t first, uint32_t end) {
    cleaned.first = min_u32(cleaned.first, first);
    cleaned.end = max_u32(cleaned.end, end);
}

/* Purging goes on behind what was cleaned now, wherever the stretch before lies. */
static void note_cleaned(uint32_t first, uint32_t end) {
    if (!adjoins_cleaned(first, end)) cleaned.first = cleaned.end = first;
    lengthen_cleaned(first, end);
}

/* What lies above stays: purging goes on there. */
static void shorten_cleaned(uint32_t first, uint32_t end) {
    if (first < cleaned.end) cleaned.first = max_u32(cleaned.first, end);
}

struct pages_before pages_mark_used(uint32_t first, uint32_t pages) {
    shorten_cleaned(first, first + pages);
    struct pages_before before = {0, 0, 0};
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        before.touched += count_in(share.chunk->touched, share);
        before.dirty += count_in(dirty_in(share.chunk), share);
        before.returned += count_in(share.chunk->returned, share);
        share.chunk->used |= share.mask;
        share.chunk->touched |= share.mask;
        share.chunk->returned &= ~share.mask;
        share.chunk->refused &= ~share.mask;
        at += share.pages;
    }
    return before;
}

void pages_mark_held(uint32_t first, uint32_t pages) {
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        share.chunk->used |= share.mask;
        at += share.pages;
    }
}

void pages_mark_free(uint32_t first, uint32_t pages) {
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        share.chunk->used &= ~share.mask;
        at += share.pages;
    }
}

static void mark_zero(uint32_t first, uint32_t pages, bool returned) {
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        share.chunk->touched &= ~share.mask;
        share.chunk->refused &= ~share.mask;
        if (returned) share.chunk->returned |= share.mask;
        at += share.pages;
    }
    note_cleaned(first, first + pages);
}

void pages_mark_zero(uint32_t first, uint32_t pages) { mark_zero(first, pages, false); }
void pages_mark_returned(uint32_t first, uint32_t pages) { mark_zero(first, pages, true); }

void pages_forget_returned(uint32_t first, uint32_t pages) {
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        share.chunk->returned &= ~share.mask;
        at += share.pages;
    }
}

void pages_mark_refused(uint32_t first, uint32_t pages) {
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        share.chunk->refused |= share.chunk->touched & share.mask;
        at += share.pages;
    }
    note_cleaned(first, first + pages);
}

bool pages_any_moved(uint32_t first, uint32_t pages) {
    uint32_t any = 0;
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        any |= share.chunk->moved & share.mask;
        at += share.pages;
    }
    return any != 0;
}

static bool is_moved(uint32_t page) { return page_chunk(page)->moved >> page % CHUNK_PAGES & 1; }

static uint32_t edges;

uint32_t pages_edges(void) { return edges; }

static void write_edges(struct chunk *chunk, uint32_t bits) {
    edges += count_bits(bits) - count_bits(chunk->edges);
    chunk->edges = bits;
}

static void set_edge(uint32_t page, bool set) {
    if (!page_is_inside(page)) return;
    struct chunk *chunk = page_chunk(page);
    uint32_t bit = bit_range(page % CHUNK_PAGES, 1);
    write_edges(chunk, set ? chunk->edges | bit : chunk->edges & ~bit);
}

void pages_mark_moved(uint32_t first, uint32_t pages, bool moved) {
    for (uint32_t at = first, end = first + pages; at < end;) {
        struct share share = share_at(at, end);
        share.chunk->moved = moved ? share.chunk->moved | share.mask : share.chunk->moved & ~share.mask;
        write_edges(share.chunk, share.chunk->edges & ~share.mask);
        at += share.pages;
    }
    set_edge(first, moved || is_moved(first - 1));
    set_edge(first + pages, moved || (page_is_inside(first + pages) && is_moved(first + pages)));
}

/* Mappings also end where the advice to the kernel changes. */
static bool same_advice(const struct chunk *a, const struct chunk *b) {
    return a->zone == b->zone && a->no_huge == b->no_huge;
}

uint32_t pages_next_advice(uint32_t at, uint32_t end) {
    const struct chunk *here = page_chunk(at);
    while (at < end && same_advice(page_chunk(at), here)) at += CHUNK_PAGES - at % CHUNK_PAGES;
    return min_u32(at, end);
}

uint32_t pages_next_edge(uint32_t at, uint32_t end) {
    end = pages_next_advice(at, end);
    at++;
    while (at < end) {
        struct share share = share_at(at, end);
        uint32_t found = share.chunk->edges & share.mask;
        if (found != 0) return at - at % CHUNK_PAGES + lowest_bit(found);
        at += share.pages;
    }
    return end;
}

uint32_t pages_count_dirty(uint32_t first, uint32_t pages) {
    uint32_t dirty = 0;
    for (uint32_t at = first, end = first + pages; (at = past_cleaned(at)) < end;) {
        struct share share = share_at(at, end);
        dirty += count_in(dirty_in(share.chunk), share);
        at += share.pages;
    }
    return dirty;
}

unsigned pages_used_in_chunk(uint32_t page) {
    return count_bits(page_chunk(page)->used);
}

uint32_t pages_next_dirty(uint32_t *first, uint32_t end, uint32_t most) {
    uint32_t at = *first;
    while ((at = past_cleaned(at)) < end) { /* to the first dirty page */
        struct share share = share_at(at, end);
        uint32_t dirty = dirty_in(share.chunk) & share.mask;
        if (dirty != 0) {
            at = at - at % CHUNK_PAGES + lowest_bit(dirty);
            break;
        }
        at += share.pages;
    }
    if (at >= end) return 0;
    const uint32_t start = at;
    end = start + min_u32(end - start, most);
    while (at < end) { /* to the first clean one after it */
        struct share share = share_at(at, end);
        uint32_t clean = ~dirty_in(share.chunk) & share.mask;
        if (clean != 0) {
            at = at - at % CHUNK_PAGES + lowest_bit(clean);
            break;
        }
        at += share.pages;
    }
    if (adjoins_cleaned(*first, start)) lengthen_cleaned(*first, start);
    *first = start;
    return at - start;
}
