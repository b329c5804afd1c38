/* thread.h - the life of a thread's heap. */
#ifndef HAK_HEAP_THREAD_H
#define HAK_HEAP_THREAD_H

#include "heap/enter.h"
#include "heap/heap.h"

/* Gives the thread a heap if it has none yet and may have one. Not between slow_enter and slow_leave. */
void thread_start_heap(void);

/* This thread never gets a heap. */
void thread_forgo_heap(void);

HAK_INLINE void thread_ensure_heap(void) {
    if (HAK_UNLIKELY(thread_state.front_distance == 0) && !thread_state.busy) thread_start_heap();
}

/* This thread's heap; NULL when it has none. */
HAK_INLINE struct heap *thread_heap(void) { return thread_has_heap() ? (struct heap *)thread_front() : NULL; }

#endif
