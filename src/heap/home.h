/* home.h - the slabs that a heap uses: its own, or those of a heap that several share. HEAP's lock is held, unless
 * said otherwise; under it that of the shared heap is taken. Internal to the heap layer. */
#ifndef HAK_HEAP_HOME_H
#define HAK_HEAP_HOME_H

#include "heap/heap.h"

/* The heap whose slabs HEAP uses, locked. */
HAK_INLINE struct heap *home_take(struct heap *heap) {
    struct heap *home = heap->home;
    if (HAK_UNLIKELY(home != heap)) os_lock_take(&home->lock);
    return home;
}

/* Unlocks it; what HEAP took from it counts with HEAP's bytes in use. */
HAK_INLINE void home_drop(struct heap *heap) {
    struct heap *home = heap->home;
    if (HAK_LIKELY(home == heap)) return;
    heap->in_use_change += home->in_use_change;
    home->in_use_change = 0;
    os_lock_drop(&home->lock);
}

/* The heap whose slabs HEAP, with which a thread is about to begin, is to use: this depends on how many threads there
 * are. May make system calls; no lock held. */
struct heap *home_choose(struct heap *heap);

/* HEAP uses the slabs of HOME from now on. If that is a change, all that HEAP holds is handed over first. */
void home_enter(struct heap *heap, struct heap *home);

/* HEAP's thread has ended. Its stacks keep what they hold. A shared heap that no thread shares any more is parked and
 * keeps its slabs. Call remote_settle afterwards. */
void home_leave(struct heap *heap);

/* Adds the slab at FIRST, of CLASS, which has no owner, to those that HEAP uses. */
HAK_INLINE void home_place(struct heap *heap, uint32_t first, unsigned class) {
    struct heap *home = home_take(heap);
    slab_set_owner(first, home, heap_word(home, class));
    bin_place(home, first);
    home_drop(heap);
}

/* Puts blocks back into the slabs that HEAP uses. */
HAK_INLINE void home_put(struct heap *heap, void *const *blocks, size_t count) {
    if (count == 0) return;
    bin_put(home_take(heap), blocks, count);
    home_drop(heap);
}

#endif
