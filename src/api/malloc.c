/* malloc.c - malloc, calloc, realloc, free and the size of a block, under their own names and libc's.
 *
 * The fast path of each stands in full in heap/front.h. Everything else is a tail call to a slow path, which
 * starts the allocator if nobody has. */
#include "api/names.h"
#include "api/start.h"
#include "base/bits.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static HAK_NOINLINE void *malloc_slow(size_t bytes) {
    start_once();
    void *block = heap_alloc(bytes);
    if (HAK_UNLIKELY(block == NULL)) errno = ENOMEM;
    return block;
}

static HAK_NOINLINE void free_slow(void *block, const void *caller) {
    start_once();
    heap_free(block, caller);
}

HAK_EXPORT void *hak_malloc(size_t bytes) {
    void *block;
    if (HAK_LIKELY(front_pop(bytes, &block))) return block;
    return malloc_slow(bytes);
}

HAK_EXPORT void hak_free(void *block) {
    if (HAK_LIKELY(front_push(block))) return;
    free_slow(block, __builtin_return_address(0));
}

HAK_EXPORT void *hak_calloc(size_t count, size_t bytes) {
    size_t total;
    start_once();
    void *block = __builtin_mul_overflow(count, bytes, &total) ? NULL : heap_alloc_zero(total);
    if (HAK_UNLIKELY(block == NULL)) errno = ENOMEM;
    return block;
}

HAK_EXPORT void *hak_realloc(void *block, size_t bytes) {
    if (block == NULL) return hak_malloc(bytes);
    if (bytes == 0) {
        hak_free(block);
        return NULL;
    }
    void *moved = heap_resize(block, bytes);
    if (moved != NULL) return moved;
    size_t kept = heap_usable_bytes(block);
    int saved = errno;
    moved = hak_malloc(bytes);
    if (HAK_UNLIKELY(moved == NULL)) {
        if (bytes > kept) return NULL;
        errno = saved; /* it should shrink, and cannot move: it stays */
        return block;
    }
    memcpy(moved, block, min_size(kept, bytes));
    hak_free(block);
    return moved;
}

HAK_EXPORT void *hak_reallocarray(void *block, size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return hak_realloc(block, total);
}

HAK_EXPORT size_t hak_usable_size(const void *block) { return heap_usable_bytes(block); }

HAK_EXPORT size_t hak_collect(void) {
    start_once();
    return (size_t)heap_collect();
}

/* What glibc's would leave at the top of its heap is nothing that could be left here. */
HAK_EXPORT int hak_malloc_trim(size_t pad) {
    (void)pad;
    return hak_collect() != 0;
}

HAK_LIBC_NAME(void *, malloc, (size_t bytes), hak_malloc)
HAK_LIBC_NAME(void, free, (void *block), hak_free)
HAK_LIBC_NAME(void *, calloc, (size_t count, size_t bytes), hak_calloc)
HAK_LIBC_NAME(void *, realloc, (void *block, size_t bytes), hak_realloc)
HAK_LIBC_NAME(void *, reallocarray, (void *block, size_t count, size_t bytes), hak_reallocarray)
HAK_LIBC_NAME(size_t, malloc_usable_size, (void *block), hak_usable_size)
HAK_LIBC_NAME(int, malloc_trim, (size_t pad), hak_malloc_trim)
