/* thread.c - heaps come and go with threads: start, exit, fork. */
#include "heap/thread.h"

#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/footprint.h"
#include "heap/home.h"
#include "heap/pressure.h"
#include "heap/purger.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "region/books.h"
#include "slab/bitmaps.h"

#include <errno.h>
#include <pthread.h>

/* Neither of the fronts without a heap is ever written to: they have no bounds. */
#define FRONT(constant) ((struct front *)(uintptr_t)(constant))

_Thread_local struct thread_state thread_state = {.front = FRONT(&front_constants.none)};

static void set_front(const struct front *front) {
    thread_state.front = FRONT(front);
    thread_state.front_distance = (uintptr_t)front - (uintptr_t)&front_constants.none;
}

/* The word is set before the front and cleared after it: a signal handler meanwhile takes blocks for its own only
 * with a front without bounds. */
static void set_heap(const struct heap *heap) {
    thread_state.own_word = heap_word(heap->home, 0);
    atomic_signal_fence(memory_order_seq_cst);
    set_front(&heap->front);
}

static void set_gone(void) {
    set_front(&front_constants.gone);
    atomic_signal_fence(memory_order_seq_cst);
    thread_state.own_word = 0;
}

struct heap_settings heap_settings;

/* The handler of foreign pointers until the start is done. */
static size_t refuse_foreign(void *block, enum heap_foreign_use use) {
    (void)use;
    os_panic("%p is not the start of a block of hakmem", block);
}

static heap_foreign_handler *foreign_handler = refuse_foreign;
static pthread_key_t exit_key;
static bool have_exit_key;

size_t heap_foreign(void *block, enum heap_foreign_use use) { return foreign_handler(block, use); }

/* ---- start and exit ----------------------------------------------------------------------------- */

/* HEAP waits for a thread from now on. If more than REGISTRY_WAITING heaps do, the first beyond them begins to be retired. */
static void give(struct heap *heap) {
    struct heap *beyond = registry_give(heap);
    if (beyond != NULL && !thread_retire_some(beyond) && purger_is_off()) thread_retire_parked(beyond); /* no visit does */
    remote_settle();
}

/* The heap stays as it is for the next thread that begins. None may come: so what its stacks hold counts as free
 * already, others take what they lack (salvage.c), and one that sleeps is retired by the next visits (purge.c). */
static void park(struct heap *heap) {
    os_lock_take(&heap->lock);
    atomic_store_explicit(&heap->state, HEAP_DEAD, memory_order_seq_cst); /* before the last drain: see remote.c */
    if (heap->raised) stack_lower(heap);
    heap_set_parked(heap, true);
    remote_drain(heap);
    buffer_give_all(heap, NULL);
    stack_forget_streams(heap); /* after the last that was counted */
    int64_t held_bytes = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        held_bytes += (int64_t)(stack_held(heap, class) * slab_classes[class].block_bytes);
    footprint_add(heap->in_use_change - held_bytes);
    heap->in_use_change = held_bytes; /* reported again by the thread that takes them out, to use them or to free them */
    home_leave(heap);
    os_lock_drop(&heap->lock);
    give(heap);
}

#define ALL_SLABS UINT32_MAX

/* Of MOST_SLABS slabs at most, both those with returned blocks and those that go; false when some are left. HEAP's lock is held. */
static bool hand_over(struct heap *heap, uint32_t most_slabs) {
    if (HAK_LIKELY(!heap_is_shared(heap))) {
        stack_empty_all(heap);
        buffer_give_all(heap, NULL);
    }
    /* Before the hand-over: a slab that becomes free by this is released instead. */
    if (most_slabs == ALL_SLABS)
        remote_drain(heap);
    else
        remote_drain_some(heap, most_slabs);
    const bool all = bin_hand_over(heap, most_slabs);
    footprint_tell(&heap->in_use_change);
    return all && !remote_has_some(heap);
}

void thread_hand_over(struct heap *heap) { hand_over(heap, ALL_SLABS); }

static bool retire(struct heap *heap, uint32_t most_slabs) {
    os_lock_take(&heap->lock);
    const bool all = !heap->parked || hand_over(heap, most_slabs);
    if (heap->parked && all) {
        if (!heap_is_shared(heap)) stack_reset_all(heap);
        heap_set_parked(heap, false);
    }
    os_lock_drop(&heap->lock);
    return all;
}

void thread_retire_parked(struct heap *heap) { retire(heap, ALL_SLABS); }

bool thread_retire_some(struct heap *heap) { return retire(heap, HAND_OVER_SLABS); }

/* Called when a thread ends, among the destructors of its other keys. Later operations of the thread use
 * the commons. */
static HAK_ENTRY void end_heap(void *value) {
    struct heap *heap = value;
    if (thread_front() != &heap->front || !slow_enter()) return;
    int saved = errno;
    set_gone();
    park(heap);
    slow_leave();
    purger_farewell();
    errno = saved;
}

/* This process is the child of a fork and has no children itself. Most children share their parent's pages until they call exec; one
 * that begins threads is there to work, and soon with blocks of its own. relaxed, all: at worst one more page is
 * copied, or one more block not written to. */
static _Atomic bool is_child;

static void note_fork(bool child) { atomic_store_explicit(&is_child, child, memory_order_relaxed); }

static void note_thread(void) {
    if (atomic_load_explicit(&is_child, memory_order_relaxed)) slab_expect_child(false);
}

