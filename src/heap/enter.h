/* enter.h - the mark that a thread is inside a slow path. Between enter and leave a signal handler that
 * allocates finds it busy and takes ways that need no lock. */
#ifndef HAK_HEAP_ENTER_H
#define HAK_HEAP_ENTER_H

#include "heap/front.h"

/* False when this thread is inside already. */
HAK_INLINE bool slow_enter(void) {
    if (HAK_UNLIKELY(thread_state.busy)) return false;
    thread_state.busy = true;
    atomic_signal_fence(memory_order_seq_cst); /* the mark comes before any lock */
    return true;
}

HAK_INLINE void slow_leave(void) {
    atomic_signal_fence(memory_order_seq_cst); /* and goes after the last */
    thread_state.busy = false;
}

#endif
