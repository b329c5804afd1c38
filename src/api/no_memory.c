/* no_memory.c - see no_memory.h. */
#include "api/no_memory.h"

#include "base/attributes.h"
#include "watch/failures.h"

#include <errno.h>

HAK_COLD void *no_memory(size_t bytes, size_t alignment) {
    failure_note(bytes, alignment);
    errno = ENOMEM;
    return NULL;
}
