/* fail_calls.c - lets the k-th mmap, or another call by which an allocator reaches the kernel, fail.
 *
 * As a shared object it is preloaded before libhakmem.so:
 *
 *     LD_PRELOAD="libfail_calls.so libhakmem.so" FAIL_CALL=mmap FAIL_AT=3 FAIL_FOR=ever program
 *
 *     FAIL_CALL    mmap munmap mprotect madvise mremap pthread_create membarrier; any of these; or one that asks for no
 *                  memory: open read fstat mincore fcntl prctl getrlimit getrusage clock_gettime nanosleep futex (waiting)
 *                  rt_sigprocmask. Unset: count only
 *     FAIL_AT      which call of that kind fails, from 1
 *     FAIL_FOR     once (default) or ever: that call, or it and all later ones
 *     FAIL_ERRNO   ENOMEM (default; pthread_create: EAGAIN; those that ask for no memory: EPERM) EAGAIN EINVAL EPERM ENOSYS
 *                  EACCES
 *     FAIL_ONLY    hakmem: only calls that come from the code of libhakmem.so count and fail
 *     FAIL_REPORT  1: one line with the counts on stderr at exit
 *
 * As an object in a test program it takes the place of libc's functions there, and the test arms it
 * by fail_calls.h; the environment still holds before the first fail_arm.
 *
 * Everything here may run inside malloc and before any constructor: it allocates nothing, takes no
 * lock, and asks the kernel directly. Under a sanitizer the calls go on to its interceptors, so that
 * its shadow follows the mappings; but this file and fail_counts.c are built without -fsanitize, since the
 * sanitizer's own start calls it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fail_counts.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#undef mmap64

#ifdef __GLIBC__
typedef __rlimit_resource_t resource_name;
typedef __rusage_who_t usage_owner;
#else
typedef int resource_name, usage_owner;
#endif

/* From the kernel's futex.h, which musl's headers do not bring. */
enum { FUTEX_COMMAND = 127, FUTEX_WAITING = 0 };

typedef void *thread_body(void *);
extern void *__interceptor_mmap(void *, size_t, int, int, int, off_t) __attribute__((weak));
extern int __interceptor_munmap(void *, size_t) __attribute__((weak));
extern int __interceptor_mprotect(void *, size_t, int) __attribute__((weak));
extern int __interceptor_pthread_create(pthread_t *, const pthread_attr_t *, thread_body *, void *)
    __attribute__((weak));

static atomic_bool passes_over;

void fail_pass_over_hints(bool passed) { atomic_store(&passes_over, passed); }

/* Whether something lies within 2 MiB behind the place of BYTES bytes at HINT. */
static bool has_neighbour(const char *hint, size_t bytes) {
    enum { HUGE_BYTES = 2 << 20, LEAST_PAGE_BYTES = 4096 };
    unsigned char unused[1];
    if (bytes % HUGE_BYTES != 0) return false;
    for (size_t at = 0; at < HUGE_BYTES; at += LEAST_PAGE_BYTES)
        if (syscall(SYS_mincore, hint + bytes + at, 1, unused) == 0) return true;
    return false;
}

/* The interposed functions. */
static void *map(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    enum { FIXED = MAP_FIXED | 0x100000 }; /* MAP_FIXED_NOREPLACE */
    if (atomic_load(&passes_over) && hint != NULL && (flags & FIXED) == 0 && has_neighbour(hint, bytes)) hint = NULL;
    if (__interceptor_mmap) return __interceptor_mmap(hint, bytes, protection, flags, file, offset);
    return (void *)syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
}

void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    int error = fail_count(FAIL_MMAP, __builtin_return_address(0));
    if (error == 0) return map(hint, bytes, protection, flags, file, offset);
    errno = error;
    return MAP_FAILED;
}

/* glibc's name for the same under _FILE_OFFSET_BITS=64; musl does not declare it. */
void *mmap64(void *hint, size_t bytes, int protection, int flags, int file, off_t offset);

