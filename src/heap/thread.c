/* thread.c - heaps come and go with threads: start, exit, fork. */
#include "heap/thread.h"

#include "base/bits.h"
#include "heap/alloc.h"
#include "region/books.h"
#include "slab/bitmaps.h"

#include <errno.h>
#include <pthread.h>

/* Fronts of threads without a heap: every operation takes the slow path, which tells them apart. */
const struct front front_none, front_gone;

/* Constant all the same: without bounds nothing is ever stored in them. */
#define FRONT_WITHOUT_HEAP(which) ((struct front *)(uintptr_t)&(which))

_Thread_local struct thread_state thread_state = {.front = FRONT_WITHOUT_HEAP(front_none)};

struct heap commons;
struct heap_settings heap_settings;

static void report_foreign(const void *block) { os_panic("%p is not the start of a block of hakmem", block); }

static heap_foreign_handler *foreign_handler = report_foreign;
static pthread_key_t exit_key;
static bool have_exit_key;

/* All heaps, and those without a thread. The lock is held for a few instructions only. */
static struct {
    struct os_lock lock;
    struct heap *all;
    struct heap *idle;
    _Atomic uint32_t forsaken; /* heaps that wait for thread_reap_forsaken */
} registry;

void heap_foreign(const void *block) { foreign_handler(block); }

/* ---- start and exit ----------------------------------------------------------------------------- */

static struct heap *create_heap(void) {
    struct heap *heap;
    size_t slots = stack_first_slots();
    do { /* page words tell heaps apart by the low half of their address, and 0 means none */
        char *memory = books_take(sizeof(struct heap) + (slots + REMOTE_BLOCKS) * sizeof(void *) + 256);
        if (memory == NULL) return NULL;
        heap = (struct heap *)(void *)round_up((uintptr_t)memory, 256);
    } while ((uint32_t)(uintptr_t)heap == 0);
    /* All that the first operations of all classes touch, in one go. */
    os_populate(heap, sizeof(struct heap) + slots * sizeof(void *));
    heap->remote = heap->first_stacks + slots;
    stack_reset_all(heap);
    os_lock_take(&registry.lock);
    heap->next = registry.all;
    registry.all = heap;
    os_lock_drop(&registry.lock);
    return heap;
}

static struct heap *take_idle(void) {
    os_lock_take(&registry.lock);
    struct heap *heap = registry.idle;
    if (heap != NULL) registry.idle = heap->next_idle;
    os_lock_drop(&registry.lock);
    return heap;
}

static void give_idle(struct heap *heap) {
    os_lock_take(&registry.lock);
    heap->next_idle = registry.idle;
    registry.idle = heap;
    os_lock_drop(&registry.lock);
}

/* What HEAP holds goes where others find it. Without STACKS its stacks are not looked at: their thread may
 * have been anywhere. */
static void retire(struct heap *heap, bool stacks) {
    os_lock_take(&heap->lock);
    atomic_store_explicit(&heap->state, HEAP_DEAD, memory_order_seq_cst); /* before the last drain: see remote.c */
    for (unsigned class = 0; stacks && class < SIZE_CLASSES; class++) stack_empty(heap, class);
    stack_reset_all(heap);
    bin_hand_over(heap);
    remote_drain(heap);
    os_lock_drop(&heap->lock);
    /* acquire: pairs with the release in free.c when this is the child of a fork. */
    remote_give(heap->remote, atomic_load_explicit(&heap->remote_count, memory_order_acquire));
    heap->remote_bytes = 0;
    atomic_store_explicit(&heap->remote_count, 0, memory_order_relaxed); /* own by now */
    give_idle(heap);
    remote_settle();
}

/* Called when a thread ends, among the destructors of its other keys. Later operations of the thread use
 * the commons. */
static void end_heap(void *value) {
    struct heap *heap = value;
    if (thread_state.front != &heap->front || !slow_enter()) return;
    int saved = errno;
    thread_state.front = FRONT_WITHOUT_HEAP(front_gone);
    retire(heap, true);
    slow_leave();
    errno = saved;
}

HAK_COLD void thread_start_heap(void) {
    if (!have_exit_key || !slow_enter()) return;
    int saved = errno;
    struct heap *heap = take_idle();
    if (heap == NULL) heap = create_heap();
    if (heap != NULL) {
        atomic_store_explicit(&heap->state, HEAP_LIVE, memory_order_seq_cst); /* see remote.c */
        thread_state.front = &heap->front;
    }
    slow_leave();
    /* The key may allocate: by now this thread can. Without it the heap would be lost at the thread's end,
     * so the thread uses the commons instead. */
    if (heap != NULL && pthread_setspecific(exit_key, heap) != 0) end_heap(heap);
    errno = saved;
}

