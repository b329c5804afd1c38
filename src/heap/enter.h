/* enter.h - what a thread knows of the allocator, and the mark that it is inside a slow path. Between enter and leave a signal
 * handler that allocates finds it busy and takes ways that need no lock. */
#ifndef HAK_HEAP_ENTER_H
#define HAK_HEAP_ENTER_H

#include "base/attributes.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct front;

/* What a thread knows of the allocator: 32 bytes of static TLS. All zero before libc has set the first thread's
 * variables up, as when an IFUNC resolver allocates: then malloc must find the front of none, and does by its distance,
 * while free compares the page's word with this thread's before it looks there. */
struct thread_state {
    struct front *front;      /* NULL only as long as all is zero */
    uintptr_t front_distance; /* from the front of none */
    uint32_t own_word; /* of pages whose blocks go on this thread's stacks, less the class; 0: none do, as of fronts without bounds */
    bool busy;         /* inside a slow path: a signal handler that allocates now must not enter another */
    uint8_t forks_inside; /* so many forks of signal handlers, one in the other, inside a slow path of this thread or its fork */
    uint16_t heapless_frees;
    uint32_t known_word; /* as own_word, of the block that was freed first without a heap; 0: there is none */
};

extern HAK_HIDDEN _Thread_local struct thread_state thread_state __attribute__((tls_model("initial-exec")));

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
