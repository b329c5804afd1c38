/* prepare.h - what prepare.c has made before main: for each thread a front, and page words that hold classes alone. */
#ifndef BENCH_CEILING_PREPARE_H
#define BENCH_CEILING_PREPARE_H

#include "common.h"

/* The class of a block; of NULL it is SMALL_CLASSES. */
HAK_INLINE uint32_t block_class(const void *block) { return page_word(page_index(block)); }

HAK_INLINE size_t block_bytes(const void *block) { return class_bytes[block_class(block)]; }

/* Class of a request of BYTES bytes, found as front_pop finds it. */
HAK_INLINE unsigned block_class_for(size_t bytes) {
    return front_constants.classes[(bytes + SMALLEST_BLOCK_BYTES - 1) / SMALLEST_BLOCK_BYTES];
}

/* The top of a stack, as there. */
HAK_INLINE front_slot *slot_of(unsigned class) {
    return (front_slot *)((uintptr_t)&front_constants.none.top[class] + thread_state.front_distance);
}

#endif
