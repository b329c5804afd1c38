/* large.c - requests above SMALL_MAX_BYTES, or aligned to more. A large block is a whole span; the word
 * of its first page says so, those of the others are 0. */
#include "heap/large.h"

#include "base/bits.h"
#include "region/outside.h"
#include "slab/slab.h"

/* A span whose tail is worth less than this share of it stays whole when its block shrinks. */
enum { TRIM_SHARE = 8 };

/* Spans that signal handlers freed while their thread was busy: linked by later_next. */
static _Atomic uint32_t later;

bool large_claim(size_t page) {
    /* relaxed: what the threads do about the block is ordered by the program, or wrong anyway. */
    return atomic_exchange_explicit(&window.words[page], WORD_NONE, memory_order_relaxed) == WORD_LARGE;
}

void large_free_later(size_t page) {
    struct slab_remote *remote = slab_remote_at((uint32_t)page);
    uint32_t head = atomic_load_explicit(&later, memory_order_relaxed); /* checked by the exchange */
    do {
        atomic_store_explicit(&remote->later_next, head, memory_order_relaxed); /* published below */
    } while (!atomic_compare_exchange_weak_explicit(&later, &head, (uint32_t)page, memory_order_release,
                                                    memory_order_relaxed));
}

static void free_delayed(void) {
    if (HAK_LIKELY(atomic_load_explicit(&later, memory_order_relaxed) == 0)) return; /* a hint */
    /* acquire: pairs with the release above; the list is taken as a whole. */
    uint32_t first = atomic_exchange_explicit(&later, 0, memory_order_acquire);
    while (first != 0) {
        uint32_t next = atomic_load_explicit(&slab_remote_at(first)->later_next, memory_order_relaxed);
        span_give(first);
        first = next;
    }
}

static size_t pages_for(size_t bytes) { return (max_size(bytes, 1) + PAGE_BYTES - 1) >> PAGE_SHIFT; }

void *large_alloc(size_t bytes, size_t alignment, bool *zero) {
    *zero = false;
    if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) return NULL;
    free_delayed();
    span_decay();
    uint32_t first = 0;
    size_t pages = pages_for(bytes), align_pages = pages_for(alignment);
    bool fits = pages < window.pages && align_pages < window.pages && pages + align_pages < window.pages;
    if (fits) first = span_take(pages, align_pages);
    if (first != 0) {
        page_word_set(first, WORD_LARGE);
        *zero = span_at(first)->zero;
        return page_address(first);
    }
    /* A kernel that has no memory for the window has none outside; a full window is another matter. */
    void *block = outside_map(bytes, alignment);
    *zero = block != NULL;
    return block;
}

void large_free(size_t page) {
    free_delayed();
    span_give((uint32_t)page);
    span_decay();
}

size_t large_usable_bytes(size_t page) { return span_at(page)->pages * PAGE_BYTES; }

bool large_resize(size_t page, size_t bytes) {
    size_t have = span_at(page)->pages;
    if (bytes > PTRDIFF_MAX) return false;
    size_t want = pages_for(bytes);
    if (want > have) return span_extend((uint32_t)page, want);
    if (bytes <= SMALL_MAX_BYTES) return false; /* a small block holds it in less */
    if (have - want > have / TRIM_SHARE) span_trim((uint32_t)page, want);
    return true;
}
