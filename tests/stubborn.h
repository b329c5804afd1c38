/* stubborn.h - a kernel that says no to a test of the memory primitives: mmap, munmap, mprotect, madvise and mremap are
 * interposed, and pass calls on unless told otherwise. A program includes it once. */
#ifndef HAK_TESTS_STUBBORN_H
#define HAK_TESTS_STUBBORN_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <sys/mman.h>
#include <sys/syscall.h>

enum answer { ASK_THE_KERNEL, REFUSE, PRETEND, REFUSE_LATE, REFUSE_AND_FILL, GO_ELSEWHERE };
CHECK_UNUSED static enum answer mmap_answer, munmap_answer, mprotect_answer, madvise_answer, mremap_answer;
CHECK_UNUSED static int mprotect_error = EACCES, madvise_error = EINVAL, mremap_error = EINVAL;
CHECK_UNUSED static void *filled_by_another, *mapped_elsewhere;

/* ThreadSanitizer calls some of these before it can run instrumented code: there they stay libc's, and what
 * needs a kernel that says no is skipped. */
#ifdef CHECK_TSAN
#define NEED_A_STUBBORN_KERNEL() OMIT("ThreadSanitizer needs the calls itself")
#else
#define NEED_A_STUBBORN_KERNEL() ((void)0)

/* Elsewhere: as a kernel before 4.17 answers where something lies already, since it does not know the flag. */
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

extern void *__interceptor_mmap(void *, size_t, int, int, int, off_t) __attribute__((weak));
extern int __interceptor_munmap(void *, size_t) __attribute__((weak));
extern int __interceptor_mprotect(void *, size_t, int) __attribute__((weak));

void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (mmap_answer == REFUSE) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (mmap_answer == GO_ELSEWHERE)
        return mapped_elsewhere = (void *)syscall(SYS_mmap, hint, bytes, protection, flags & ~MAP_FIXED_NOREPLACE, file, offset);
    if (__interceptor_mmap) return __interceptor_mmap(hint, bytes, protection, flags, file, offset);
    return (void *)syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
}

int munmap(void *address, size_t bytes) {
    if (munmap_answer == REFUSE) {
        errno = ENOMEM;
        return -1;
    }
    if (__interceptor_munmap) return __interceptor_munmap(address, bytes);
    return (int)syscall(SYS_munmap, address, bytes);
}

int mprotect(void *address, size_t bytes, int protection) {
    if (mprotect_answer == REFUSE) {
        errno = mprotect_error;
        return -1;
    }
    if (__interceptor_mprotect) return __interceptor_mprotect(address, bytes, protection);
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

int madvise(void *address, size_t bytes, int advice) {
    if (madvise_answer == PRETEND) return 0;
    if (madvise_answer == REFUSE) {
        errno = madvise_error;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

/* Late: as a kernel does that unmaps the destination before it finds that there is no memory. Filled: and another thread's
 * memory is there when it says so. */
void *mremap(void *from, size_t bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    if (mremap_answer == ASK_THE_KERNEL) return (void *)syscall(SYS_mremap, from, bytes, new_bytes, flags, to);
    if (mremap_answer == REFUSE_LATE || mremap_answer == REFUSE_AND_FILL) syscall(SYS_munmap, to, bytes);
    if (mremap_answer == REFUSE_AND_FILL)
        filled_by_another = mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = mremap_error;
    return MAP_FAILED;
}
#endif

/* Whether the kernel could read or write there: it says EFAULT where a program would die. */
CHECK_UNUSED static bool can_access(void *address, bool writing) {
    int ends[2];
    char byte = 0;
    CHECK_EQ(pipe(ends), 0);
    if (writing) CHECK_EQ(write(ends[1], &byte, 1), 1);
    long done = writing ? syscall(SYS_read, ends[0], address, 1) : syscall(SYS_write, ends[1], address, 1);
    close(ends[0]);
    close(ends[1]);
    return done == 1;
}
CHECK_UNUSED static bool can_read(void *address) { return can_access(address, false); }
CHECK_UNUSED static bool can_write(void *address) { return can_access(address, true); }

#endif
