/* salvage.c - what other heaps hold and do not need now: looked for before a slab is made. */
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "heap/thread.h"

/* Of HEAP, which is parked and locked: what its stack holds goes to the slabs that it uses. The fullest of these goes to the commons; as long
 * as threads share them they serve those. */
static bool take_from_parked(struct heap *heap, unsigned class, const struct heap *for_home) {
    const bool held = stack_held(heap, class) != 0;
    stack_empty(heap, class);
    struct heap *home = home_take(heap);
    const bool found = home->sharers == 0 ? bin_hand_over_fullest(home, class, BUCKET_QUARTER) : held && home == for_home;
    home_drop(heap);
    return found;
}

/* Of those whose threads ended last. */
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

/* Of HEAP, which has slabs of its own and is locked: one that is more than half free, by what came back too. What the owner has there in
 * use stays; he frees it as another's. */
static bool take_half_free(struct heap *heap, unsigned class) {
    if (remote_has_some(heap)) remote_drain_some(heap, DRAIN_SLABS);
    return bin_hand_over_fullest(heap, class, BUCKET_MORE);
}

/* Where threads are many, of whoever has some of his own: most of them wait. A thread that filled memory for others to work in does not
 * look at what they give back. */
static bool take_from_owners(unsigned class) {
    enum { LOOKED_AT = 32 };
    static _Atomic(struct heap *) hand; /* the last that was looked at */
    /* acquire: what is written once of a heap, as next, is seen of one that another saw. Any will do. */
    struct heap *heap = atomic_load_explicit(&hand, memory_order_acquire);
    bool found = false;
    for (unsigned i = 0; i < LOOKED_AT && !found; i++) {
        heap = heap == NULL || heap->next == NULL ? registry_first() : heap->next;
        if (heap == NULL) break;
        const bool live = atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_LIVE; /* a hint, like the next */
        if (!live || atomic_load_explicit(&heap->slab_total, memory_order_relaxed) == 0) continue;
        if (!os_lock_try(&heap->lock)) continue; /* who has it may wait for a processor */
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
