/* no_memory.h - the end of an allocation that cannot be served. */
#ifndef HAK_API_NO_MEMORY_H
#define HAK_API_NO_MEMORY_H

#include <stddef.h>

/* Records why BYTES bytes aligned to ALIGNMENT could not be allocated, sets errno to ENOMEM and returns NULL. To be called
 * immediately, before anything else asks for memory. */
void *no_memory(size_t bytes, size_t alignment);

#endif
