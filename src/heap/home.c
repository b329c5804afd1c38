/* home.c - when there are many threads, several of them use the slabs of one heap; each has stacks of its own.
 *
 * Slabs of its own cost a thread 64 KiB and more for each size that it uses. With many more threads than processors,
 * most threads wait, and the free blocks in their slabs serve no one. So threads that begin then share some heaps,
 * assigned in turn. There are more such heaps than processors: otherwise two running threads would mostly use the
 * same slabs, whose metadata would bounce between their caches.
 *
 * A shared heap has no thread and no stacks. The threads that share it drain its inbox, as owners do. After the last
 * has left it is parked, like a heap whose thread ended: it keeps its slabs for the next thread that shares it, and
 * for threads that lack some. */
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "os/assert.h"

enum { THREADS_PER_PROCESSOR = 2, SHARED_PER_PROCESSOR = 2 };

/* A heap that shared before goes on until threads are few: otherwise a process with about this many would change
 * again and again. */
static bool is_to_share(const struct heap *heap) {
    const uint64_t processors = heap_settings.processors, live = registry_live();
    return live > (heap->home == heap ? THREADS_PER_PROCESSOR * processors : processors);
}

struct heap *home_choose(struct heap *heap) {
    if (HAK_LIKELY(!is_to_share(heap))) return heap;
    if (heap->home != heap) return heap->home;
    if (atomic_load_explicit(&heap->slab_total, memory_order_relaxed) > HAND_OVER_SLABS) return heap; /* to hand over more would take long */
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
    heap_set_parked(home, false);
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
        heap_set_parked(home, true);
        remote_drain(home);
    }
    home_drop(heap);
}
