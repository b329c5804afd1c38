/* start.h - the process's first operation: options, window, heaps, fork handlers. */
#ifndef HAK_API_START_H
#define HAK_API_START_H

#include "base/attributes.h"

#include <stdatomic.h>
#include <stdint.h>

extern HAK_HIDDEN _Atomic uint32_t start_done;

/* Starts the allocator unless it has been started. Any thread; before libc is ready too. */
void start_now(void);

HAK_INLINE void start_once(void) {
    /* acquire: pairs with the release at the end of the start. */
    if (HAK_UNLIKELY(!atomic_load_explicit(&start_done, memory_order_acquire))) start_now();
}

#endif
