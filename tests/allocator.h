/* allocator.h - the names that the tests call the allocator by.
 *
 * Normally those of hakmem.h. With -DTEST_AGAINST_LIBC the same tests call the standard names: on
 * glibc alone, to check the tests themselves; under LD_PRELOAD, to test libhakmem.so in the place
 * where programs use it, which each of them then proves. What glibc does differently stands under #ifndef TEST_AGAINST_LIBC.
 */
#ifndef HAK_TESTS_ALLOCATOR_H
#define HAK_TESTS_ALLOCATOR_H

#ifdef TEST_AGAINST_LIBC

#include "preload/served.h" /* before it means something else by the names below */

#include <malloc.h>
#include <stdlib.h>

#define hak_malloc malloc
#define hak_calloc calloc
#define hak_realloc realloc
#define hak_reallocarray reallocarray
#define hak_free free
#define hak_aligned_alloc aligned_alloc
#define hak_memalign memalign
#define hak_posix_memalign posix_memalign
#define hak_malloc_trim malloc_trim
#define hak_usable_size(block) malloc_usable_size((void *)(uintptr_t)(block))

#else

#include <hakmem/hakmem.h>

#endif
#endif
