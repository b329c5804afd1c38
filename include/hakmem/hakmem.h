/* hakmem.h - the public interface of libhakmem, a general-purpose malloc for Linux.
 *
 * Preloading libhakmem, or linking a program with it, replaces malloc, free and the rest of that family: a program needs no
 * header for that. This header declares the same functions under hak_ names, and what the standard names cannot express.
 * A build with the CMake option HAK_NO_LIBC_NAMES has the hak_ names alone, to be used beside another malloc.
 *
 * Sizes and alignments are in bytes. A block may be freed under either set of names, if the library has both.
 *
 * Errors: functions that return a block return NULL with errno set to ENOMEM (out of memory, or a size above PTRDIFF_MAX)
 * or EINVAL (invalid alignment). hak_posix_memalign returns the error instead. Success leaves errno unchanged; hak_free never
 * changes it.
 *
 * Threads: every function may be called from any thread, and a block may be freed by any thread. Calls of hak_on_soft_limit
 * must not overlap.
 *
 * Signals: malloc and free are not async-signal-safe. A handler that interrupts the program outside the allocator may use them.
 * One that interrupts the allocator does not deadlock; but if it interrupts the few instructions of a fast path, a block may be
 * handed out twice, or lost. hak_stats_write and hak_option_get may be called from any handler; in one that interrupts a change of the
 * option stats_file the latter may store parts of both paths.
 *
 * fork: the child may use every function, whatever the parent's other threads were doing. If one was setting an option, the child has
 * part of the change until it sets that option. _Fork and clone(2) skip the fork handlers: a child of theirs must not allocate if the
 * parent had other threads.
 *
 * The standard names also include cfree, mallinfo, mallinfo2, mallopt, malloc_info and malloc_stats. They differ from
 * glibc's where its heap has no counterpart: see hakmem(3).
 */
#ifndef HAKMEM_H
#define HAKMEM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAKMEM_VERSION_MAJOR 0
#define HAKMEM_VERSION_MINOR 1
#define HAKMEM_VERSION_PATCH 0

#if defined(__GNUC__)
#define HAK_API __attribute__((visibility("default")))
#else
#define HAK_API
#endif

/* A block of at least SIZE bytes, aligned to 16. SIZE 0 gives a distinct block that may be freed. */
HAK_API void *hak_malloc(size_t size);

/* A block of COUNT * SIZE bytes, all zero; ENOMEM if the product overflows. */
HAK_API void *hak_calloc(size_t count, size_t size);

/* Resizes BLOCK to SIZE bytes and returns it, or its new address if it was moved. The contents are kept up to the smaller size.
 * A NULL BLOCK: the same as hak_malloc(SIZE), also for SIZE 0. Otherwise SIZE 0 frees BLOCK and returns NULL, as in glibc.
 * On failure BLOCK is unchanged. Making a block smaller never fails. */
HAK_API void *hak_realloc(void *block, size_t size);

/* hak_realloc to COUNT * SIZE bytes; ENOMEM if the product overflows, and BLOCK is unchanged. */
HAK_API void *hak_reallocarray(void *block, size_t count, size_t size);

/* Frees BLOCK. NULL is ignored. A pointer that hakmem never returned ends the process with one line that says what it looks
 * like: immediately, or, if it points into a block of up to 1 MiB, perhaps later. So it does in hak_realloc, hak_usable_size and
 * hak_try_expand, where one that points into a block may also pass for its start. The option foreign_free can change that.
 * A double free is detected late or never. If it is detected, it ends the process with one line; until then two calls of
 * hak_malloc may return the same block. */
HAK_API void hak_free(void *block);

/* The same as in C23: the first for a block from malloc, calloc or realloc, the second for one from aligned_alloc. SIZE and
 * ALIGNMENT are those of the request. Only the checked build (HAK_CHECKED) looks at them: whether the block has SIZE bytes, and is so
 * aligned. */
HAK_API void hak_free_sized(void *block, size_t size);
HAK_API void hak_free_aligned_sized(void *block, size_t alignment, size_t size);

/* A block aligned to ALIGNMENT, a power of two; EINVAL otherwise. Any SIZE is accepted. */
HAK_API void *hak_aligned_alloc(size_t alignment, size_t size);

/* The same, but an ALIGNMENT that is not a power of two is rounded up to one, as glibc's memalign does; EINVAL if there is
 * none. */
HAK_API void *hak_memalign(size_t alignment, size_t size);

/* Stores a block aligned to ALIGNMENT (a power of two and a multiple of sizeof(void *)) in *RESULT and returns 0. Otherwise
 * it returns EINVAL or ENOMEM; *RESULT and errno are unchanged. */
HAK_API int hak_posix_memalign(void **result, size_t alignment, size_t size);

/* A block aligned to the kernel's page. hak_pvalloc also rounds SIZE up to whole pages. Both are obsolete. */
HAK_API void *hak_valloc(size_t size);
HAK_API void *hak_pvalloc(size_t size);

