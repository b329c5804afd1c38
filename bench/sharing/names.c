/* names.c - what lies at an address of hakmem's. Not compiled for the simulator, so its own accesses are not seen. */
#include "heap/heap.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "region/books.h"
#include "region/window.h"

#include <stdlib.h>

enum { HEAPS_MAX = 4096 };

/* Sorted by address. */
static struct heap *heaps[HEAPS_MAX];
static unsigned heap_count;
static struct heap *newest;

static int compare(const void *a, const void *b) {
    uintptr_t left = (uintptr_t) * (struct heap *const *)a, right = (uintptr_t) * (struct heap *const *)b;
    return (left > right) - (left < right);
}

/* The list grows at its head only. */
static void look_at_heaps(void) {
    if (registry_first() == newest) return;
    newest = registry_first();
    heap_count = 0;
    for (struct heap *heap = newest; heap != NULL && heap_count < HEAPS_MAX; heap = heap->next)
        heaps[heap_count++] = heap;
    qsort(heaps, heap_count, sizeof heaps[0], compare);
}

static const struct part {
    size_t end;
    const char *of_heap, *of_commons;
} parts[] = {
    {offsetof(struct heap, front.buffer_top), "heap: tops and bounds", "commons: tops and bounds"},
    {offsetof(struct heap, lock), "heap: buffer's top", "commons: buffer's top"},
    {offsetof(struct heap, slab_total), "heap: lock", "commons: lock"},
    {offsetof(struct heap, bins), "heap: counters", "commons: counters"},
    {offsetof(struct heap, inbox), "heap: bins", "commons: bins"},
    {offsetof(struct heap, state), "heap: inbox", "commons: inbox"},
    {offsetof(struct heap, buffer), "heap: state", "commons: state"},
    {offsetof(struct heap, first_stacks), "heap: buffer's bottom", "commons: buffer's bottom"},
    {SIZE_MAX, "heap: stacks and buffer", "commons: end"},
};

static const char *part_of(size_t offset, bool of_commons) {
    const struct part *part = parts;
    while (offset >= part->end) part++;
    return of_commons ? part->of_commons : part->of_heap;
}

static bool holds(const volatile void *start, size_t bytes, uintptr_t address) {
    return start != NULL && address - (uintptr_t)start < bytes;
}

static const char *name_in_heaps(uintptr_t address) {
    size_t slots = stack_first_slots() + REMOTE_BLOCKS;
    size_t low = 0, high = heap_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)heaps[middle] <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return NULL;
    size_t offset = address - (uintptr_t)heaps[low - 1];
    return offset < sizeof(struct heap) + slots * sizeof(void *) ? part_of(offset, false) : NULL;
}

HAK_EXPORT const char *sharing_name(uintptr_t address) {
    if (holds((void *)window.base, window.pages << PAGE_SHIFT, address)) return "blocks";
    if (holds(window.words, window.pages * sizeof *window.words, address)) return "page words";
    if (holds(window.spans, window.pages * SPAN_RECORD_BYTES, address)) return "span and slab records";
    if (holds(window.remotes, window.pages * REMOTE_RECORD_BYTES, address)) return "remote records";
    if (holds(window.chunks, window.pages / CHUNK_PAGES * sizeof *window.chunks, address)) return "chunks";
    if (holds(&commons, sizeof commons, address)) return part_of(address - (uintptr_t)&commons, true);
    look_at_heaps();
    const char *name = name_in_heaps(address);
    if (name != NULL) return name;
    for (const struct books_mapping *mapping = atomic_load(&books_mappings); mapping != NULL; mapping = mapping->next)
        if (holds(mapping, mapping->bytes, address)) return "books: bitmaps and deep stacks";
    return NULL;
}
