/* kept.c - the cost of the medium blocks that a thread keeps: as much memory as the program touched of them. They are
 * freed before the process grows; and the less was touched, the more a thread may keep. The kernel is asked what is
 * resident, so what it swapped out costs nothing. */
#include "ace/budget.h"
#include "ace/huge.h"
#include "base/bits.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "heap/thread.h"

void kept_forget(struct heap *heap) {
    heap->unlooked_pages = 0;
    heap->growth_spared = false;
    heap->medium_times = 1;
    heap->medium_touched = ACE_TOUCHED_UNKNOWN;
}

/* The blocks of one class that the owner keeps: from lo on, which other threads may raise meanwhile. */
struct kept {
    void **lo;
    size_t count;
};

static struct kept kept_of(const struct heap *heap, unsigned class) {
    /* relaxed: a hint; the blocks stay mapped, whichever thread takes them. */
    void **lo = atomic_load_explicit(&heap->front.lo[class], memory_order_relaxed), **top = stack_top(heap, class);
    return (struct kept){lo, top > lo ? (size_t)(top - lo) : 0};
}

static size_t held_bytes(const struct heap *heap) {
    size_t bytes = 0;
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) bytes += kept_of(heap, class).count * slab_classes[class].block_bytes;
    return bytes;
}

/* Of the block at PLACE in a stack of CLASS. */
typedef size_t look_at(void **place, unsigned class);

static size_t resident_bytes(void **place, unsigned class) {
    return os_resident_bytes(page_address(page_index(front_block(place))), slab_classes[class].block_bytes);
}

/* A huge page is resident as a whole, whatever the program touched: it counts as touched by the least that justifies
 * huge pages. */
static size_t touched_bytes(void **place, unsigned class) {
    const size_t resident = resident_bytes(place, class);
    if (!span_may_be_huge((uint32_t)page_index(front_block(place)))) return resident;
    return min_size(resident, ace_huge_touched_least(slab_classes[class].block_bytes, heap_settings.objective));
}

/* Estimates all that is kept, by a look at the oldest and the newest block of each class. */
HAK_INLINE size_t bytes_by(look_at *look, const struct heap *heap) {
    size_t bytes = 0;
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) {
        const struct kept kept = kept_of(heap, class);
        if (kept.count == 0) continue;
        const size_t oldest = look(kept.lo, class);
        const size_t newest = kept.count > 1 ? look(kept.lo + kept.count - 1, class) : oldest;
        bytes += kept.count * (oldest + newest) / 2;
    }
    return bytes;
}

static void give_all(struct heap *heap) {
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) stack_empty(heap, class);
    footprint_tell(&heap->in_use_change); /* otherwise what the caller takes would come on top of it, as a peak that never was */
    os_lock_drop(&heap->lock);
    remote_settle(); /* their slabs may belong to dead heaps by now */
}

/* Whether at least LEAST bytes of what is kept were resident at the last look. A new look is taken once PAGES exceed
 * the growth that the last one covers. */
static bool is_spared(struct heap *heap, size_t held, size_t least, size_t pages) {
    if (pages <= heap->unlooked_pages) {
        heap->unlooked_pages -= (uint32_t)pages;
    } else {
        const size_t resident = min_size(bytes_by(resident_bytes, heap), held);
        heap->growth_spared = resident >= least;
        heap->unlooked_pages = (uint32_t)(ace_medium_looked_bytes(held, resident, heap_settings.objective) / PAGE_BYTES);
    }
    return heap->growth_spared;
}

void kept_spare_growth(size_t pages) {
    struct heap *heap = thread_heap();
    if (heap == NULL) return; /* a thread without a heap keeps nothing */
    const size_t held = held_bytes(heap), least = ace_medium_spared_bytes(heap_settings.objective);
    if (held == 0) return;
    if (held < least && !heap->growth_spared) heap->unlooked_pages = 0; /* the untouched blocks of the last look are gone */
    const bool must = least == 0 || HAK_UNLIKELY(!span_is_allowed(pages));
    if (must || (held >= least && is_spared(heap, held, least, pages))) give_all(heap);
}

void kept_look(struct heap *heap) {
    const size_t held = held_bytes(heap);
    if (heap_settings.fixed || registry_is_alone() || held == 0) return;
    if (held < counter_read(&heap->medium_depth.bytes) / 4) return; /* too little to conclude anything from */
    heap->medium_touched = (uint16_t)ace_medium_touched(heap->medium_touched, held, bytes_by(touched_bytes, heap));
    const uint32_t before = heap->medium_times, times = ace_medium_times(heap->medium_touched, before);
    heap->medium_times = (uint8_t)times;
    if (times != before) decided_kept(heap, before, held, held * heap->medium_touched / ACE_TOUCHED_ALL);
}
