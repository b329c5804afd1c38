/* salvage.c - slabs that other heaps have and do not need now: looked for before one is made. */
#include "heap/heap.h"
#include "heap/registry.h"
#include "heap/thread.h"

/* Of those whose threads ended last. */
static bool take_from_idle(unsigned class) {
    enum { LOOKED_AT = 4 };
    struct heap *idle[LOOKED_AT];
    const unsigned count = registry_idle(idle, LOOKED_AT);
    bool found = false;
    for (unsigned i = 0; i < count && !found; i++) {
        struct heap *heap = idle[i];
        os_lock_take(&heap->lock);
        if (heap->parked) { /* or a thread has begun with it */
            stack_empty(heap, class);
            found = bin_hand_over_fullest(heap, class, BUCKET_QUARTER);
        }
        os_lock_drop(&heap->lock);
    }
    return found;
}

/* With more threads than these for each processor most of them wait, and what is free in their slabs serves nobody. */
static bool is_oversubscribed(void) {
    enum { THREADS_PER_PROCESSOR = 2 };
    return registry_live() > (uint64_t)THREADS_PER_PROCESSOR * heap_settings.processors;
}

/* Whether one of its slabs may be more than half free: a hint, without the lock. */
static bool may_have_room(const struct heap *heap, unsigned class) {
    const uint64_t blocks = slab_classes[class].blocks;
    const uint64_t taken = counter_read(&heap->bins[class].taken_blocks), slabs = counter_read(&heap->bins[class].slab_count);
    return taken + blocks / 2 < slabs * blocks;
}

/* A slab that is more than half free, of whoever has one. What its owner has there in use stays; he frees it as another's. */
static bool take_from_any(unsigned class) {
    enum { LOOKED_AT = 32 };
    static _Atomic(struct heap *) hand; /* the last that was looked at */
    const struct heap *own = thread_heap();
    /* acquire: what is written once of a heap, as next, is seen of one that another saw. Any will do. */
    struct heap *heap = atomic_load_explicit(&hand, memory_order_acquire);
    bool found = false;
    for (unsigned i = 0; i < LOOKED_AT && !found; i++) {
        heap = heap == NULL || heap->next == NULL ? registry_first() : heap->next;
        if (heap == NULL) break;
        if (heap == own || !may_have_room(heap, class)) continue;
        if (!os_lock_try(&heap->lock)) continue; /* who has it may wait for a processor */
        found = bin_hand_over_fullest(heap, class, BUCKET_MORE);
        os_lock_drop(&heap->lock);
    }
    atomic_store_explicit(&hand, heap, memory_order_release);
    return found;
}

bool salvage_slab(unsigned class) {
    enum { WORTH_BLOCKS = 64 }; /* what a slab of fewer has free is soon used up, and then it is taken back */
    const bool worth = slab_classes[class].blocks >= WORTH_BLOCKS;
    const bool found = take_from_idle(class) || (worth && is_oversubscribed() && take_from_any(class));
    remote_settle();
    return found;
}
