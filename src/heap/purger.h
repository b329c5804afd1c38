/* purger.h - when memory is given back, and by whom.
 *
 * Slow paths look every now and then. A little is given back in passing. For more, a thread is started that does it
 * while the program works or sleeps, and that ends when nothing or nobody is left: so an idle process gives its memory back, and
 * one whose threads have ended is not kept. */
#ifndef HAK_HEAP_PURGER_H
#define HAK_HEAP_PURGER_H

#include "heap/heap.h"
#include "heap/thread.h"

/* At start, and whenever the settings change. HALF_LIFE_MS as in span_settings; ALLOWED: a thread may be started. */
void purger_configure(uint64_t half_life_ms, bool allowed);

/* Once, at start. */
void purger_start(void);

/* Whether the thread gives everything back at once that is free, as long as memory is short on the machine or in the process's
 * control group. */
void purger_hear(bool hears);

/* How often it did, by enum ace_pressure_reason. */
extern HAK_HIDDEN counter purger_pressed[];

/* When it was: milliseconds of the monotonic clock. */
extern HAK_HIDDEN counter purger_start_ms;

/* In the child of a fork, where the thread is not. */
void purger_forget(void);

/* A thread begins with HEAP; and has ended, which gives back what it held, the last one at once. Outside the slow paths. */
void purger_meet(struct heap *heap);
void purger_farewell(void);

extern HAK_HIDDEN _Atomic bool purger_running;
bool purger_is_running(void);

/* How often the thread was started. */
extern HAK_HIDDEN _Atomic uint64_t purger_started;
uint64_t purger_starts(void);

/* Slow paths of a thread between two looks. */
enum { TICKS_PER_LOOK = 4 };

/* The look itself: by the owner of HEAP, outside the slow paths. CALLER: see purger_tick. */
void purger_look(struct heap *heap, const void *caller);

/* A block of so many bytes is worth a look by itself: perhaps nothing follows. */
#define PURGER_HEAVY_BYTES HAK_MIB(1)

/* After each slow path, outside it. HEAVY: look now. CALLER: the code that called free, NULL where libc does not call:
 * libc frees what a dead thread left behind while it holds the lock that starting a thread needs. */
HAK_INLINE void purger_tick(const void *caller, bool heavy) {
    struct heap *heap = thread_heap();
    if (HAK_UNLIKELY(heap == NULL && heavy && (caller == NULL || !os_is_libc(caller)))) {
        thread_ensure_heap(); /* a thread may free one large block and sleep */
        heap = thread_heap();
    }
    if (HAK_UNLIKELY(heap == NULL || thread_state.busy)) return;
    /* relaxed: the owner's own; to others a hint. */
    uint32_t ticks = atomic_load_explicit(&heap->ticks, memory_order_relaxed) + 1;
    atomic_store_explicit(&heap->ticks, ticks, memory_order_relaxed);
    if (HAK_UNLIKELY(ticks % TICKS_PER_LOOK == 0 || heavy)) purger_look(heap, caller);
}

#endif
