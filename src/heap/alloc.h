/* alloc.h - the heap floor's services: the slow paths behind the front, blocks of every size, and the life of
 * a thread's heap. Any thread; in signal handlers too.
 *
 * No function sets errno, and none changes it when it succeeds or frees. */
#ifndef HAK_HEAP_ALLOC_H
#define HAK_HEAP_ALLOC_H

#include "ace/decision.h"
#include "ace/objective.h"
#include "heap/front.h"

/* What is done with a pointer that hakmem never returned. Handed down at start; may not return. Of a pointer that is to be
 * sized it returns how many bytes may be used, 0 where nobody knows. */
enum heap_foreign_use { HEAP_FOREIGN_FREE, HEAP_FOREIGN_SIZE };
typedef size_t heap_foreign_handler(void *block, enum heap_foreign_use use);

struct heap_options {
    size_t thread_cache_bytes;
    const uint16_t *bin_depth; /* of each size class, 0: adaptive; NULL: all are */
    enum ace_objective objective;
    bool fixed;         /* what is adaptive stays as it is at first, and does not follow the program */
    bool populate;      /* bring in the pages of hot classes before they are touched */
    uint64_t decay;     /* half-life in milliseconds, ACE_NEVER for none: whether memory is given back at all */
    bool purge_thread;  /* a thread may be started that gives memory back */
    bool pressure;      /* and gives more back where memory is short */
    heap_foreign_handler *foreign;
    ace_keeper *keeper; /* of what is decided; may be NULL */
};

/* Called once, before any other function of this floor; false when threads can have no heaps of their
 * own, which then all use the commons. */
bool heap_start(const struct heap_options *options);

/* Later: what changed of them holds from now on; bin_depth, objective, fixed, foreign and
 * keeper do not change. One thread at a time. */
void heap_configure(const struct heap_options *options);

/* A block of at least BYTES bytes; NULL when there is no memory. */
void *heap_alloc(size_t bytes);

/* The same, aligned to ALIGNMENT, a power of two. */
void *heap_alloc_aligned(size_t bytes, size_t alignment);

/* The same as heap_alloc, with BYTES bytes that are zero. */
void *heap_alloc_zero(size_t bytes);

/* Gives a block back, from any thread. NULL is ignored. CALLER is where free was called from, NULL if not from libc: see
 * purger.h. */
void heap_free(void *block, const void *caller);

/* Usable bytes; 0 for NULL. Of a pointer that is not a block, what the foreign handler says. */
size_t heap_usable_bytes(const void *block);

/* Whether a block of hakmem starts at BLOCK, as far as its page tells. */
bool heap_owns(const void *block);

/* Resizes BLOCK where it lies, or moves it without a copy. Returns where it is now; NULL when it must be copied, and
 * is as it was. */
void *heap_resize(void *block, size_t bytes);

/* Makes BLOCK at least BYTES bytes long where it lies. Returns its usable bytes; 0 when that cannot be, and it is as it
 * was. */
size_t heap_extend(void *block, size_t bytes);

/* Usable bytes of a block that heap_alloc makes for BYTES bytes; 0 when there can be none. */
size_t heap_good_bytes(size_t bytes);

/* CALLBACK is called, outside all locks and by the thread that noticed, when more is in use than the soft limit of
 * span_settings: once, until it was less again. NULL: nothing is. */
typedef void heap_callback(void *context);
void heap_on_soft_limit(heap_callback *callback, void *context);

/* Gives back to the kernel whatever can be given back, of all threads, at once. Returns how many bytes. */
uint64_t heap_collect(void);

/* Around fork: everything is locked from prepare to one of the others. */
void heap_fork_prepare(void);
void heap_fork_parent(void);
void heap_fork_child(void);

#endif