HAK_COLD void thread_start_heap(void) {
    if (!have_exit_key || !slow_enter()) return;
    int saved = errno;
    /* After IFUNC resolvers libc clears the first thread's variables once more, but not its keys. */
    struct heap *heap = pthread_getspecific(exit_key);
    if (heap == NULL) heap = registry_take(thread_state.known_word);
    if (HAK_UNLIKELY(heap == NULL) && span_make_gaps(BOOKS_MAPPING_BYTES / PAGE_BYTES)) heap = registry_take(thread_state.known_word);
    if (heap != NULL) {
        struct heap *home = home_choose(heap);
        os_lock_take(&heap->lock);
        home_enter(heap, home);
        heap_set_parked(heap, false);
        atomic_store_explicit(&heap->state, HEAP_LIVE, memory_order_seq_cst); /* see remote.c */
        os_lock_drop(&heap->lock);
        remote_settle();
        set_heap(heap);
        note_thread();
        span_on_growth(kept_spare_growth);
        counter_set(&heap->thread_id, os_thread_id());
        purger_meet(heap);
    }
    slow_leave();
    /* The key may allocate: by now this thread can. Without it the heap would be lost at the thread's end,
     * so the thread uses the commons instead. */
    if (heap != NULL && pthread_setspecific(exit_key, heap) != 0) end_heap(heap);
    errno = saved;
}

void heap_configure(const struct heap_options *options) {
    counter_set(&heap_settings.thread_cache_bytes, options->thread_cache_bytes);
    counter_set(&heap_settings.populate, options->populate);
    purger_configure(options->decay, options->purge_thread);
    pressure_configure(options->pressure);
}

bool heap_start(const struct heap_options *options) {
    heap_configure(options);
    heap_settings.keeper = options->keeper;
    heap_settings.objective = options->objective;
    heap_settings.fixed = options->fixed;
    heap_settings.processors = os_processors();
    pressure_start();
    stack_set_depths(options->bin_depth, options->fixed);
    foreign_handler = options->foreign;
    commons.home = &commons;
    /* Every new slab comes after a look at the commons: the page fault of the first look is taken here. */
    os_lock_take(&commons.lock);
    os_lock_drop(&commons.lock);
    have_exit_key = pthread_key_create(&exit_key, end_heap) == 0;
    return have_exit_key;
}

/* ---- fork --------------------------------------------------------------------------------------- */

/* Whether the fork that ends here, in the parent or the child, began inside a slow path or another fork. */
static bool was_inside(void) {
    if (thread_state.forks_inside == 0) return false;
    thread_state.forks_inside--;
    return true;
}

/* From prepare on this thread is busy: a fork handler of another library that allocates meanwhile takes no lock. A
 * signal handler that forks inside a slow path, or inside a fork, finds it busy already, and perhaps some lock taken:
 * then nothing is locked or reset, and the child keeps to the paths without locks until the handler returns. */
HAK_ENTRY void heap_fork_prepare(void) {
    slab_expect_child(true);
    note_fork(false);
    if (thread_state.busy) {
        thread_state.forks_inside++;
        return;
    }
    thread_state.busy = true;
    os_stdio_lock(); /* first: see stdio.c */
    pressure_fork_prepare();
    span_purging_lock();
    stack_reclaim_lock();
    registry_lock_all();
    bitmaps_lock();
    stack_pool_lock();
    books_lock();
    window_lock();
    span_lock();
}

HAK_ENTRY void heap_fork_parent(void) {
    if (was_inside()) return;
    span_unlock();
    window_unlock();
    books_unlock();
    stack_pool_unlock();
    bitmaps_unlock();
    registry_unlock_all();
    stack_reclaim_unlock();
    span_purging_unlock();
    pressure_fork_parent();
    os_stdio_unlock();
    thread_state.busy = false;
}

/* The other threads are gone. Their slabs are handed to the commons only when this process needs memory: most
 * children call exec soon, and would pay for copies of the metadata. */
void heap_fork_child(void) {
    /* The purge thread is gone, even where the fork came from inside a slow path. */
    purger_forget();
    pressure_fork_child();
    if (thread_heap() != NULL) counter_set(&thread_heap()->thread_id, os_first_thread_id());
    span_purging_reset();
    note_fork(true);
    if (was_inside()) return;
    span_lock_reset();
    window_lock_reset();
    books_lock_reset();
    stack_pool_lock_reset();
    bitmaps_lock_reset();
    span_decay_forget(); /* the child may use memory otherwise */
    footprint_settled(footprint_in_use());
    registry_forsake_others(thread_front());
    stack_reclaim_lock_reset();
    os_stdio_reset();
    thread_state.busy = false;
}

void thread_forgo_heap(void) { set_gone(); }

/* Their threads were anywhere but inside a lock, since prepare held all locks: of what each did, a child sees a
 * beginning. Operations without a lock leave stacks and buffers whole even so: a block on its way in or out may be
 * lost, or still there. */
bool thread_reap_forsaken(void) {
    struct heap *heap = registry_take_forsaken();
    if (HAK_LIKELY(heap == NULL)) return false;
    os_lock_take(&heap->lock);
    heap_set_parked(heap, !hand_over(heap, HAND_OVER_SLABS));
    stack_reset_all(heap);
    home_leave(heap);
    os_lock_drop(&heap->lock);
    if (heap->home != heap) thread_retire_some(heap->home); /* no heap that waits leads to it */
    give(heap);
    return true;
}
