/* common.h - what the allocators of this folder share: block sizes, numbered threads, how they end.
 *
 * They are hakmem's front (heap/front.h) without its checks. None checks its arguments: counting.c finds out beforehand
 * whether a workload can be served at all, and the laboratory starts no other. */
#ifndef BENCH_CEILING_COMMON_H
#define BENCH_CEILING_COMMON_H

#include "heap/front.h"

#define THREADS_MAX 64

/* Of a block of each class. */
extern HAK_HIDDEN const uint32_t class_bytes[SIZE_CLASSES];

/* Each allocator has its own: called in a new thread before anything else of it runs, with its number. It is not called for
 * the first thread, number 0. */
HAK_HIDDEN void thread_begin(unsigned number);

/* How many there were, the first included. */
HAK_HIDDEN unsigned threads_begun(void);

/* Whether the function that the thread was started with has returned. */
HAK_HIDDEN bool thread_has_ended(unsigned number);

/* Zero, not resident, and not counted by the kernel until it is touched. */
HAK_HIDDEN void *memory_map(size_t bytes);

/* One line on standard error, and the end of the process. */
HAK_HIDDEN _Noreturn HAK_COLD HAK_PRINTF(1, 2) void bare_fail(const char *format, ...);

#endif
