/* books.h - memory for the allocator's own books: heaps, bitmaps, stacks. Never beside user memory
 * and never given back: whoever needs less later keeps it for reuse. */
#ifndef HAK_REGION_BOOKS_H
#define HAK_REGION_BOOKS_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory, aligned to 64 bytes; NULL if the kernel refuses. Any thread; may make a system call. */
void *books_take(size_t bytes);

/* Bytes taken so far. */
uint64_t books_bytes(void);

/* For fork. */
void books_lock(void);
void books_unlock(void);
void books_lock_reset(void);

#endif
