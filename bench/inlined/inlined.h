/* inlined.h - an experiment, not an interface: the fast paths of malloc and free in their caller's own code. Included before
 * a workload that is linked with the library's objects, and replaces the functions that it would call. A miss takes the
 * ordinary way. */
#ifndef BENCH_INLINED_H
#define BENCH_INLINED_H

#include "hakmem/hakmem.h"
#include "heap/front.h"

#include <stdlib.h>

HAK_INLINE void *inlined_malloc(size_t bytes) {
    void *block;
    return HAK_LIKELY(front_pop(bytes, &block)) ? block : hak_malloc(bytes);
}

HAK_INLINE void inlined_free(void *block) {
    if (HAK_UNLIKELY(!front_push(block))) hak_free(block);
}

#define malloc(bytes) inlined_malloc(bytes)
#define free(block) inlined_free(block)

#endif
