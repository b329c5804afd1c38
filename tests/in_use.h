/* in_use.h - how much of the process is in use, without waiting until a thread's next look tells of its changes. */
#ifndef HAK_TESTS_IN_USE_H
#define HAK_TESTS_IN_USE_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include "heap/footprint.h"
#include "heap/heap.h"

static uint64_t told_in_use(struct heap *heap) {
    os_lock_take(&heap->lock);
    footprint_tell(&heap->in_use_change);
    os_lock_drop(&heap->lock);
    return footprint_in_use();
}

#endif
