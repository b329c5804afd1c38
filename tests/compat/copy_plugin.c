/* copy_plugin.c - a library with a copy of hakmem of its own, linked from the archive, that nobody else sees. What it
 * allocates it must free itself. See static_copies.c. */
#include <hakmem/hakmem.h>

#include <stdlib.h>

void *copy_malloc(size_t bytes);
void copy_free(void *block);
size_t copy_usable_size(const void *block);

/* By the standard names: they, too, mean the copy here. */
void *copy_malloc(size_t bytes) { return malloc(bytes); }
void copy_free(void *block) { free(block); }
size_t copy_usable_size(const void *block) { return hak_usable_size(block); }
