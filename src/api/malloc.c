/* malloc.c - malloc, calloc, realloc, the forms of free, and the size of a block, under their own names and libc's.
 *
 * The fast path of each is in heap/front.h, and that of medium blocks in heap/medium.h. Everything else is a tail call to a slow
 * path, which starts the allocator if it has not been started. reallocarray is in glibc.c. */
#include "api/names.h"
#include "api/no_memory.h"
#include "api/start.h"
#include "base/bits.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"
#include "heap/medium.h"
#include "os/assert.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

static HAK_NOINLINE void *malloc_slow(size_t bytes, const void *caller) {
    start_once();
    void *block = heap_alloc(bytes, caller);
    return HAK_LIKELY(block != NULL) ? block : no_memory(bytes, SMALLEST_BLOCK_BYTES);
}

/* heap_alloc would find the same block, one call later. */
static HAK_NOINLINE void *malloc_medium(size_t bytes, const void *caller) {
    void *block;
    return HAK_LIKELY(medium_pop(bytes, SMALLEST_BLOCK_BYTES, &block)) ? block : malloc_slow(bytes, caller);
}

static HAK_NOINLINE void *calloc_slow(size_t bytes, const void *caller) {
    start_once();
    void *block = heap_alloc_zero(bytes, caller);
    return HAK_LIKELY(block != NULL) ? block : no_memory(bytes, SMALLEST_BLOCK_BYTES);
}

/* Like hak_malloc, but it is left to the caller to record a failure. */
static HAK_NOINLINE void *malloc_or_null(size_t bytes, const void *caller) {
    void *block;
    if (HAK_LIKELY(front_pop(bytes, &block))) return block;
    start_once();
    return heap_alloc(bytes, caller);
}

static HAK_NOINLINE void free_slow(void *block, const void *caller) {
    start_once();
    heap_free(block, caller);
}

/* The placement of these two functions changes speed by a tenth, in unlucky programs by a third. They are linked ahead of all other
 * code, so that changes there do not move them (decisions 0040 and 0049). */
#define HAK_PLACED __attribute__((section(".text.hot.entry")))

HAK_EXPORT HAK_PLACED HAK_ALIGNED(256) void *hak_malloc(size_t bytes) {
    void *block;
    if (HAK_LIKELY(front_pop(bytes, &block))) return block;
    return malloc_medium(bytes, __builtin_return_address(0));
}

HAK_EXPORT HAK_PLACED HAK_ALIGNED(HAK_CACHE_LINE) void hak_free(void *block) {
    if (HAK_LIKELY(front_push(block))) return;
    free_slow(block, __builtin_return_address(0));
}

HAK_EXPORT void *hak_calloc(size_t count, size_t bytes) {
    size_t total;
    void *block;
    if (HAK_UNLIKELY(__builtin_mul_overflow(count, bytes, &total))) return no_memory(SIZE_MAX, SMALLEST_BLOCK_BYTES);
    if (HAK_LIKELY(front_pop(total, &block))) return memset(block, 0, total);
    return calloc_slow(total, __builtin_return_address(0));
}

/* Moves BLOCK, KEPT bytes long, to where there are BYTES. */
static HAK_NOINLINE void *realloc_elsewhere(void *block, size_t kept, size_t bytes, const void *caller) {
    void *moved = malloc_or_null(bytes, caller);
    if (HAK_UNLIKELY(moved == NULL)) {
        if (bytes > kept) return no_memory(bytes, SMALLEST_BLOCK_BYTES);
        heap_trim(block, bytes);
        return block; /* it was to shrink and cannot move: it stays, which is no failure */
    }
    memcpy(moved, block, min_size(kept, bytes));
    hak_free(block);
    return moved;
}

static HAK_NOINLINE void *realloc_slow(void *block, size_t bytes, const void *caller) {
    if (bytes == 0) {
        hak_free(block);
        return NULL;
    }
    void *resized = heap_resize(block, bytes);
    return resized != NULL ? resized : realloc_elsewhere(block, heap_usable_bytes(block), bytes, caller);
}

HAK_EXPORT void *hak_realloc(void *block, size_t bytes) {
    if (block == NULL) return hak_malloc(bytes);
    const size_t small_bytes = front_bytes_of(block);
    if (small_bytes == 0 || bytes == 0) return realloc_slow(block, bytes, __builtin_return_address(0));
    if (front_suits(small_bytes, bytes)) return block;
    return realloc_elsewhere(block, small_bytes, bytes, __builtin_return_address(0));
}

HAK_EXPORT void *hak_reallocarray(void *block, size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) return no_memory(SIZE_MAX, SMALLEST_BLOCK_BYTES);
    return hak_realloc(block, total);
}

/* What the program says about the block is checked in checked builds, and not used in others. */
HAK_EXPORT void hak_free_sized(void *block, size_t bytes) {
    HAK_ASSERT(block == NULL || bytes <= heap_usable_bytes(block));
    (void)bytes;
    if (HAK_LIKELY(front_push(block))) return;
    free_slow(block, __builtin_return_address(0));
}

HAK_EXPORT void hak_free_aligned_sized(void *block, size_t alignment, size_t bytes) {
    HAK_ASSERT(block == NULL || (is_power_of_two(alignment) && (uintptr_t)block % alignment == 0));
    HAK_ASSERT(block == NULL || bytes <= heap_usable_bytes(block));
    (void)alignment, (void)bytes;
    if (HAK_LIKELY(front_push(block))) return;
    free_slow(block, __builtin_return_address(0));
}

HAK_EXPORT size_t hak_usable_size(const void *block) { return heap_usable_bytes(block); }

HAK_EXPORT size_t hak_good_size(size_t bytes) { return heap_good_bytes(bytes); }

HAK_EXPORT size_t hak_try_expand(void *block, size_t bytes) {
    int saved = errno;
    size_t usable = block == NULL ? 0 : heap_extend(block, bytes);
    errno = saved;
    return usable;
}

HAK_EXPORT size_t hak_collect(void) {
    start_once();
    return (size_t)heap_collect();
}

HAK_LIBC_NAME(void *, malloc, (size_t bytes), hak_malloc)
HAK_LIBC_NAME(void, free, (void *block), hak_free)
HAK_LIBC_NAME(void, cfree, (void *block), hak_free)
HAK_LIBC_NAME(void, free_sized, (void *block, size_t bytes), hak_free_sized)
HAK_LIBC_NAME(void, free_aligned_sized, (void *block, size_t alignment, size_t bytes), hak_free_aligned_sized)
HAK_LIBC_NAME(void *, calloc, (size_t count, size_t bytes), hak_calloc)
HAK_LIBC_NAME(void *, realloc, (void *block, size_t bytes), hak_realloc)
HAK_LIBC_NAME(size_t, malloc_usable_size, (void *block), hak_usable_size)
