/* model.h - the library in the explorer: its start, its kernel, and what must hold of all its books. */
#ifndef EXPLORE_MODEL_H
#define EXPLORE_MODEL_H

#include "../explore.h"
#include "base/attributes.h"
#include "heap/heap.h"
#include "heap/stack.h"
#include "heap/thread.h"

/* ---- model.c ------------------------------------------------------------------------------------------------ */

/* Starts the library: a window of 8 MiB. Nothing decays, and there is no purge thread. First in every setup. */
void model_start(void);

/* The same, with a purge thread that may be started. */
void model_start_with_purge_thread(void);

/* What the program does: a block carries its own address, from malloc to free, and nobody else may write there. */
void *model_take(size_t bytes);
void model_give(void *block);

/* As what a thread had in its buffer, or frees in a signal handler, is given: by its bit in the slab, without the owner's lock. */
void model_give_home(void *block);

/* Names in reports. */
void model_name_heap(struct heap *heap);
void model_name_slab(const void *block);

/* In a setup: the thread takes no heap of its own. */
void model_without_heap(void);

/* ---- libc.c: what libc does when the thread ends: destructors ------------------------------------------------- */
void model_thread_exit(void);

/* ---- os.c --------------------------------------------------------------------------------------------------- */

/* A thread of a test that runs what os_thread_start is given, if ever: it may wait for ever. So does it in its
 * MODEL_SLEEPS_MOST th sleep: what goes round and round need not be explored further. */
void model_started_thread(void);
enum { MODEL_SLEEPS_MOST = 7 };

/* How many threads were started, and ended. */
extern _Atomic uint32_t model_threads_started, model_threads_ended;

/* ---- books.c: in a check, when nobody runs -------------------------------------------------------------------- */

/* Every block that was ever handed out is in exactly one place: among those IN_USE, in a stack, in a buffer, in its
 * slab's bits, or in its remote bits; and what lies in remote bits will be found: the slab is queued in a heap. Nothing
 * waits in a heap that no thread owns. */
void model_check_blocks(void *const *in_use, size_t count);

/* Used and free spans cover all pages that the span layer was given; its counters say what they hold. */
void model_check_spans(void);

#endif
