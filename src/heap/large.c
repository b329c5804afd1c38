/* large.c - requests above MEDIUM_MAX_BYTES, or aligned to more than a page, and medium blocks whose length was
 * changed. A large block is a whole span; the word of its first page says so, those of the others are 0. A block that
 * had to move in order to grow has reserve pages behind it: they are touched only when it grows into them. */
#include "heap/large.h"

#include "base/bits.h"
#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "os/os.h"
#include "region/outside.h"
#include "slab/slab.h"

/* When a block shrinks, its span stays whole if the tail is at most one part in this many. */
enum { TRIM_SHARE = 8 };

static struct large *large_at(size_t page) { return page_span(page); }

/* What counts as in use. */
static int64_t span_bytes(size_t page) { return (int64_t)(large_at(page)->pages * PAGE_BYTES); }

/* Spans that signal handlers freed while their thread was busy: linked by inline_bits. */
static _Atomic uint32_t later;

bool large_claim(size_t page) {
    /* relaxed: the program orders what threads do with the block, or is wrong anyway. */
    return atomic_exchange_explicit(&window.words[page], WORD_NONE, memory_order_relaxed) == WORD_LARGE;
}

void large_free_later(size_t page) {
    struct slab_remote *remote = slab_remote_at((uint32_t)page);
    uint32_t head = atomic_load_explicit(&later, memory_order_relaxed); /* checked by the exchange */
    do {
        atomic_store_explicit(&remote->inline_bits, head, memory_order_relaxed); /* published below */
    } while (!atomic_compare_exchange_weak_explicit(&later, &head, (uint32_t)page, memory_order_release,
                                                    memory_order_relaxed));
}

void large_settle(void) {
    if (HAK_LIKELY(atomic_load_explicit(&later, memory_order_relaxed) == 0)) return; /* a hint */
    /* acquire: pairs with the release above; the list is taken as a whole. */
    uint32_t first = atomic_exchange_explicit(&later, 0, memory_order_acquire);
    while (first != 0) {
        uint32_t next =
            (uint32_t)atomic_exchange_explicit(&slab_remote_at(first)->inline_bits, 0, memory_order_relaxed);
        int64_t bytes = span_bytes(first);
        span_give(first);
        footprint_add(-bytes); /* last: a thread that sees it finds the pages free */
        first = next;
    }
}

static size_t pages_for(size_t bytes) { return (max_size(bytes, 1) + PAGE_BYTES - 1) >> PAGE_SHIFT; }

/* Makes the used span at FIRST a block of all its PAGES pages that begins at OFFSET. */
static void begin(uint32_t first, size_t pages, size_t offset) {
    large_at(first)->pages = (uint32_t)pages;
    large_at(first)->offset = (uint16_t)offset;
    large_at(first)->moved = false;
    page_word_set(first, WORD_LARGE);
}

void large_make_of_medium(void *block) {
    const uint32_t first = (uint32_t)page_index(block);
    bin_take_out(block, first, false);
    begin(first, span_at(first)->pages, (uintptr_t)block % PAGE_BYTES);
}

void *large_alloc(size_t bytes, size_t alignment, bool *zero) {
    *zero = false;
    if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) return NULL;
    large_settle();
    uint32_t first = 0;
    size_t pages = pages_for(bytes), align_pages = pages_for(alignment);
    bool fits = pages < window.pages && align_pages < window.pages && pages + align_pages < window.pages;
    if (fits) first = span_take(pages, align_pages, large_fill(pages, bytes));
    if (first != 0) {
        footprint_add((int64_t)(pages * PAGE_BYTES));
        *zero = span_at(first)->zero;
        begin(first, pages, colour_suits(alignment) ? colour_offset(page_address(first), pages * PAGE_BYTES - bytes) : 0);
        return large_start(first);
    }
    if (!span_is_allowed(pages)) return NULL;
    /* The window may be full. If the kernel has no memory for it, it has none outside either. */
    void *block = large_map_outside(bytes, alignment, zero);
    if (block == NULL || span_is_allowed(0)) return block;
    outside_unmap(block); /* another thread took what was left meanwhile */
    return NULL;
}

void *large_map_outside(size_t bytes, size_t alignment, bool *zero) {
    /* outside_map refuses impossible sizes, for which heap_good_bytes is 0. */
    void *block = outside_map(max_size(bytes, heap_good_bytes(bytes)), alignment);
    *zero = block != NULL;
    return block;
}

