/* counting.h - the allocator that counts for the others: see counting.c. */
#ifndef BENCH_CEILING_COUNTING_H
#define BENCH_CEILING_COUNTING_H

#include "common.h"

HAK_HIDDEN unsigned block_class_for(size_t bytes);
HAK_HIDDEN void *block_take(unsigned class);
HAK_HIDDEN void block_give(void *block);
HAK_HIDDEN size_t block_bytes(const void *block);

#endif
