/* own_stacks.h - the stacks of a heap of the test's own: what always holds of them, and how they come to hold blocks and to get deeper. */
#ifndef HAK_TESTS_OWN_STACKS_H
#define HAK_TESTS_OWN_STACKS_H

#include "own_heap.h" /* first: it says _GNU_SOURCE */

#include "heap/footprint.h"

CHECK_UNUSED static size_t bytes_of(unsigned class) { return slab_classes[class].block_bytes; }

CHECK_UNUSED static void **limit_of(const struct heap *heap, unsigned class) {
    return atomic_load_explicit(&heap->front.hi[class], memory_order_relaxed);
}

CHECK_UNUSED static void check_stack(const struct heap *heap, unsigned class) {
    const struct bin *bin = &heap->bins[class];
    void **lo = bin->bottom, **top = stack_top(heap, class), **hi = limit_of(heap, class);
    CHECK_AT(bin->stack <= lo && lo <= top && top <= hi, class);
    CHECK_AT(hi == bin->stack + bin->depth && bin->depth <= bin->capacity, class);
    CHECK_AT((bin->depth >= 1 || class_is_medium(class)) && bin->depth <= bin->most, class);
    CHECK_EQ(stack_has_room(heap, class), top < hi);
    /* The first, or all that the pool gave. */
    CHECK_AT(bin->capacity == heap_settings.first_depths[class] || (bin->capacity & (bin->capacity - 1)) == 0, class);
}

/* Puts COUNT blocks into the stack, the oldest at the bottom. */
CHECK_UNUSED static void push(struct heap *heap, unsigned class, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *block;
        CHECK(stack_has_room(heap, class));
        bool zero;
        while (bin_fill(heap, class, &block + 1, 1, &zero) == 0) add_slab(heap, class);
        stack_push(heap, class, block);
    }
}

CHECK_UNUSED static size_t blocks_out(const struct heap *heap, unsigned class) {
    size_t out = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        for (uint32_t at = heap->bins[class].slabs[bucket]; at != 0; at = slab_at(at)->span.next)
            out += slab_classes[class].blocks - slab_at(at)->free;
    CHECK_EQ(out, heap->bins[class].taken_blocks);
    return out;
}

/* So many refills and spills deepen any stack that may get deeper. */
enum { SWING = 4 };

/* Of all misses together: the last of them is noted as what runs empty or full would. */
CHECK_UNUSED static void adapt(struct heap *heap, unsigned class, uint32_t refills, uint32_t spills) {
    heap->bins[class].recent_refills += refills - 1; /* one is noted below */
    heap->bins[class].recent_spills += spills;
    heap->bins[class].recent_refilled_blocks += refills;
    heap->bins[class].recent_spilled_blocks += spills;
    stack_note_refill(heap, class);
    check_stack(heap, class);
}

/* As if a program used so much that medium blocks may be kept without a bound of the test's. */
CHECK_UNUSED static void use_much(void) { footprint_add((int64_t)GIB(4)); }
CHECK_UNUSED static void use_little(void) { footprint_add(-(int64_t)GIB(4)); }

#endif