void *mmap64(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    int error = fail_count(FAIL_MMAP, __builtin_return_address(0));
    if (error == 0) return map(hint, bytes, protection, flags, file, offset);
    errno = error;
    return MAP_FAILED;
}

int munmap(void *address, size_t bytes) {
    int error = fail_count(FAIL_MUNMAP, __builtin_return_address(0));
    if (error == 0)
        return __interceptor_munmap ? __interceptor_munmap(address, bytes)
                                    : (int)syscall(SYS_munmap, address, bytes);
    errno = error;
    return -1;
}

int mprotect(void *address, size_t bytes, int protection) {
    int error = fail_count(FAIL_MPROTECT, __builtin_return_address(0));
    if (error == 0)
        return __interceptor_mprotect ? __interceptor_mprotect(address, bytes, protection)
                                      : (int)syscall(SYS_mprotect, address, bytes, protection);
    errno = error;
    return -1;
}

int madvise(void *address, size_t bytes, int advice) {
    int error = fail_count(FAIL_MADVISE, __builtin_return_address(0));
    if (error == 0) return (int)syscall(SYS_madvise, address, bytes, advice);
    errno = error;
    return -1;
}

void *mremap(void *address, size_t bytes, size_t new_bytes, int flags, ...) {
    int error = fail_count(FAIL_MREMAP, __builtin_return_address(0));
    if (error == 0) {
        va_list rest;
        va_start(rest, flags);
        void *target = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
        va_end(rest);
        return (void *)syscall(SYS_mremap, address, bytes, new_bytes, flags, target);
    }
    errno = error;
    return MAP_FAILED;
}

/* libc's function, in whose place syscall stands here, cannot be looked up inside malloc. */
static long call_kernel(long number, const long arguments[6]) {
#if defined __x86_64__
    long result;
    register long fourth __asm__("r10") = arguments[3], fifth __asm__("r8") = arguments[4];
    register long sixth __asm__("r9") = arguments[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(fourth), "r"(fifth),
                       "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
#elif defined __aarch64__
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = arguments[0], x1 __asm__("x1") = arguments[1];
    register long x2 __asm__("x2") = arguments[2], x3 __asm__("x3") = arguments[3];
    register long x4 __asm__("x4") = arguments[4], x5 __asm__("x5") = arguments[5];
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "how is the kernel called here?"
#endif
}

static long ask_kernel(long number, const long arguments[6]) {
    enum { LAST_ERROR = 4095 };
    long result = call_kernel(number, arguments);
    if (result >= 0 || result < -LAST_ERROR) return result;
    errno = (int)-result;
    return -1;
}

/* The calls that have no function of their own in libc, or one that is a cancellation point. */
static int count_numbered(long number, const long arguments[6], const void *caller) {
    switch (number) {
    case SYS_membarrier:
        return fail_count(FAIL_MEMBARRIER, caller);
    case SYS_futex: /* nothing can be done for a sleeper that cannot be woken */
        return (arguments[1] & FUTEX_COMMAND) == FUTEX_WAITING ? fail_count(FAIL_FUTEX, caller) : 0;
    case SYS_rt_sigprocmask:
        return fail_count(FAIL_SIGPROCMASK, caller);
    case SYS_openat:
        return fail_count(FAIL_OPEN, caller);
    case SYS_read:
        return fail_count(FAIL_READ, caller);
    case SYS_fstat:
        return fail_count(FAIL_FSTAT, caller);
    default:
        return 0;
    }
}

long syscall(long number, ...) {
    long arguments[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) arguments[i] = va_arg(rest, long); /* as libc: more than were passed, perhaps */
    va_end(rest);
    int error = count_numbered(number, arguments, __builtin_return_address(0));
    if (error == 0) return ask_kernel(number, arguments);
    errno = error;
    return -1;
}

/* What asks for no memory: KIND fails, or the kernel is asked. */
static long fail_or_ask(enum fail_kind kind, const void *caller, long number, long first, long second, long third, long fourth) {
    int error = fail_count(kind, caller);
    if (error == 0) return ask_kernel(number, (const long[6]){first, second, third, fourth});
    errno = error;
    return -1;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    long mode = flags & (O_CREAT | O_TMPFILE) ? (long)va_arg(rest, unsigned) : 0;
    va_end(rest);
    return (int)fail_or_ask(FAIL_OPEN, __builtin_return_address(0), SYS_openat, AT_FDCWD, (long)path, flags, mode);
}

ssize_t read(int file, void *bytes, size_t count) {
    return fail_or_ask(FAIL_READ, __builtin_return_address(0), SYS_read, file, (long)bytes, (long)count, 0);
}

int mincore(void *address, size_t bytes, unsigned char *resident) {
    return (int)fail_or_ask(FAIL_MINCORE, __builtin_return_address(0), SYS_mincore, (long)address, (long)bytes,
                            (long)resident, 0);
}

int fstat(int file, struct stat *stat) {
    return (int)fail_or_ask(FAIL_FSTAT, __builtin_return_address(0), SYS_fstat, file, (long)stat, 0, 0);
}

int fcntl(int file, int command, ...) {
    va_list rest;
    va_start(rest, command);
    long argument = va_arg(rest, long); /* as libc: some commands have none */
    va_end(rest);
    return (int)fail_or_ask(FAIL_FCNTL, __builtin_return_address(0), SYS_fcntl, file, command, argument, 0);
}

int prctl(int option, ...) {
    long arguments[4];
    va_list rest;
    va_start(rest, option);
    for (int i = 0; i < 4; i++) arguments[i] = va_arg(rest, long);
    va_end(rest);
    int error = fail_count(FAIL_PRCTL, __builtin_return_address(0));
    if (error == 0) return (int)syscall(SYS_prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]);
    errno = error;
    return -1;
}

