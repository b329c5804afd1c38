/* entries.c - the entry points that workloads use, over the block_take and block_give of the header that the build names:
 * ceiling.h, null.h or counting.h. There are no checks but those that a correct program needs. */
#include CEILING_BLOCKS

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

HAK_EXPORT void *malloc(size_t bytes) { return block_take(block_class_for(bytes)); }

HAK_EXPORT void free(void *block) { block_give(block); }

HAK_EXPORT void *calloc(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    return block == NULL ? NULL : memset(block, 0, count * bytes);
}

HAK_EXPORT void *realloc(void *block, size_t bytes) {
    if (block == NULL) return malloc(bytes);
    size_t kept = block_bytes(block);
    if (bytes <= kept) return block;
    void *moved = malloc(bytes);
    if (moved == NULL) return NULL;
    memcpy(moved, block, kept);
    block_give(block);
    return moved;
}

/* As heap_alloc_aligned rounds, and finds the class. */
static void *aligned_take(size_t alignment, size_t bytes) {
    const size_t rounded = bytes == 0 ? alignment : ((alignment - 1) | (bytes - 1)) + 1;
    return block_take(aligned_class_of(rounded, alignment, class_bytes[block_class_for(rounded)]));
}

HAK_EXPORT void *aligned_alloc(size_t alignment, size_t bytes) { return aligned_take(alignment, bytes); }

HAK_EXPORT void *memalign(size_t alignment, size_t bytes) { return aligned_take(alignment, bytes); }

HAK_EXPORT int posix_memalign(void **result, size_t alignment, size_t bytes) {
    *result = aligned_take(alignment, bytes);
    return 0;
}

HAK_EXPORT size_t malloc_usable_size(void *block) { return block == NULL ? 0 : block_bytes(block); }
