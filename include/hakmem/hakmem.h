/* hakmem.h - the public interface of libhakmem, a general-purpose malloc for Linux.
 *
 * Programs that are preloaded or linked with libhakmem call malloc and free as always. The same
 * functions stand here under names of their own, for programs that want hakmem beside another
 * malloc, and for what the standard names cannot express.
 *
 * Every function may be called from any thread. A block may be freed by any thread, under either
 * set of names. Sizes and alignments are in bytes.
 *
 * Failure: functions that return a block return NULL and set errno to ENOMEM (no memory, or a size
 * above PTRDIFF_MAX) or EINVAL (an alignment that is not a power of two). Success leaves errno as it
 * was; hak_free always does.
 *
 * The standard names, which a program calls without this header, also include cfree, mallinfo, mallinfo2, mallopt,
 * malloc_info and malloc_stats. They differ from glibc's where its heap has no counterpart: see hakmem(3).
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

/* A block of at least SIZE bytes, aligned to 16. SIZE 0 gives a block of its own that may be freed. */
HAK_API void *hak_malloc(size_t size);

/* A block of COUNT * SIZE bytes, all zero; ENOMEM when the product overflows. */
HAK_API void *hak_calloc(size_t count, size_t size);

/* BLOCK resized to SIZE bytes, moved if need be; the contents up to the smaller size are kept.
 * As in glibc: a NULL BLOCK allocates, SIZE 0 frees BLOCK and returns NULL. On failure BLOCK stays; making a block smaller does not fail. */
HAK_API void *hak_realloc(void *block, size_t size);

/* hak_realloc to COUNT * SIZE bytes; ENOMEM when the product overflows, and BLOCK stays. */
HAK_API void *hak_reallocarray(void *block, size_t count, size_t size);

/* Gives BLOCK back. NULL is ignored. A pointer that hakmem never returned ends the process with one
 * line that says what it looks like, as it does in hak_realloc, hak_usable_size and hak_try_expand; the option
 * foreign_free can change that. So does one that is free already, where that is noticed. */
HAK_API void hak_free(void *block);

/* The same, as C23 has them, for a block from malloc, calloc or realloc, and for one from aligned_alloc. SIZE and ALIGNMENT
 * are what was asked for; builds that check their books check them, others do not look. */
HAK_API void hak_free_sized(void *block, size_t size);
HAK_API void hak_free_aligned_sized(void *block, size_t alignment, size_t size);

/* A block aligned to ALIGNMENT, a power of two; EINVAL otherwise. Any SIZE is accepted. */
HAK_API void *hak_aligned_alloc(size_t alignment, size_t size);

/* As aligned_alloc, except that an ALIGNMENT which is not a power of two is rounded up to one, as
 * glibc's memalign does; EINVAL where there is none. */
HAK_API void *hak_memalign(size_t alignment, size_t size);

/* Stores a block aligned to ALIGNMENT (a power of two and a multiple of sizeof(void *)) in *RESULT
 * and returns 0; otherwise returns EINVAL or ENOMEM and leaves *RESULT and errno alone. */
HAK_API int hak_posix_memalign(void **result, size_t alignment, size_t size);

/* A block aligned to the kernel's page; pvalloc's is a whole number of such pages. Obsolete: for programs that
 * still call valloc and pvalloc. */
HAK_API void *hak_valloc(size_t size);
HAK_API void *hak_pvalloc(size_t size);

/* Bytes of BLOCK that may be used: at least what was asked for, and the same until hak_try_expand or
 * hak_realloc changes it. 0 for NULL. */
HAK_API size_t hak_usable_size(const void *block);

/* Bytes that may at least be used of a block that hak_malloc(SIZE) returns: whoever has a use for more than SIZE can ask for so
 * many at once. 0 when there can be no such block. */
HAK_API size_t hak_good_size(size_t size);

/* Makes BLOCK at least SIZE bytes long without moving it. Returns its usable bytes, at least SIZE; 0 when that cannot be
 * done: then BLOCK is as it was. A block whose usable size is SIZE or more always stays, and never shrinks. NULL gives 0.
 * Keeps errno. Blocks above 64 KiB can grow, as far as what lies behind them is free. */
HAK_API size_t hak_try_expand(void *block, size_t size);

/* The largest power of two that divides the address POINTER, as C23 has it; 0 for NULL. Any pointer. */
HAK_API size_t hak_memalignment(const void *pointer);

/* Gives back to the kernel, at once, everything that can be given back: the memory of free blocks of all threads, those
 * in their caches included. Never needed: memory comes back by itself after a while. Returns how many
 * bytes were given back, those included that were not resident any more; takes milliseconds when there is much.
 * hak_malloc_trim is the same under glibc's conditions: 1 if anything was given back, 0 if not; PAD is ignored. */
HAK_API size_t hak_collect(void);
HAK_API int hak_malloc_trim(size_t pad);

/* The version that is running, "MAJOR.MINOR.PATCH". */
HAK_API const char *hak_version(void);

/* ---- options ---------------------------------------------------------------------------------------- */

/* A program may define this: settings of its own, as in HAKMEM_CONF, which HAKMEM_ variables and HAKMEM_CONF win over. For a
 * library that is preloaded the program must export it (-rdynamic). */
extern const char *hakmem_conf;

/* Sets the option NAME to VALUE, both as in HAKMEM_CONF, from now on: docs/options.md says which can be set at any time, and
 * what each accepts. Returns 0, or -1 with errno: ENOENT, no such option; EPERM, it can only be set at the start; EINVAL,
 * VALUE is not understood or out of range; EAGAIN, a signal handler called it in the middle of another such call. Then nothing
 * changed. */
HAK_API int hak_option_set(const char *name, const char *value);

/* Stores the value of the option NAME as text in the BYTES bytes at VALUE. Returns 0, or -1 with errno: ENOENT, no such option;
 * ERANGE, it does not fit; 1000 bytes are always enough. */
HAK_API int hak_option_get(const char *name, char *value, size_t bytes);

/* Where that value comes from: "default", "profile", "file", "program", "conf", "environment" or "api"; NULL when there is no
 * such option. */
HAK_API const char *hak_option_source(const char *name);

/* CALLBACK(CONTEXT) is called when more memory is in use than the option soft_limit allows, or was already when it was set: once,
 * until it was less again. It runs in the thread that noticed, inside one of its calls of malloc or free, with no lock held: it
 * may allocate, free and leave any errno, and should be short. The last one set counts; NULL: none.
 * One thread at a time may set it. */
HAK_API void hak_on_soft_limit(void (*callback)(void *context), void *context);

/* ---- statistics: docs/statistics.md says what each number means -------------------------------------- */

enum hak_stats_form {
    HAK_STATS_TEXT,       /* for people */
    HAK_STATS_JSON,       /* one object, as docs/statistics.schema.json describes it */
    HAK_STATS_OPENMETRICS /* OpenMetrics 1.0 text */
};

/* Writes statistics to file descriptor FD, without a lock and without stopping other threads: each number is whole, numbers of
 * different places are of slightly different moments. Allocates nothing. Returns 0, or -1 with errno: EINVAL, no such form; or
 * of write(2), of which a broken pipe is EPIPE alone, without SIGPIPE. hak_stats_print is the same for HAK_STATS_TEXT. */
HAK_API int hak_stats_write(int fd, enum hak_stats_form form);
HAK_API int hak_stats_print(int fd);

/* What was at most in use at once is counted anew from now on, as for another phase of the program. */
HAK_API void hak_stats_reset_peaks(void);

#ifdef __cplusplus
}
#endif

#endif
