/* alloc.h - the heap layer's services: the slow paths behind the front, blocks of every size, and the life of a
 * thread's heap. For any thread, in signal handlers too.
 *
 * No function sets errno, and none changes it when it succeeds or frees. */
#ifndef HAK_HEAP_ALLOC_H
#define HAK_HEAP_ALLOC_H

#include "ace/decision.h"
#include "ace/objective.h"
#include "heap/front.h"

/* Called for a pointer that hakmem never returned. Set at start; need not return. For HEAP_FOREIGN_SIZE the result is
 * how many bytes may be used, 0 when that is unknown. */
enum heap_foreign_use { HEAP_FOREIGN_FREE, HEAP_FOREIGN_SIZE };
typedef size_t heap_foreign_handler(void *block, enum heap_foreign_use use);

struct heap_options {
    size_t thread_cache_bytes;
    const uint16_t *bin_depth; /* per size class, 0: adaptive; NULL: all adaptive */
    enum ace_objective objective;
    bool fixed;         /* adaptive values keep their initial setting and do not follow the program */
    bool populate;      /* prefault the pages of hot classes */
    uint64_t decay;     /* half-life in milliseconds; ACE_NEVER: no memory is returned to the kernel by itself */
    bool purge_thread;  /* a thread may be started that returns memory to the kernel */
    bool pressure;      /* that thread returns more when memory is short */
    heap_foreign_handler *foreign;
    ace_keeper *keeper; /* receives decisions; may be NULL */
};

/* Called once, before any other function of this layer; false when threads cannot have heaps of their own and all use
 * the commons. */
bool heap_start(const struct heap_options *options);

/* Applies changed options later. bin_depth, objective, fixed, foreign and keeper do not change. One thread at a time. */
void heap_configure(const struct heap_options *options);

/* A block of at least BYTES bytes; NULL when there is no memory. CALLER is where malloc was called from, NULL if that cannot be the
 * dynamic loader: see purger.h. */
void *heap_alloc(size_t bytes, const void *caller);

/* The same, aligned to ALIGNMENT, a power of two. */
void *heap_alloc_aligned(size_t bytes, size_t alignment);

/* The same as heap_alloc, with BYTES bytes that are zero. */
void *heap_alloc_zero(size_t bytes, const void *caller);

/* Frees a block, from any thread. NULL is ignored. CALLER is where free was called from, NULL if that cannot be libc:
 * see purger.h. */
void heap_free(void *block, const void *caller);

/* Usable bytes; 0 for NULL. For a pointer that is not a block, the answer of the foreign handler. */
size_t heap_usable_bytes(const void *block);

/* Whether a block of hakmem starts at BLOCK, as far as its page tells. */
bool heap_owns(const void *block);

/* Resizes BLOCK in place or, if it is long, moves it, by its page tables where the kernel can. Returns its new address; NULL when a new
 * block must be had for it, and it is unchanged. */
void *heap_resize(void *block, size_t bytes);

/* Leaves BLOCK no more pages than BYTES bytes need, which are fewer than it has: where it cannot move to a smaller place. */
void heap_trim(void *block, size_t bytes);

/* Lengthens BLOCK in place to at least BYTES bytes. Returns its usable bytes; 0 when that is impossible, and it is
 * unchanged. */
size_t heap_extend(void *block, size_t bytes);

/* Usable bytes of a block that heap_alloc makes for BYTES bytes; 0 when there can be no such block. */
size_t heap_good_bytes(size_t bytes);

/* CALLBACK is called, outside all locks and by the thread that noticed, when more is in use than the soft limit of
 * span_settings: once, until less is in use again. NULL: no callback. */
typedef void heap_callback(void *context);
void heap_on_soft_limit(heap_callback *callback, void *context);

/* Returns to the kernel whatever can be returned, of all threads, immediately. The result is how many bytes. */
uint64_t heap_collect(void);

/* Around fork: all locks are held from prepare to one of the others. */
void heap_fork_prepare(void);
void heap_fork_parent(void);
void heap_fork_child(void);

#endif
