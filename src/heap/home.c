/* home.c - where threads are many, several of them use the slabs of one heap; each has stacks of its own.
 *
 * Slabs of its own are 64 KiB and more for each size that a thread uses. With many more threads than processors most threads wait, and what is
 * free in their slabs serves nobody. So threads that begin then share some heaps: each is given the next. These are more than the processors,
 * or two threads that run would mostly use the same slabs, whose books would go to and fro between their caches.
 *
 * A shared heap has no thread and no stacks. Those who share it take in what others gave back, as owners do; after the last has left it
 * is parked, as a heap whose thread ended: it keeps its slabs for the next who comes, and for those who lack some. */
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "os/assert.h"

enum { THREADS_PER_PROCESSOR = 2, SHARED_PER_PROCESSOR = 2 };

/* Whoever shares goes on until threads are few: or those of a process with just so many would change again and again. */
static bool is_to_share(const struct heap *heap) {
    const uint64_t processors = heap_settings.processors, live = registry_live();
    return live > (heap->home == heap ? THREADS_PER_PROCESSOR * processors : processors);
}

struct heap *home_choose(struct heap *heap) {
    if (HAK_LIKELY(!is_to_share(heap))) return heap;
    if (heap->home != heap) return heap->home;
    struct heap *shared = registry_shared(SHARED_PER_PROCESSOR * heap_settings.processors);
    return shared != NULL ? shared : heap;
}

void home_enter(struct heap *heap, struct heap *home) {
    if (home != heap->home) {
        HAK_ASSERT(!heap->shares);
        thread_hand_over(heap);
        heap->home = home;
    }
    if (home == heap || heap->shares) return;
    heap->shares = true;
    os_lock_take(&home->lock);
    home->parked = false;
    /* seq_cst: see remote.c. */
    if (home->sharers++ == 0) atomic_store_explicit(&home->state, HEAP_SHARED, memory_order_seq_cst);
    os_lock_drop(&home->lock);
}

void home_leave(struct heap *heap) {
    if (!heap->shares) return;
    heap->shares = false;
    struct heap *home = home_take(heap);
    if (--home->sharers == 0) {
        atomic_store_explicit(&home->state, HEAP_DEAD, memory_order_seq_cst); /* before the last drain: see remote.c */
        home->parked = true;
        remote_drain(home);
    }
    home_drop(heap);
}
