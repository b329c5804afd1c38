/* reclaim.c - taking blocks from the stacks of threads that sleep.
 *
 * Blocks are taken from the bottom. The thread that wants them raises lo to the top, makes every running thread pass
 * a barrier, and then reads the top again. From the barrier on the owner finds its stack empty and takes the slow
 * path, which waits for the lock and lowers lo. Only an operation that had read the old bound before may still be
 * about to take one block, the uppermost. So all blocks below that one can be taken. Of medium blocks that one can be
 * taken, too: they are taken only if the owner does not say that it is popping one. */
#include "base/bits.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/registry.h"
#include "heap/stack.h"

void stack_raise(struct heap *heap) {
    os_lock_take(&heap->lock);
    heap->raised = true;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) /* relaxed: a barrier follows */
        atomic_store_explicit(&heap->front.lo[class], stack_top(heap, class), memory_order_relaxed);
    os_lock_drop(&heap->lock);
}

void stack_lower(struct heap *heap) {
    heap->raised = false;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) /* relaxed: as in stack_set */
        atomic_store_explicit(&heap->front.lo[class], heap->bins[class].bottom, memory_order_relaxed);
}

/* Puts the blocks from the bottom to END back. They are copied in pieces with atomic reads, since bin_put reads
 * plainly. */
static void take_below(struct heap *heap, unsigned class, void **end) {
    enum { PIECE = 128 };
    void *blocks[PIECE];
    struct bin *bin = &heap->bins[class];
    while (bin->bottom < end) {
        size_t count = min_size((size_t)(end - bin->bottom), PIECE);
        for (size_t i = 0; i < count; i++) blocks[i] = front_block(bin->bottom + i);
        bin->bottom += count;
        home_put(heap, blocks, count);
    }
}

void stack_take(struct heap *heap, bool barrier_passed) {
    os_lock_take(&heap->lock);
    /* acquire: pairs with medium_pop. */
    const bool popping = atomic_load_explicit(&heap->front.popping, memory_order_acquire);
    for (unsigned class = 0; heap->raised && barrier_passed && class < SIZE_CLASSES; class++) {
        /* relaxed: the lock is held. acquire: pairs with front_push. */
        void **raised_to = atomic_load_explicit(&heap->front.lo[class], memory_order_relaxed);
        void **top = atomic_load_explicit(&heap->front.top[class], memory_order_acquire);
        if (class_is_medium(class) && popping) continue; /* the next time; a handler may have pushed above the one that is popped */
        void **end = class_is_medium(class) ? top : top - 1;
        if (top > heap->bins[class].bottom) take_below(heap, class, end < raised_to ? end : raised_to);
    }
    if (heap->raised) stack_lower(heap);
    footprint_tell(&heap->in_use_change); /* a sleeping owner would not */
    os_lock_drop(&heap->lock);
}

/* Whether its stacks hold blocks that can be taken: a hint. */
static bool holds_blocks(const struct heap *heap) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        if (stack_seen_held(heap, class) > !class_is_medium(class)) return true;
    return false;
}

uint64_t stack_seen_bytes(const struct heap *heap) {
    uint64_t bytes = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) bytes += stack_seen_held(heap, class) * slab_classes[class].block_bytes;
    return bytes;
}

uint64_t stack_hidden_bytes(void) {
    uint64_t bytes = 0;
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) bytes += stack_seen_bytes(heap);
    return bytes;
}

static struct os_lock reclaiming;

void stack_reclaim_lock(void) { os_lock_take(&reclaiming); }
void stack_reclaim_unlock(void) { os_lock_drop(&reclaiming); }
void stack_reclaim_lock_reset(void) { os_lock_reset(&reclaiming); }

bool stack_reclaim(bool (*of)(const struct heap *heap)) {
    bool some = false;
    struct heap *const first = registry_first();
    for (struct heap *heap = first; heap != NULL; heap = heap->next) {
        heap->robbed = of(heap) && holds_blocks(heap);
        if (!heap->robbed) continue;
        stack_raise(heap);
        some = true;
    }
    const bool taken = some && os_barrier_others();
    for (struct heap *heap = first; heap != NULL; heap = heap->next)
        if (heap->robbed) stack_take(heap, taken);
    return taken;
}
