/* registry.c - all heaps that ever existed: the commons, those of living threads, those that wait for one, and those
 * that threads share. */
#include "heap/registry.h"

#include "base/bits.h"
#include "heap/buffer.h"
#include "heap/stack.h"
#include "region/books.h"

struct commons_place commons_place;
_Static_assert(offsetof(struct commons_place, heap) % 512 == 256, "so the lower half of its address is never 0");

_Atomic(struct heap *) all_heaps;

enum { SHARED_MOST = 1024, POPULATED_SLOTS = 4096 };

/* The lock is held for a few instructions, while a shared heap is made, and from fork's prepare to its end. */
static struct {
    struct os_lock lock;
    _Atomic(struct heap *) idle; /* most recently given first; written under the lock */
    _Atomic uint32_t forsaken;
    struct heap *next_forsaken; /* no newer heap is forsaken; under the lock */
    _Atomic uint32_t live; /* heaps of living threads */
    _Atomic uint32_t sleepers; /* of these, those that slept for long at the last visit */
    uint32_t turn; /* under the lock */
} registry;

static struct heap *shared_heaps[SHARED_MOST]; /* each made when first asked for; under the registry's lock */

/* acquire: what was written to a heap before it was listed is seen. */
struct heap *registry_first(void) { return atomic_load_explicit(&all_heaps, memory_order_acquire); }

/* Memory for a heap with room for SLOTS pointers behind it. Page words tell heaps apart by the low half of their
 * address, and 0 means none. */
static struct heap *take_memory(size_t slots) {
    struct heap *heap;
    do {
        char *memory = books_take(sizeof(struct heap) + slots * sizeof(void *) + 256);
        if (memory == NULL) return NULL;
        heap = (struct heap *)(void *)round_up((uintptr_t)memory, 256);
    } while ((uint32_t)(uintptr_t)heap == 0);
    heap->home = heap;
    return heap;
}

/* Under the lock. */
static void enlist(struct heap *heap) {
    heap->next = registry_first();
    atomic_store_explicit(&all_heaps, heap, memory_order_release); /* pairs with registry_first */
}

static struct heap *create_heap(void) {
    const size_t slots = stack_first_slots();
    struct heap *heap = take_memory(slots + REMOTE_BLOCKS);
    if (heap == NULL) return NULL;
    /* Prefaults all that the first operations of all classes touch, in one call. Of stacks that an option made deep, no more than
     * POPULATED_SLOTS, which no objective's own first depths exceed: most threads use only a part of deep ones. */
    os_populate(heap, sizeof(struct heap) + min_size(slots, POPULATED_SLOTS) * sizeof(void *));
    buffer_begin(heap, heap->first_stacks + slots);
    stack_reset_all(heap);
    os_lock_take(&registry.lock);
    enlist(heap);
    os_lock_drop(&registry.lock);
    return heap;
}

struct heap *registry_shared(uint32_t count) {
    os_lock_take(&registry.lock);
    const uint32_t turn = registry.turn++ % min_u32(max_u32(count, 1), SHARED_MOST);
    struct heap *heap = shared_heaps[turn];
    if (heap == NULL && (heap = take_memory(0)) != NULL) {
        enlist(heap);
        shared_heaps[turn] = heap;
    }
    os_lock_drop(&registry.lock);
    return heap;
}

/* Of the heaps that wait, the one whose blocks have KNOWN_WORD: the thread that takes it frees what the heap's last
 * thread allocated. Otherwise the last that was given on processor CPU, whose caches may still hold it. Otherwise the
 * last that is looked at: other processors want those before it. Under the lock. */
static struct heap *choose_idle(uint32_t known_word, uint32_t cpu) {
    struct heap *here = NULL, *last = NULL;
    /* relaxed, as in what follows: under the lock. */
    struct heap *heap = atomic_load_explicit(&registry.idle, memory_order_relaxed);
    for (unsigned i = 0; i < REGISTRY_WAITING && heap != NULL; i++, heap = heap->next_idle) {
        if (heap_word(heap->home, 0) == known_word) return heap;
        if (here == NULL && heap->given_on == cpu) here = heap;
        last = heap;
    }
    return here != NULL ? here : last;
}

/* Under the lock. */
static void unlink_idle(struct heap *heap) {
    struct heap *before = atomic_load_explicit(&registry.idle, memory_order_relaxed);
    if (before == heap) {
        atomic_store_explicit(&registry.idle, heap->next_idle, memory_order_relaxed);
    } else {
        while (before->next_idle != heap) before = before->next_idle;
        before->next_idle = heap->next_idle;
    }
    heap->idle = false;
}

