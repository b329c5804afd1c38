/* libc.c - the functions of libc that the simulator must know of, for the allocator: hidden, so that its calls come here.
 * Accesses of the rest of libc, and of the kernel, are not seen. */
#include "sharing.h"

#include "base/attributes.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* hooks.c */
void *explore_memcpy(void *to, const void *from, size_t bytes);
void *explore_memset(void *to, int value, size_t bytes);

HAK_HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t bytes) {
    return explore_memcpy(to, from, bytes);
}
HAK_HIDDEN void *memmove(void *to, const void *from, size_t bytes) { return explore_memcpy(to, from, bytes); }
HAK_HIDDEN void *memset(void *to, int value, size_t bytes) { return explore_memset(to, value, bytes); }

HAK_HIDDEN long syscall(long number, ...) {
    va_list list;
    long value[6];
    va_start(list, number);
    /* As libc's does: what was not given is read, but not used. */
    for (unsigned i = 0; i < 6; i++) value[i] = va_arg(list, long);
    va_end(list);
    return sharing_syscall(number, value[0], value[1], value[2], value[3], value[4], value[5]);
}

HAK_HIDDEN int clock_gettime(clockid_t clock, struct timespec *time) {
    (void)clock;
    uint64_t ns = sharing_clock_ns();
    *time = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}

HAK_HIDDEN int nanosleep(const struct timespec *time, struct timespec *left) {
    (void)left;
    sharing_sleep((uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec);
    return 0;
}

HAK_HIDDEN int sched_yield(void) {
    sharing_yield();
    return 0;
}

/* The allocator only names mappings and its thread by it, and all fibres are one thread of the kernel: refused. */
HAK_HIDDEN int prctl(int option, ...) {
    (void)option;
    errno = EINVAL;
    return -1;
}

HAK_HIDDEN int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                              void *(*body)(void *), void *argument) {
    (void)thread, (void)attributes;
    return sharing_thread(body, argument) ? 0 : EAGAIN;
}

HAK_HIDDEN int pthread_key_create(pthread_key_t *key, void (*destroy)(void *)) {
    int number = sharing_key(destroy);
    if (number < 0) return EAGAIN;
    *key = (pthread_key_t)number;
    return 0;
}

HAK_HIDDEN void *pthread_getspecific(pthread_key_t key) { return sharing_value(key); }

HAK_HIDDEN int pthread_setspecific(pthread_key_t key, const void *value) {
    sharing_value_set(key, (uintptr_t)value);
    return 0;
}
