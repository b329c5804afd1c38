/* aligned.c - blocks with an alignment of their own. */
#include "api/names.h"
#include "api/no_memory.h"
#include "api/start.h"
#include "base/bits.h"
#include "hakmem/hakmem.h"
#include "heap/alloc.h"
#include "heap/front.h"
#include "os/os.h"

#include <errno.h>

/* ALIGNMENT is a power of two, here and below. */
static HAK_NOINLINE void *allocate_slow(size_t alignment, size_t bytes) {
    start_once();
    void *block = heap_alloc_aligned(bytes, max_size(alignment, SMALLEST_BLOCK_BYTES));
    return HAK_LIKELY(block != NULL) ? block : no_memory(bytes, alignment);
}

HAK_INLINE void *allocate(size_t alignment, size_t bytes) {
    void *block;
    return HAK_LIKELY(front_pop_aligned(bytes, alignment, &block)) ? block : allocate_slow(alignment, bytes);
}

static HAK_COLD void *refuse(void) {
    errno = EINVAL;
    return NULL;
}

HAK_EXPORT void *hak_aligned_alloc(size_t alignment, size_t bytes) {
    return HAK_LIKELY(is_power_of_two(alignment)) ? allocate(alignment, bytes) : refuse();
}

HAK_EXPORT void *hak_memalign(size_t alignment, size_t bytes) {
    enum { HIGHEST_POWER = 63 };
    const size_t last = alignment <= SMALLEST_BLOCK_BYTES ? SMALLEST_BLOCK_BYTES - 1 : alignment - 1;
    return HAK_LIKELY(highest_bit(last) < HIGHEST_POWER) ? allocate((size_t)2 << highest_bit(last), bytes) : refuse();
}

static HAK_NOINLINE int posix_memalign_slow(void **result, size_t alignment, size_t bytes) {
    int saved = errno;
    void *block = allocate_slow(alignment, bytes);
    errno = saved;
    if (block == NULL) return ENOMEM;
    *result = block;
    return 0;
}

HAK_EXPORT int hak_posix_memalign(void **result, size_t alignment, size_t bytes) {
    void *block;
    if (HAK_UNLIKELY(!is_power_of_two(alignment) || alignment % sizeof(void *) != 0)) return EINVAL;
    if (HAK_UNLIKELY(!front_pop_aligned(bytes, alignment, &block))) return posix_memalign_slow(result, alignment, bytes);
    *result = block;
    return 0;
}

HAK_EXPORT size_t hak_memalignment(const void *pointer) {
    return (uintptr_t)pointer & -(uintptr_t)pointer;
}

HAK_EXPORT void *hak_valloc(size_t bytes) { return hak_aligned_alloc(os_page_bytes(), bytes); }

/* The same: a block that is aligned to a page is as long as whole pages. */
HAK_EXPORT void *hak_pvalloc(size_t bytes) HAK_ALIAS(hak_valloc);

HAK_LIBC_NAME(size_t, memalignment, (const void *pointer), hak_memalignment)
HAK_LIBC_NAME(void *, valloc, (size_t bytes), hak_valloc)
HAK_LIBC_NAME(void *, pvalloc, (size_t bytes), hak_pvalloc)
HAK_LIBC_NAME(void *, aligned_alloc, (size_t alignment, size_t bytes), hak_aligned_alloc)
HAK_LIBC_NAME(void *, memalign, (size_t alignment, size_t bytes), hak_memalign)
HAK_LIBC_NAME(int, posix_memalign, (void **result, size_t alignment, size_t bytes), hak_posix_memalign)
