/* salvage.c - finds what other heaps hold and do not need now, before a slab is made. */
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "heap/thread.h"

/* For HEAP, parked and locked: returns what its stack holds to the slabs that it uses. The fullest of these goes to
 * the commons, unless threads share them: then they serve those threads. */
static bool take_from_parked(struct heap *heap, unsigned class, const struct heap *for_home) {
    const bool held = stack_held(heap, class) != 0;
    stack_empty(heap, class);
    struct heap *home = home_take(heap);
    const bool found = home->sharers == 0 ? bin_hand_over_fullest(home, class, BUCKET_QUARTER) : held && home == for_home;
    home_drop(heap);
    return found;
}

/* From the heaps whose threads ended last. */
static bool take_from_idle(unsigned class, const struct heap *for_home) {
    enum { LOOKED_AT = 4 };
    struct heap *idle[LOOKED_AT];
    const unsigned count = registry_idle(idle, LOOKED_AT);
    bool found = false;
    for (unsigned i = 0; i < count && !found; i++) {
        struct heap *heap = idle[i];
        if (!os_lock_try(&heap->lock)) continue; /* a thread has begun with it, or others look for the same */
        if (heap->parked) found = take_from_parked(heap, class, for_home);
        os_lock_drop(&heap->lock);
    }
    return found;
}

/* From HEAP, locked and with slabs of its own: a slab that is more than half free, with what was returned to it. What
 * the owner has in use there stays in use; it frees that as another heap's. */
static bool take_half_free(struct heap *heap, unsigned class) {
    if (remote_has_some(heap)) remote_drain_some(heap, DRAIN_SLABS);
    return bin_hand_over_fullest(heap, class, BUCKET_MORE);
}

/* When there are many threads: from heaps with slabs of their own, most of whose threads wait. A thread that filled
 * memory for others to work in does not look at what they return. */
static bool take_from_owners(unsigned class) {
    enum { LOOKED_AT = 32 };
    static _Atomic(struct heap *) hand; /* the last that was looked at */
    /* acquire: what is written once to a heap, such as next, is seen even if another thread found the heap. Any heap
     * will do. */
    struct heap *heap = atomic_load_explicit(&hand, memory_order_acquire);
    bool found = false;
    for (unsigned i = 0; i < LOOKED_AT && !found; i++) {
        heap = heap == NULL || heap->next == NULL ? registry_first() : heap->next;
        const bool live = atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_LIVE; /* a hint, like the next */
        if (!live || atomic_load_explicit(&heap->slab_total, memory_order_relaxed) == 0) continue;
        if (!os_lock_try(&heap->lock)) continue; /* its holder may be waiting for a processor */
        found = take_half_free(heap, class);
        os_lock_drop(&heap->lock);
    }
    atomic_store_explicit(&hand, heap, memory_order_release);
    return found;
}

bool salvage_slab(unsigned class) {
    const struct heap *own = thread_heap(), *home = own != NULL ? own->home : &commons;
    const bool found = take_from_idle(class, home) || (own != NULL && home != own && take_from_owners(class));
    remote_settle();
    return found;
}
