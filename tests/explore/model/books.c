/* books.c - looks at all books of the heap and slab layers, when nobody runs. */
#include "model.h"

#include "base/bits.h"
#include "base/counter.h"
#include "heap/registry.h"
#include "region/colour.h"
#include "span/span.h"

enum { PAGES = 128, BLOCKS = 128, HEAPS = 8 };

/* In how many places a block is. */
static uint8_t places[PAGES][BLOCKS];

static bool is_slab(uint32_t page) {
    uint32_t word = page_word(page);
    return word != WORD_NONE && word != WORD_LARGE && slab_head(page) == page;
}

static const struct slab_class *shape_of(uint32_t first) { return &slab_classes[slab_at(first)->span.class]; }

static void count_place(const void *block) {
    size_t page = page_index(block);
    EXPLORE_CHECK(page_is_inside(page) && page_word(page) != WORD_NONE);
    uint32_t first = slab_head(page);
    EXPLORE_CHECK(is_slab(first));
    size_t offset = (size_t)((const char *)block - (const char *)page_address(first)), bytes = shape_of(first)->block_bytes;
    if (shape_of(first)->blocks == 1 && offset == colour_of(page_address(first))) offset = 0;
    EXPLORE_CHECK(offset % bytes == 0 && offset / bytes < slab_at(first)->carved);
    places[first][offset / bytes]++;
}

/* ---- heaps --------------------------------------------------------------------------------------------------- */

static unsigned list_heaps(struct heap *heaps[HEAPS]) {
    unsigned count = 0;
    heaps[count++] = &commons;
    for (struct heap *heap = registry_first(); heap != NULL && count < HEAPS; heap = heap->next) heaps[count++] = heap;
    return count;
}

static void count_held(struct heap *heap) {
    bool live = atomic_load(&heap->state) == HEAP_LIVE;
    for (unsigned class = 0; heap != &commons && class < SIZE_CLASSES; class++) {
        EXPLORE_CHECK(live || heap->parked || stack_held(heap, class) == 0);
        for (size_t i = 0; i < stack_held(heap, class); i++) count_place(front_block(heap->bins[class].bottom + i));
    }
    for (void **at = atomic_load(&heap->buffer_bottom); at != atomic_load(&heap->front.buffer_top); at++) count_place(*at);
}

static bool is_in_inbox(struct heap *heap, uint32_t first) {
    uint32_t at = atomic_load(&heap->inbox);
    for (unsigned steps = 0; at != 0 && at != first; at = atomic_load(&slab_remote_at(at)->inbox_next))
        EXPLORE_CHECK(++steps < PAGES);
    return at == first;
}

/* Only its owner's inbox counts, or another live heap's, whose thread passes it on. */
static void check_queued(uint32_t first) {
    struct heap *heaps[HEAPS];
    unsigned count = list_heaps(heaps), found = 0;
    for (unsigned i = 0; i < count; i++) {
        if (!is_in_inbox(heaps[i], first)) continue;
        EXPLORE_CHECK(atomic_load(&heaps[i]->state) != HEAP_DEAD);
        found++;
    }
    EXPLORE_CHECK(atomic_load(&slab_remote_at(first)->queued) == 1);
    EXPLORE_CHECK(found == 1);
}

static bool is_listed(const struct heap *heap, uint32_t first) {
    const struct bin *bin = &heap->bins[slab_at(first)->span.class];
    uint32_t at = bin->slabs[slab_at(first)->bucket];
    while (at != 0 && at != first) at = slab_at(at)->span.next;
    return at == first;
}

/* What a bin says is taken is what its slabs lack. */
static void check_taken(const struct heap *heap) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        uint64_t taken = 0;
        for (int bucket = 0; bucket < BUCKETS; bucket++)
            for (uint32_t first = heap->bins[class].slabs[bucket]; first != 0; first = slab_at(first)->span.next)
                taken += shape_of(first)->blocks - slab_at(first)->free;
        EXPLORE_CHECK(taken == counter_read(&heap->bins[class].taken_blocks));
    }
}

/* ---- slabs --------------------------------------------------------------------------------------------------- */