size_t large_good_bytes(size_t bytes) { return colour_least(pages_for(bytes) * PAGE_BYTES, bytes); }

void large_free(size_t page) {
    large_settle();
    int64_t bytes = span_bytes(page);
    span_give((uint32_t)page);
    footprint_add(-bytes); /* last: a thread that sees it finds the pages free */
}

size_t large_usable_bytes(size_t page) { return large_at(page)->pages * PAGE_BYTES - large_at(page)->offset; }

/* A block of MOVE_LEAST_PAGES or more that grows is moved by span_move, to a place with a reserve: as long as the
 * block the first time, later RESERVE_FACTOR times that, but at most RESERVE_MOST_PAGES. So the next growths stay in
 * place, and each mapping stays in few pieces. */
enum { MOVE_LEAST_PAGES = 8, RESERVE_FACTOR = 7, RESERVE_MOST_PAGES = 4096 };

/* Whether a limit counts reserves: hakmem's own, one of the process, which it may set at any time, or the machine's, for which a small
 * process opens no file. What is never grown into would be missing for all other blocks. */
static bool reserve_counts(void) {
    return span_is_limited() || os_is_limited() || (span_held_bytes() >= LIMITS_FROM_BYTES && os_charges_all());
}

/* Moves the block: without a reserve if there is no room for one, or if a limit would count it. */
static uint32_t move(uint32_t page, size_t pages) {
    size_t held = large_at(page)->pages;
    size_t reserve = min_size(large_at(page)->moved ? RESERVE_FACTOR * pages : pages, RESERVE_MOST_PAGES);
    if (reserve_counts()) reserve = 0;
    page_word_set(page, WORD_NONE); /* soon someone else's */
    uint32_t to = span_move(page, held, pages + reserve);
    if (to == 0) to = span_move(page, held, pages);
    page_word_set(to != 0 ? to : page, WORD_LARGE);
    return to;
}

/* The block at AT now has PAGES pages. */
static void set_pages(uint32_t at, size_t pages) {
    footprint_add(((int64_t)pages - (int64_t)large_at(at)->pages) * (int64_t)PAGE_BYTES);
    large_at(at)->pages = (uint32_t)pages;
}

/* If only the hard limit is in the way, what threads keep is freed first. */
static bool extend(uint32_t page, size_t pages) {
    if (span_extend(page, pages)) return true;
    const size_t more = pages - span_at(page)->pages;
    if (span_is_allowed(more)) return false; /* the limit is not in the way */
    reveal_own();
    if (!span_is_allowed(more)) {
        reveal_others(more * PAGE_BYTES);
        if (!span_is_allowed(more)) return false;
        reveal_helped();
    }
    return span_extend(page, pages);
}

static bool lengthen(uint32_t page, size_t pages) {
    if (pages >= window.pages || (pages > span_at(page)->pages && !extend(page, pages))) return false;
    set_pages(page, pages);
    return true;
}

/* Lengthens the block where it lies, or moves it; NULL when it must be copied. */
static void *grow(uint32_t page, size_t pages) {
    if (lengthen(page, pages)) return large_start(page);
    const size_t held = large_at(page)->pages;
    const uint16_t offset = large_at(page)->offset;
    uint32_t to = pages < window.pages && held >= MOVE_LEAST_PAGES ? move(page, pages) : 0;
    if (to == 0) return NULL;
    struct large *large = large_at(to); /* other threads read its span record, too: under the span lock */
    large->pages = (uint32_t)held;
    large->offset = offset;
    large->moved = true;
    set_pages(to, pages);
    return large_start(to);
}

static void *shrink(uint32_t page, size_t pages) {
    size_t held = large_at(page)->pages;
    if (held - pages > held / TRIM_SHARE) {
        span_trim(page, pages);
        set_pages(page, pages);
    }
    return large_start(page);
}

/* The pages of the block at PAGE if it had BYTES bytes. */
static size_t pages_with(size_t page, size_t bytes) { return pages_for(large_at(page)->offset + bytes); }

bool large_extend(size_t page, size_t bytes) {
    return bytes <= PTRDIFF_MAX && lengthen((uint32_t)page, pages_with(page, bytes));
}

void *large_resize(size_t page, size_t bytes) {
    if (bytes > PTRDIFF_MAX) return NULL;
    size_t pages = pages_with(page, bytes);
    return pages > large_at(page)->pages ? grow((uint32_t)page, pages) : shrink((uint32_t)page, pages);
}
