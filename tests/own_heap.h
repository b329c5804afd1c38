/* own_heap.h - heaps of the test's own, on which it works by hand and mostly without their locks: whoever includes
 * this has no_purger.h, too. */
#ifndef HAK_TESTS_OWN_HEAP_H
#define HAK_TESTS_OWN_HEAP_H

#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "heap/buffer.h"
#include "heap/heap.h"
#include "heap/stack.h"
#include "no_purger.h"
#include "region/books.h"

/* Nobody's: the registry does not know it. */
CHECK_UNUSED static struct heap *make_heap(enum heap_state state) {
    size_t slots = stack_first_slots();
    char *memory = books_take(sizeof(struct heap) + (slots + REMOTE_BLOCKS) * sizeof(void *) + 256);
    CHECK(memory != NULL);
    struct heap *heap = (struct heap *)(((uintptr_t)memory + 255) & ~(uintptr_t)255);
    heap->home = heap;
    buffer_begin(heap, heap->first_stacks + slots);
    stack_reset_all(heap);
    atomic_store(&heap->state, state);
    return heap;
}

/* A new slab of the heap's. DENSE: with huge pages, if there are any. */
CHECK_UNUSED static uint32_t add_slab_of(struct heap *heap, unsigned class, bool dense) {
    uint32_t first = slab_create(class, dense ? ACE_DENSE : ACE_SPARSE);
    CHECK(first != 0);
    slab_set_owner(first, heap, heap_word(heap, class));
    bin_place(heap, first);
    return first;
}

CHECK_UNUSED static uint32_t add_slab(struct heap *heap, unsigned class) { return add_slab_of(heap, class, false); }

CHECK_UNUSED static uint32_t drain(struct heap *heap) {
    os_lock_take(&heap->lock);
    uint32_t blocks = remote_drain(heap);
    os_lock_drop(&heap->lock);
    return blocks;
}

#endif
