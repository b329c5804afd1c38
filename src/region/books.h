/* books.h - memory for the allocator's own metadata: heaps, bitmaps, stacks. Never beside user memory and never
 * returned to the kernel: a user that needs less later keeps it for reuse. */
#ifndef HAK_REGION_BOOKS_H
#define HAK_REGION_BOOKS_H

#include "base/attributes.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* What is mapped at a time, if the kernel has as much. */
#define BOOKS_MAPPING_BYTES HAK_MIB(1)

/* Maps the first of it, if the kernel has as much: before the process can set a limit that leaves none. Once, or again without effect. */
void books_start(void);

/* Zeroed memory, aligned to 64 bytes; NULL if the kernel refuses. Any thread; may make a system call. */
void *books_take(size_t bytes);

/* Bytes taken so far. */
extern HAK_HIDDEN _Atomic uint64_t books_taken_bytes;
uint64_t books_bytes(void);

/* Each mapping of the books begins with this. The list only grows, at its head: written under the lock of the books,
 * followed without it. */
struct books_mapping {
    struct books_mapping *next;
    uint64_t bytes;
};
extern HAK_HIDDEN _Atomic(struct books_mapping *) books_mappings;

/* For fork. */
void books_lock(void);
void books_unlock(void);
void books_lock_reset(void);

#endif