/* The usable size of BLOCK: at least what was requested. It stays the same until hak_try_expand or hak_realloc changes it.
 * 0 for NULL. */
HAK_API size_t hak_usable_size(const void *block);

/* The least usable size of a block that hak_malloc(SIZE) returns. A program that can use more than SIZE bytes may request this
 * many instead. 0 if no block can be that large. */
HAK_API size_t hak_good_size(size_t size);

/* Tries to make BLOCK at least SIZE bytes long without moving it. Returns its usable size, at least SIZE; on failure 0, and
 * BLOCK is unchanged. It succeeds if the usable size is SIZE or more already; it never shrinks a block. Blocks above 64 KiB can
 * grow, into free memory directly behind them; smaller ones only where they have pages of their own. Returns 0 for NULL. errno is
 * unchanged. */
HAK_API size_t hak_try_expand(void *block, size_t size);

/* C23's memalignment: the largest power of two that divides the address POINTER, which may be any pointer; 0 for NULL. */
HAK_API size_t hak_memalignment(const void *pointer);

/* Returns free memory to the kernel immediately, including the caches of all threads. A program need not call it: free memory
 * is returned after a while anyway. It takes milliseconds if there is much. The result is the number of bytes returned; it may
 * include pages that were no longer resident.
 * hak_malloc_trim does the same with the result of glibc's malloc_trim: 1 if anything was returned, 0 if not. PAD is ignored. */
HAK_API size_t hak_collect(void);
HAK_API int hak_malloc_trim(size_t pad);

/* The version of the library in use, "MAJOR.MINOR.PATCH". */
HAK_API const char *hak_version(void);

/* ---- options ---------------------------------------------------------------------------------------- */

/* A program may define this: a list of settings, as in HAKMEM_CONF. HAKMEM_CONF and HAKMEM_<NAME> variables override it.
 * If the library is preloaded, the program must export it (link with -rdynamic). */
extern const char *hakmem_conf;

/* Sets the option NAME to VALUE from now on. Both are written as in HAKMEM_CONF; hakmem(3) lists what each option accepts, and
 * which can be set at any time. Returns 0. On failure it changes nothing and returns -1 with errno:
 *   ENOENT  there is no such option
 *   EPERM   the option can only be set at the start
 *   EINVAL  VALUE is not understood or out of range
 *   EAGAIN  it was called by a signal handler that interrupted the allocator, or another call of it */
HAK_API int hak_option_set(const char *name, const char *value);

/* Stores the value of the option NAME as text in the BYTES bytes at VALUE; 1000 bytes are always enough. Returns 0, or -1 with
 * errno: ENOENT, there is no such option; ERANGE, the text does not fit. */
HAK_API int hak_option_get(const char *name, char *value, size_t bytes);

/* The source of that value: "default", "objective", "profile", "file", "program", "conf", "environment" or "api"; NULL if there is
 * no such option. */
HAK_API const char *hak_option_source(const char *name);

/* CALLBACK(CONTEXT) is called when the memory in use exceeds the option soft_limit: once per crossing, and also if the limit was
 * already exceeded when the callback was set, unless returning what threads keep brings it below again. It runs inside malloc or free, in the thread that noticed, with no lock held. It
 * may allocate, free and change errno, and should be short. A new callback replaces the previous one; NULL removes it. The
 * previous one may still be called, or running, in another thread when this returns. Calls of this function must not overlap. */
HAK_API void hak_on_soft_limit(void (*callback)(void *context), void *context);

/* ---- statistics: docs/statistics.md explains each number ---------------------------------------------- */

enum hak_stats_form {
    HAK_STATS_TEXT,       /* for people to read */
    HAK_STATS_JSON,       /* one object, as docs/statistics.schema.json describes it */
    HAK_STATS_OPENMETRICS /* OpenMetrics 1.0 text */
};

/* Writes statistics to the file descriptor FD. It takes no lock, stops no thread and allocates nothing. Each number is read
 * atomically; together they are no consistent snapshot. Returns 0, or -1 with errno: EINVAL for an unknown FORM, or the error of
 * write(2). EPIPE and EFBIG come without their signals. If FD does not block, waits up to a second each time that its reader
 * takes nothing; then EAGAIN, and a part was written. The last reader that was waited for in vain, by a message of hakmem's or
 * here, is not waited for again until it has taken something. hak_stats_print(FD) is hak_stats_write(FD, HAK_STATS_TEXT). */
HAK_API int hak_stats_write(int fd, enum hak_stats_form form);
HAK_API int hak_stats_print(int fd);

/* Resets the peak of memory in use (spans.used_pages_peak) to what is in use now, for example at the start of a new phase. */
HAK_API void hak_stats_reset_peaks(void);

#ifdef __cplusplus
}
#endif

#endif