static void count_slab(uint32_t first) {
    struct slab *slab = slab_at(first);
    const struct slab_class *shape = shape_of(first);
    _Atomic uint64_t *remote = shape->blocks > 64 ? (_Atomic uint64_t *)(void *)((char *)slab->bits + 32768)
                                                  : &slab_remote_at(first)->inline_bits;
    struct heap *owner = atomic_load(&slab->owner);
    EXPLORE_CHECK(owner != NULL && is_listed(owner, first));
    bool waiting = false;
    uint32_t free = shape->blocks - slab->carved;
    for (unsigned block = 0; block < shape->blocks; block++) {
        bool is_free = slab->bits[block / 64] >> block % 64 & 1, is_remote = atomic_load(&remote[block / 64]) >> block % 64 & 1;
        places[first][block] = (uint8_t)(places[first][block] + is_free + is_remote);
        free += is_free;
        waiting |= is_remote;
    }
    EXPLORE_CHECK(free == slab->free);
    if (waiting) check_queued(first);
}

void model_check_blocks(void *const *in_use, size_t count) {
    struct heap *heaps[HEAPS];
    unsigned heap_count = list_heaps(heaps);
    for (unsigned page = 0; page < PAGES; page++)
        for (unsigned block = 0; block < BLOCKS; block++) places[page][block] = 0;
    for (size_t i = 0; i < count; i++) {
        count_place(in_use[i]);
        EXPLORE_CHECK(*(void **)in_use[i] == in_use[i]); /* model_take */
    }
    for (unsigned i = 0; i < heap_count; i++) {
        count_held(heaps[i]);
        check_taken(heaps[i]);
        bool dead = atomic_load(&heaps[i]->state) == HEAP_DEAD;
        EXPLORE_CHECK(!dead || atomic_load(&heaps[i]->inbox) == 0);
        EXPLORE_CHECK(!dead || !atomic_load(&heaps[i]->undrained));
    }
    for (uint32_t page = CHUNK_PAGES; page < PAGES; page++) {
        if (!is_slab(page)) continue;
        count_slab(page);
        for (unsigned block = 0; block < slab_at(page)->carved; block++) EXPLORE_CHECK(places[page][block] == 1);
    }
}

/* ---- spans --------------------------------------------------------------------------------------------------- */

struct found {
    uint64_t used, spans, dirty;
};

static void look_at_span(uint32_t first, struct found *found) {
    const struct span *span = span_at(first), *last = span_at(first + span->pages - 1);
    bool is_free = span->kind == SPAN_FREE;
    uint32_t dirty = 0;
    EXPLORE_CHECK(is_free || span->kind == SPAN_USED);
    if (span->pages > 1) EXPLORE_CHECK(is_free ? last->kind == SPAN_FREE_LAST && last->head == first : last->kind == SPAN_USED);
    for (uint32_t page = first; page < first + span->pages; page++) {
        const struct chunk *bits = page_chunk(page);
        EXPLORE_CHECK((bits->used >> page % CHUNK_PAGES & 1) == !is_free);
        dirty += (bits->touched & ~bits->refused) >> page % CHUNK_PAGES & 1;
    }
    found->used += is_free ? 0 : span->pages;
    found->spans += !is_free;
    found->dirty += is_free ? dirty : 0;
    if (is_free) EXPLORE_CHECK(span->dirty == dirty);
}

void model_check_spans(void) {
    struct found found = {0, 0, 0};
    struct span_counts counts;
    uint32_t at = CHUNK_PAGES, end = (uint32_t)span_end_page();
    for (; at < end; at += span_at(at)->pages) {
        EXPLORE_CHECK(span_at(at)->pages > 0 && span_at(at)->pages <= end - at);
        look_at_span(at, &found);
    }
    span_counts_read(&counts);
    EXPLORE_CHECK(counts.used_pages == found.used && counts.dirty_pages == found.dirty);
    EXPLORE_CHECK(counts.taken - counts.given == found.spans && counts.fresh_pages == end - CHUNK_PAGES);
}

/* ---- counters: in place of src/base/counter.h ------------------------------------------------------------------ */

uint64_t counter_read(const counter *number) { return *number; }
void counter_set(counter *number, uint64_t value) { *number = value; }
void counter_add(counter *number, uint64_t more) { *number += more; }
void counter_sub(counter *number, uint64_t less) { *number -= less; }
void counter_raise(counter *most, uint64_t value) {
    if (value > *most) *most = value;
}
