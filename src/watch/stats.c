/* stats.c - reading the metadata while other threads write it. */
#include "watch/stats.h"

#include "base/bits.h"
#include "heap/buffer.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "region/outside.h"

static bool is_live(const struct heap *heap) {
    return atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_LIVE; /* a statistic */
}

/* The smallest request of malloc that a class serves is one byte more than the class before holds; for the first aligned class, one byte
 * more than half its block. */
static uint64_t most_slack(unsigned class) {
    const uint64_t bytes = slab_classes[class].block_bytes;
    if (class == 0) return bytes;
    return bytes - (class == ALIGNED_CLASS ? bytes / 2 : slab_classes[class - 1].block_bytes) - 1;
}

void stats_read_class(unsigned class, struct stats_class *sum) {
    const struct slab_class *shape = &slab_classes[class];
    *sum = (struct stats_class){.block_bytes = shape->block_bytes};
    for (const struct heap *heap = &commons; heap != NULL; heap = registry_next(heap)) {
        const struct bin *bin = &heap->bins[class];
        sum->slabs += counter_read(&bin->slab_count);
        sum->taken_blocks += counter_read(&bin->taken_blocks);
        sum->cached_blocks += stack_seen_held(heap, class); /* of a parked heap, too */
        sum->refills += counter_read(&bin->refills);
        sum->refilled_blocks += counter_read(&bin->refilled_blocks);
        sum->spills += counter_read(&bin->spills);
        sum->spilled_blocks += counter_read(&bin->spilled_blocks);
        sum->remote_blocks += counter_read(&bin->remote_blocks);
        sum->adopted_slabs += counter_read(&bin->adopted_slabs);
    }
    /* Heaps change while they are summed up: a slab that gets another owner meanwhile counts twice, or not at all. */
    sum->taken_blocks = min_size(sum->taken_blocks, sum->slabs * shape->blocks);
    sum->cached_blocks = min_size(sum->cached_blocks, sum->taken_blocks);
    sum->live_blocks = sum->taken_blocks - sum->cached_blocks;
    sum->slab_bytes = sum->slabs * shape->pages * PAGE_BYTES;
    sum->slack_bytes = sum->live_blocks * most_slack(class);
}

bool stats_next_heap(const void **at, struct stats_heap *sum) {
    const struct heap *heap = *at == NULL ? registry_first() : ((const struct heap *)*at)->next;
    if (heap == NULL) return false;
    bool live = is_live(heap);
    /* relaxed, all: statistics. */
    *sum = (struct stats_heap){
        .thread_id = counter_read(&heap->thread_id),
        .live = live,
        .slabs = atomic_load_explicit(&heap->slab_total, memory_order_relaxed),
        .cached_bytes = stack_seen_bytes(heap),
        .depth_bytes = live ? counter_read(&heap->small_depth.bytes) + counter_read(&heap->medium_depth.bytes) : 0,
        .remote_blocks = buffer_held(heap),
        .remote_bytes = buffer_held_bytes(heap),
    };
    *at = heap;
    return true;
}

void stats_read_heaps(struct stats_heaps *sum) {
    const void *at = NULL;
    *sum = (struct stats_heaps){0};
    for (struct stats_heap heap; stats_next_heap(&at, &heap);) {
        sum->heaps++;
        sum->live_heaps += heap.live;
        sum->cached_bytes += heap.cached_bytes;
        sum->cached_bytes_most = max_size(sum->cached_bytes_most, heap.cached_bytes);
        sum->depth_bytes += heap.depth_bytes;
        sum->remote_blocks += heap.remote_blocks;
        sum->remote_bytes += heap.remote_bytes;
    }
}

void stats_read_totals(struct stats_totals *totals) {
    struct span_counts counts;
    uint64_t slabs = 0, slab_bytes = 0;
    *totals = (struct stats_totals){0};
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct stats_class sum;
        stats_read_class(class, &sum);
        uint64_t free_blocks = sum.slabs * slab_classes[class].blocks - sum.taken_blocks;
        slabs += sum.slabs;
        slab_bytes += sum.slab_bytes;
        *(class_is_medium(class) ? &totals->large_bytes : &totals->live_small_bytes) += sum.live_blocks * sum.block_bytes;
        if (class_is_medium(class)) totals->large_blocks += sum.live_blocks;
        totals->cached_bytes += sum.cached_blocks * sum.block_bytes;
        totals->free_small_blocks += free_blocks;
        totals->free_small_bytes += free_blocks * sum.block_bytes;
    }
    span_counts_read(&counts);
    /* Other threads go on meanwhile, so a negative difference becomes 0. */
    uint64_t spans = counts.taken - min_size(counts.taken, counts.given), used_bytes = counts.used_pages * PAGE_BYTES;
    const uint64_t outside_bytes = counter_read(&outside_totals.bytes);
    totals->held_bytes = used_bytes + counts.dirty_pages * PAGE_BYTES + outside_bytes;
    totals->dirty_bytes = counts.dirty_pages * PAGE_BYTES;
    totals->large_blocks += spans - min_size(spans, slabs);
    totals->large_blocks += counter_read(&outside_totals.blocks);
    totals->large_bytes += used_bytes - min_size(used_bytes, slab_bytes) + outside_bytes;
    size_t in_use = totals->live_small_bytes + totals->cached_bytes + totals->large_bytes;
    totals->in_use_bytes = min_size(in_use, totals->held_bytes);
}

void stats_reset_peaks(void) {
    if (!slow_enter()) return;
    span_reset_peak();
    slow_leave();
}
