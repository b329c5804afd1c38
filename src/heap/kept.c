/* kept.c - whether what a thread keeps of medium blocks costs memory: it does where the program touched them. That goes back before the
 * process grows; of what costs none a thread may keep more. */
#include "ace/budget.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/thread.h"

static size_t held_bytes(const struct heap *heap) {
    size_t bytes = 0;
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) bytes += (size_t)stack_seen(heap, class) * slab_classes[class].block_bytes;
    return bytes;
}

/* Of HELD bytes, by a look at the oldest block of each class, how many the program touched. */
static size_t resident_bytes(const struct heap *heap, size_t held) {
    size_t seen = 0, resident = 0;
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) {
        if (stack_seen(heap, class) <= 0) continue;
        /* relaxed: whoever takes it meanwhile does not unmap it. */
        void *block = front_block(atomic_load_explicit(&heap->front.lo[class], memory_order_relaxed));
        seen += slab_classes[class].block_bytes;
        resident += os_resident_bytes(page_address(page_index(block)), slab_classes[class].block_bytes);
    }
    return seen == 0 ? 0 : (size_t)((uint64_t)held * resident / seen);
}

static void give_all(struct heap *heap) {
    os_lock_take(&heap->lock);
    if (HAK_UNLIKELY(heap->raised)) stack_lower(heap);
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) stack_empty(heap, class);
    footprint_tell(&heap->in_use_change); /* or what the caller takes would come on top of it, and be a peak that never was */
    os_lock_drop(&heap->lock);
}

/* Whether the program touched LEAST bytes of what is held, as far as the last look goes. */
static bool is_spared(struct heap *heap, size_t held, size_t least, size_t pages) {
    if (pages <= heap->unlooked_pages) {
        heap->unlooked_pages -= (uint32_t)pages;
    } else {
        heap->growth_spared = resident_bytes(heap, held) >= least;
        heap->unlooked_pages = (uint32_t)(ace_medium_looked_bytes(heap_settings.objective) / PAGE_BYTES);
    }
    return heap->growth_spared;
}

void kept_spare_growth(size_t pages) {
    struct heap *heap = thread_heap();
    if (heap == NULL) return; /* whoever keeps blocks has one */
    const size_t held = held_bytes(heap), least = ace_medium_spared_bytes(heap_settings.objective);
    if (held == 0 || held < least) return;
    if (least == 0 || is_spared(heap, held, least, pages)) give_all(heap);
}

void kept_look(struct heap *heap) {
    const size_t held = held_bytes(heap);
    if (held == 0) return;
    const size_t resident = resident_bytes(heap, held);
    const bool before = heap->medium_touched, now = ace_medium_is_touched(held, resident, before);
    heap->medium_touched = now;
    if (now != before) decided_kept(heap, held, resident);
}