/* glibc's headers name the resource by an enum, musl's by an int. */
int getrlimit(resource_name which, struct rlimit *limit) {
    return (int)fail_or_ask(FAIL_GETRLIMIT, __builtin_return_address(0), SYS_prlimit64, 0, (long)which, 0, (long)limit);
}

int getrusage(usage_owner who, struct rusage *usage) {
    return (int)fail_or_ask(FAIL_GETRUSAGE, __builtin_return_address(0), SYS_getrusage, (long)who, (long)usage, 0, 0);
}

/* Weak: a test may bring a clock of its own. */
__attribute__((weak)) int clock_gettime(clockid_t clock, struct timespec *now) {
    return (int)fail_or_ask(FAIL_CLOCK_GETTIME, __builtin_return_address(0), SYS_clock_gettime, clock, (long)now, 0, 0);
}

int nanosleep(const struct timespec *time, struct timespec *left) {
    return (int)fail_or_ask(FAIL_NANOSLEEP, __builtin_return_address(0), SYS_nanosleep, (long)time, (long)left, 0, 0);
}

typedef int create_thread(pthread_t *, const pthread_attr_t *, thread_body *, void *);

/* pthread_create is no system call. Looked up at load, when a lookup cannot be inside malloc. */
static _Atomic(create_thread *) real_create;

__attribute__((constructor)) static void find_create(void) {
    union {
        void *object;
        create_thread *function;
    } next = {.object = dlsym(RTLD_NEXT, "pthread_create")};
    atomic_store(&real_create, next.function);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_body *body, void *argument) {
    int error = fail_count(FAIL_PTHREAD_CREATE, __builtin_return_address(0));
    if (error) return error;
    if (__interceptor_pthread_create) return __interceptor_pthread_create(thread, attributes, body, argument);
    if (atomic_load(&real_create) == NULL) find_create();
    return atomic_load(&real_create)(thread, attributes, body, argument);
}
