/* purger.h - when memory is returned to the kernel, and by which thread.
 *
 * Slow paths look now and then, and return a little in passing. For more, a purge thread is started, which runs while
 * the program works or sleeps, and ends when no memory to return or no other thread is left: so an idle process
 * returns its memory, and one whose threads have ended is not kept alive. */
#ifndef HAK_HEAP_PURGER_H
#define HAK_HEAP_PURGER_H

#include "heap/heap.h"
#include "heap/thread.h"

/* At start, and whenever the settings change. HALF_LIFE_MS as in span_settings; ALLOWED: the purge thread may be
 * started. */
void purger_configure(uint64_t half_life_ms, bool allowed);

/* At the first look. Not before: libraries that wrap the clock have not been initialised when this one is. */
void purger_start(void);

/* Whether it may be, and there is something for it to do. */
bool purger_is_allowed(void);

/* Whether nothing is ever returned of itself, by the thread or in passing. */
bool purger_is_off(void);

/* False where HEAP's owner may be a signal handler, in the middle of whatever its thread does, or in a child of vfork, which shares memory but
 * not the table of files. By the owner. */
bool purger_is_undisturbed(struct heap *heap);

/* When purger_start was called, in milliseconds of the monotonic clock; 0: not yet. */
extern HAK_HIDDEN counter purger_start_ms;

/* In the child of a fork, where the purge thread does not exist. */
void purger_forget(void);

/* A thread begins with HEAP; a thread has ended: what it held is returned, after the last one immediately. Outside
 * the slow paths. */
void purger_meet(struct heap *heap);
void purger_farewell(void);

extern HAK_HIDDEN _Atomic bool purger_running;
bool purger_is_running(void);

/* How often the purge thread was started. */
extern HAK_HIDDEN _Atomic uint64_t purger_started;
uint64_t purger_starts(void);

/* Slow paths of a thread between two looks. */
enum { TICKS_PER_LOOK = 4 };

/* The look itself: by the owner of HEAP, outside the slow paths. CALLER: see purger_tick. */
void purger_look(struct heap *heap, const void *caller);

/* More is in use than the soft limit, perhaps by one large block, after which nothing may follow: the program is told at once, if it was
 * not before, nor all that is free returned just now. By a thread with a heap, outside the slow paths. */
void purger_note_crossing(void);

/* Freeing a block of this size is worth a look by itself: perhaps nothing follows. */
#define PURGER_HEAVY_BYTES HAK_MIB(1)

/* Whether HEAP's owner has come to a look. */
HAK_INLINE bool purger_counts(struct heap *heap) {
    /* relaxed: the owner's own; to others a hint. */
    const uint32_t ticks = atomic_load_explicit(&heap->ticks, memory_order_relaxed) + 1;
    atomic_store_explicit(&heap->ticks, ticks, memory_order_relaxed);
    return ticks % TICKS_PER_LOOK == 0;
}

/* After each slow path of free, outside it. HEAVY: look now. CALLER: the code that called free, NULL if that cannot be libc:
 * libc frees what a dead thread left behind while it holds the lock that starting a thread needs. */
HAK_INLINE void purger_tick(const void *caller, bool heavy) {
    struct heap *heap = thread_heap();
    if (HAK_UNLIKELY(heap == NULL && heavy && (caller == NULL || !os_is_libc(caller)))) {
        thread_ensure_heap(); /* a thread may free one large block and sleep */
        heap = thread_heap();
    }
    if (HAK_UNLIKELY(heap == NULL)) return;
    if (HAK_UNLIKELY(purger_counts(heap) | heavy)) purger_look(heap, caller);
}

/* The same after each slow path of malloc. CALLER: the code that called it, NULL if that cannot be the dynamic loader, which
 * allocates in the middle of changing what starting a thread reads. libc does not. */
HAK_INLINE void purger_tick_for_alloc(const void *caller) {
    struct heap *heap = thread_heap();
    if (HAK_UNLIKELY(heap == NULL)) return;
    if (HAK_UNLIKELY(purger_counts(heap)))
        purger_look(heap, os_is_loader(caller) ? caller : NULL);
    else if (HAK_UNLIKELY(span_is_over_soft()))
        purger_note_crossing();
}

#endif