struct heap *registry_take(uint32_t known_word) {
    struct heap *heap = NULL;
    /* relaxed: a hint; the list is read under the lock. */
    if (atomic_load_explicit(&registry.idle, memory_order_relaxed) != NULL) {
        const uint32_t cpu = os_cpu();
        os_lock_take(&registry.lock);
        heap = choose_idle(known_word, cpu);
        if (heap != NULL) unlink_idle(heap);
        os_lock_drop(&registry.lock);
    }
    if (heap == NULL) heap = create_heap();
    if (heap != NULL) atomic_fetch_add_explicit(&registry.live, 1, memory_order_relaxed); /* an independent count */
    return heap;
}

uint32_t registry_live(void) { return atomic_load_explicit(&registry.live, memory_order_relaxed); }

uint32_t registry_sharing(void) {
    /* relaxed: independent counts; the second may date from before a thread ended, or a fork. */
    const uint32_t live = registry_live(), sleepers = atomic_load_explicit(&registry.sleepers, memory_order_relaxed);
    return live > sleepers ? live - sleepers : 1;
}

void registry_note_sleepers(uint32_t sleepers) { atomic_store_explicit(&registry.sleepers, sleepers, memory_order_relaxed); }

struct heap *registry_give(struct heap *heap) {
    atomic_fetch_sub_explicit(&registry.live, 1, memory_order_relaxed); /* an independent count */
    const uint32_t cpu = os_cpu();
    os_lock_take(&registry.lock);
    heap->given_on = cpu;
    heap->idle = true;
    heap->next_idle = atomic_load_explicit(&registry.idle, memory_order_relaxed);
    atomic_store_explicit(&registry.idle, heap, memory_order_relaxed);
    for (unsigned i = 0; i < REGISTRY_WAITING && heap != NULL; i++) heap = heap->next_idle;
    os_lock_drop(&registry.lock);
    return heap;
}

unsigned registry_idle(struct heap **heaps, unsigned most) {
    /* relaxed: a hint; the list is read under the lock. */
    if (atomic_load_explicit(&registry.idle, memory_order_relaxed) == NULL) return 0;
    unsigned count = 0;
    os_lock_take(&registry.lock);
    struct heap *heap = atomic_load_explicit(&registry.idle, memory_order_relaxed);
    for (; heap != NULL && count < most; heap = heap->next_idle) heaps[count++] = heap;
    os_lock_drop(&registry.lock);
    return count;
}

/* ---- fork --------------------------------------------------------------------------------------- */

void registry_lock_all(void) {
    os_lock_take(&registry.lock);
    for (int shared = 0; shared <= 1; shared++)
        for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next)
            if (heap_is_shared(heap) == shared) os_lock_take(&heap->lock);
    os_lock_take(&commons.lock);
}

void registry_unlock_all(void) {
    os_lock_drop(&commons.lock);
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) os_lock_drop(&heap->lock);
    os_lock_drop(&registry.lock);
}

void registry_forsake_others(const struct front *survivor) {
    os_lock_reset(&commons.lock);
    uint32_t forsaken = 0, live = 0;
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) {
        os_lock_reset(&heap->lock);
        live += &heap->front == survivor;
        if (&heap->front == survivor || heap_is_shared(heap)) continue; /* thread_reap_forsaken makes forsaken sharers leave these */
        heap->forsaken = !heap->idle; /* also if its thread had only just taken it, or not yet given it */
        atomic_store_explicit(&heap->state, HEAP_DEAD, memory_order_relaxed); /* the only thread there is */
        forsaken += heap->forsaken;
    }
    atomic_store_explicit(&registry.forsaken, forsaken, memory_order_relaxed);
    registry.next_forsaken = registry_first();
    atomic_store_explicit(&registry.live, live, memory_order_relaxed);
    remote_mark_anew();
    os_lock_reset(&registry.lock);
}

struct heap *registry_take_forsaken(void) {
    /* relaxed: a hint; the list is read under the lock. */
    if (HAK_LIKELY(atomic_load_explicit(&registry.forsaken, memory_order_relaxed) == 0)) return NULL;
    os_lock_take(&registry.lock);
    struct heap *heap = registry.next_forsaken;
    while (heap != NULL && !heap->forsaken) heap = heap->next;
    registry.next_forsaken = heap;
    if (heap != NULL) {
        heap->forsaken = false;
        atomic_fetch_add_explicit(&registry.live, 1, memory_order_relaxed); /* until it is given: registry_give */
        atomic_fetch_sub_explicit(&registry.forsaken, 1, memory_order_relaxed); /* under the lock */
    }
    os_lock_drop(&registry.lock);
    return heap;
}
