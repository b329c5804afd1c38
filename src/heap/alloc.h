/* alloc.h - the heap floor's services: the slow paths behind the front, blocks of every size, and the life of
 * a thread's heap. Any thread; in signal handlers too.
 *
 * No function sets errno, and none changes it when it succeeds or frees. */
#ifndef HAK_HEAP_ALLOC_H
#define HAK_HEAP_ALLOC_H

#include "heap/front.h"

/* What is done with a pointer that hakmem never returned. Handed down at start; may not return. */
typedef void heap_foreign_handler(const void *block);

struct heap_options {
    size_t thread_cache_bytes;
    uint32_t bin_depth; /* 0: adaptive */
    heap_foreign_handler *foreign;
};

/* Called once, before any other function of this floor; false when threads can have no heaps of their
 * own, which then all use the commons. */
bool heap_start(const struct heap_options *options);

/* A block of at least BYTES bytes; NULL when there is no memory. */
void *heap_alloc(size_t bytes);

/* The same, aligned to ALIGNMENT, a power of two. */
void *heap_alloc_aligned(size_t bytes, size_t alignment);

/* The same as heap_alloc; *ZERO tells whether the block is known to be zero. */
void *heap_alloc_zero(size_t bytes, bool *zero);

/* Gives a block back, from any thread. NULL is ignored. */
void heap_free(void *block);

/* Usable bytes; 0 for NULL. A pointer that is not a block goes to the foreign handler and counts 0. */
size_t heap_usable_bytes(const void *block);

/* Whether a block of hakmem starts at BLOCK, as far as its page tells. */
bool heap_owns(const void *block);

/* Resizes BLOCK where it lies; false when it must move. */
bool heap_resize(void *block, size_t bytes);

/* Around fork: everything is locked from prepare to one of the others. */
void heap_fork_prepare(void);
void heap_fork_parent(void);
void heap_fork_child(void);

#endif
