/* home.h - the slabs that a heap uses: its own, or those of a heap that several share. HEAP's lock is held, unless said otherwise; under
 * it the other's is taken. Internal to the heap floor. */
#ifndef HAK_HEAP_HOME_H
#define HAK_HEAP_HOME_H

#include "heap/heap.h"

/* The heap whose slabs HEAP uses, locked. */
HAK_INLINE struct heap *home_take(struct heap *heap) {
    struct heap *home = heap->home;
    if (HAK_UNLIKELY(home != heap)) os_lock_take(&home->lock);
    return home;
}

/* And unlocked: what HEAP took of it is counted with HEAP. */
HAK_INLINE void home_drop(struct heap *heap) {
    struct heap *home = heap->home;
    if (HAK_LIKELY(home == heap)) return;
    heap->in_use_change += home->in_use_change;
    home->in_use_change = 0;
    os_lock_drop(&home->lock);
}

/* Whose slabs HEAP, with which a thread is about to begin, is to use: by how many threads there are. May make system calls; no lock
 * held. */
struct heap *home_choose(struct heap *heap);

/* It uses those of HOME from now on. If these are others than before, all that it holds goes where others find it. */
void home_enter(struct heap *heap, struct heap *home);

/* Its thread has ended. What its stacks hold stays, and so do slabs that nobody shares any more: the shared heap is parked. Call remote_settle afterwards. */
void home_leave(struct heap *heap);

/* The slab at FIRST, of CLASS, which nobody owns, is one of those that HEAP uses. */
HAK_INLINE void home_place(struct heap *heap, uint32_t first, unsigned class) {
    struct heap *home = home_take(heap);
    slab_set_owner(first, home, heap_word(home, class));
    bin_place(home, first);
    home_drop(heap);
}

/* Puts blocks of the slabs that HEAP uses back. */
HAK_INLINE void home_put(struct heap *heap, void *const *blocks, size_t count) {
    if (count == 0) return;
    bin_put(home_take(heap), blocks, count);
    home_drop(heap);
}

#endif
