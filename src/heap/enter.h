/* enter.h - a thread's state of the allocator, and the mark that it is inside a slow path. Between slow_enter and
 * slow_leave a signal handler that allocates finds the thread busy and takes paths that need no lock. */
#ifndef HAK_HEAP_ENTER_H
#define HAK_HEAP_ENTER_H

#include "base/attributes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct front;

/* A thread's state of the allocator: 32 bytes of static TLS. All zero before libc has set up the first thread's
 * variables, as when an IFUNC resolver allocates. malloc must find the front of none even then, and does by its
 * distance; free compares the page's word with this thread's before it uses the front. */
struct thread_state {
    struct front *front;      /* NULL only while all is zero */
    uintptr_t front_distance; /* from the front of none */
    uint32_t own_word; /* word, less the class, of pages whose blocks go on this thread's stacks; 0: none do, as with
                        * fronts without bounds */
    bool busy;         /* inside a slow path: a signal handler that allocates now must not enter another */
    uint8_t forks_inside; /* nested forks by signal handlers inside a slow path of this thread or its fork */
    uint16_t heapless_frees;
    uint32_t known_word; /* as own_word, of the first block that was freed without a heap; 0: there is none */
    bool reporting; /* a report is being written: a signal handler must not begin another (watch/deliver.c) */
    bool telling;   /* the soft limit's callback runs, and must not be called by what it does itself (purger.c) */
};

extern HAK_HIDDEN _Thread_local struct thread_state thread_state __attribute__((tls_model("initial-exec")));

/* False when this thread is inside already. */
HAK_INLINE bool slow_enter(void) {
    if (HAK_UNLIKELY(thread_state.busy)) return false;
    thread_state.busy = true;
    atomic_signal_fence(memory_order_seq_cst); /* the mark is set before any lock is taken */
    return true;
}

HAK_INLINE void slow_leave(void) {
    atomic_signal_fence(memory_order_seq_cst); /* and cleared after the last is dropped */
    thread_state.busy = false;
}

#endif
