/* heaps.h - the books of all heaps summed up. */
#ifndef HAK_TESTS_HEAPS_H
#define HAK_TESTS_HEAPS_H

#include "blocks.h" /* first: it says _GNU_SOURCE */
#include "threads.h"

#include "heap/buffer.h"
#include "heap/registry.h"

struct sum {
    size_t heaps, live, slabs, slabs_of_commons, waiting;
};

CHECK_UNUSED static void add_heap(struct heap *heap, void *context) {
    struct sum *sum = context;
    if (sum->heaps++ == 0) CHECK(heap == &commons);
    sum->live += atomic_load(&heap->state) == HEAP_LIVE;
    sum->waiting += buffer_held(heap);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        sum->slabs += heap->bins[class].slab_count;
        if (heap == &commons) sum->slabs_of_commons += heap->bins[class].slab_count;
    }
}

CHECK_UNUSED static struct sum sum_of_heaps(void) {
    struct sum sum = {0};
    add_heap(&commons, &sum);
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) add_heap(heap, &sum);
    return sum;
}

#endif