bool heap_start(const struct heap_options *options) {
    heap_settings.thread_cache_bytes = options->thread_cache_bytes;
    heap_settings.bin_depth = options->bin_depth;
    foreign_handler = options->foreign;
    /* Every new slab comes after a look at the commons: the page fault of the first look comes now. */
    os_lock_take(&commons.lock);
    os_lock_drop(&commons.lock);
    have_exit_key = pthread_key_create(&exit_key, end_heap) == 0;
    return have_exit_key;
}

/* ---- fork --------------------------------------------------------------------------------------- */

/* From prepare on this thread is busy: another library's handler that allocates meanwhile takes no lock. A signal
 * handler that forks inside a slow path finds it busy already, and some lock perhaps taken: then all stays as it
 * is, and the child keeps to the ways without locks until the handler returns. */
void heap_fork_prepare(void) {
    thread_state.fork_inside = thread_state.busy;
    if (thread_state.fork_inside) return;
    thread_state.busy = true;
    os_lock_take(&registry.lock);
    for (struct heap *heap = registry.all; heap != NULL; heap = heap->next) os_lock_take(&heap->lock);
    os_lock_take(&commons.lock);
    bitmaps_lock();
    stack_pool_lock();
    books_lock();
    span_lock();
    window_lock();
}

void heap_fork_parent(void) {
    if (thread_state.fork_inside) return;
    window_unlock();
    span_unlock();
    books_unlock();
    stack_pool_unlock();
    bitmaps_unlock();
    os_lock_drop(&commons.lock);
    for (struct heap *heap = registry.all; heap != NULL; heap = heap->next) os_lock_drop(&heap->lock);
    os_lock_drop(&registry.lock);
    thread_state.busy = false;
}

/* The other threads are gone. Their slabs are handed to the commons only when this process needs
 * memory: most children call exec soon, and would pay for copies of the books. */
void heap_fork_child(void) {
    if (thread_state.fork_inside) return;
    window_lock_reset();
    span_lock_reset();
    books_lock_reset();
    stack_pool_lock_reset();
    bitmaps_lock_reset();
    os_lock_reset(&commons.lock);
    uint32_t forsaken = 0;
    for (struct heap *heap = registry.all; heap != NULL; heap = heap->next) {
        os_lock_reset(&heap->lock);
        if (&heap->front == thread_state.front) continue;
        /* relaxed, both: the only thread there is. */
        if (atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_LIVE) heap->forsaken = true;
        atomic_store_explicit(&heap->state, HEAP_DEAD, memory_order_relaxed);
        forsaken += heap->forsaken;
    }
    atomic_store_explicit(&registry.forsaken, forsaken, memory_order_relaxed);
    os_lock_reset(&registry.lock);
    thread_state.busy = false;
}

static struct heap *take_forsaken(void) {
    os_lock_take(&registry.lock);
    struct heap *heap = registry.all;
    while (heap != NULL && !heap->forsaken) heap = heap->next;
    if (heap != NULL) {
        heap->forsaken = false;
        atomic_fetch_sub_explicit(&registry.forsaken, 1, memory_order_relaxed); /* under the lock */
    }
    os_lock_drop(&registry.lock);
    return heap;
}

void thread_reap_forsaken(void) {
    struct heap *heap;
    /* relaxed: a hint; the list is read under the lock. */
    while (atomic_load_explicit(&registry.forsaken, memory_order_relaxed) != 0 && (heap = take_forsaken()) != NULL)
        retire(heap, false);
}

/* ---- looking at all ----------------------------------------------------------------------------- */

struct heap *thread_find_undrained(void) {
    /* relaxed: whoever clears the flag looks again. */
    if (atomic_load_explicit(&commons.undrained, memory_order_relaxed)) return &commons;
    os_lock_take(&registry.lock);
    struct heap *heap = registry.all;
    os_lock_drop(&registry.lock);
    while (heap != NULL && !atomic_load_explicit(&heap->undrained, memory_order_relaxed)) heap = heap->next;
    return heap;
}

static void visit_one(struct heap *heap, void (*visit)(struct heap *heap, void *context), void *context) {
    os_lock_take(&heap->lock);
    visit(heap, context);
    os_lock_drop(&heap->lock);
}

void heap_visit_all(void (*visit)(struct heap *heap, void *context), void *context) {
    if (!slow_enter()) return;
    visit_one(&commons, visit, context);
    os_lock_take(&registry.lock);
    struct heap *heap = registry.all; /* the list only grows, at this end */
    os_lock_drop(&registry.lock);
    for (; heap != NULL; heap = heap->next) visit_one(heap, visit, context);
    slow_leave();
}
