/* message.c - the library's messages. Lines are composed on the stack by vsnprintf, which does not
 * allocate for the conversions named in os.h, and are written immediately. */
#include "base/bits.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, PATIENCE_MS = 1000 };

enum knowledge {
    UNKNOWN,
    ABSENT, /* there was none: what is 2 later is the program's own file */
    KNOWN,  /* it is known which file it was: all messages go there, or nowhere */
};

/* What standard error was. Written by one thread at a time, while others may have something to say. */
static struct {
    _Atomic enum knowledge knowledge;
    int copy; /* a descriptor of it; 2 where there is no other */
    bool forked_child_drops_it;
    dev_t device;
    ino_t inode;
} first;

/* acquire: pairs with know. */
static enum knowledge what_is_known(void) { return atomic_load_explicit(&first.knowledge, memory_order_acquire); }

/* release: a thread that sees that it is known sees what it was. */
static void know(enum knowledge now) { atomic_store_explicit(&first.knowledge, now, memory_order_release); }

/* Where a sandbox forbids the look nothing is known. */
static bool look(struct stat *file) {
    if (os_fstat(STDERR_FILENO, file)) return true;
    if (errno == EBADF) know(ABSENT);
    return false;
}

static void keep(const struct stat *file, int copy) {
    first.copy = copy >= 0 ? copy : STDERR_FILENO;
    first.forked_child_drops_it = copy >= 0 && S_ISCHR(file->st_mode);
    first.device = file->st_dev;
    first.inode = file->st_ino;
    know(KNOWN);
}

/* The reader of a pipe or a socket waits as long as any process has it open. So does that of a pseudo-terminal, but many programs close
 * theirs before they end: only processes that go on without exec, as daemons do, have no copy of it. */
static bool is_waited_for(const struct stat *file) { return S_ISFIFO(file->st_mode) || S_ISSOCK(file->st_mode); }

void os_message_keep(bool copied) {
    int saved = errno;
    struct stat file;
    if (look(&file))
        keep(&file, copied && !is_waited_for(&file) ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, OS_KEPT_DESCRIPTOR_MIN) : -1);
    errno = saved;
}

static bool is_file(const struct stat *file) { return file->st_dev == first.device && file->st_ino == first.inode; }

/* Not by libc's functions: a library that wraps them may have a lock of its own taken in its fork handlers. */
static long ask_kernel(long number, long one, void *two) {
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one), "S"(two) : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = one, x1 __asm__("x1") = (long)two;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
    return x0;
#else
    return syscall(number, one, two);
#endif
}

void os_message_fork_child(void) {
    struct stat file;
    if (!first.forked_child_drops_it) return;
    first.forked_child_drops_it = false;
    if (ask_kernel(SYS_fstat, first.copy, &file) == 0 && is_file(&file)) ask_kernel(SYS_close, first.copy, NULL);
    first.copy = STDERR_FILENO;
}

/* Standard error is opened to be written, or to be appended to; a file that is open for reading and writing without O_APPEND got
 * the number 2 because that was free. */
static bool is_programs_own(const struct stat *file) {
    return S_ISREG(file->st_mode) && (fcntl(STDERR_FILENO, F_GETFL) & (O_ACCMODE | O_APPEND)) == O_RDWR;
}

void os_message_keep_late(void) {
    int saved = errno;
    struct stat file;
    if (what_is_known() == UNKNOWN && look(&file)) {
        if (is_programs_own(&file)) know(ABSENT);
        else keep(&file, -1);
    }
    errno = saved;
}

static bool is_first(int fd) {
    struct stat file;
    if (!os_fstat(fd, &file)) return errno != EBADF; /* a sandbox may refuse to tell */
    return is_file(&file);
}

/* Programs that close every descriptor may have opened something else under the kept number, and under 2. */
int os_message_fd(void) {
    const enum knowledge knowledge = what_is_known();
    if (knowledge == ABSENT) return -1;
    if (knowledge == UNKNOWN) return STDERR_FILENO;
    int saved = errno, fd = -1;
    if (is_first(first.copy))
        fd = first.copy;
    else if (is_first(STDERR_FILENO))
        fd = STDERR_FILENO;
    errno = saved;
    return fd;
}

/* The file behind FD, whatever its number, which the program may use again. All are one where a sandbox does not tell. */
static uint64_t identity(int fd) {
    struct stat file = {0};
    os_fstat(fd, &file);
    return (uint64_t)file.st_ino ^ (uint64_t)file.st_dev << 48;
}

/* The file whose reader was the last to be waited for in vain, and has taken nothing since: the next message does not wait for it.
 * UINT64_MAX: none. relaxed, always: a hint. */
static _Atomic uint64_t in_vain = UINT64_MAX;

/* Waits until FD takes more: at most until *UNTIL_MS, which is set if it was 0. By number, as below. */
static bool await_room(int fd, uint64_t *until_ms) {
    const uint64_t file = identity(fd);
    errno = EAGAIN;
    if (atomic_load_explicit(&in_vain, memory_order_relaxed) == file) return false;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    const uint64_t now_ms = os_clock_ms();
    if (*until_ms == 0) *until_ms = now_ms + PATIENCE_MS;
    const uint64_t left_ms = *until_ms - min_size(now_ms, *until_ms);
    struct timespec left = {.tv_sec = (time_t)(left_ms / 1000), .tv_nsec = (long)(left_ms % 1000) * 1000000};
    const long ready = left_ms == 0 ? 0 : syscall(SYS_ppoll, &room, 1, &left, NULL, 0);
    if (ready > 0 || (ready < 0 && errno == EINTR)) return true;
    atomic_store_explicit(&in_vain, file, memory_order_relaxed);
    errno = EAGAIN;
    return false;
}

/* By number: libc's function is a cancellation point, and malloc must not be one. If FD does not block, its reader has PATIENCE_MS to
 * take something; then the rest is given up. */
static bool write_all(int fd, const char *text, size_t bytes) {
    uint64_t until_ms = 0;
    while (bytes != 0) {
        long written = syscall(SYS_write, fd, text, bytes);
        if (written < 0 && (errno == EINTR || (errno == EAGAIN && await_room(fd, &until_ms)))) continue;
        if (written == 0) errno = EIO; /* write calls it no error, but nothing will ever be taken */
        if (written <= 0) return false;
        text += written;
        bytes -= (size_t)written;
        until_ms = 0;
        const uint64_t vain = atomic_load_explicit(&in_vain, memory_order_relaxed);
        if (HAK_UNLIKELY(vain != UINT64_MAX) && vain == identity(fd)) atomic_store_explicit(&in_vain, UINT64_MAX, memory_order_relaxed);
    }
    return true;
}

static bool is_pending(int number) {
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, number) == 1;
}

/* Consumes a signal that is pending and blocked in this thread, without waiting. By number, as above. Under a filter of the program's own,
 * which may end the process for that, the signal stays as it is instead, by MASK, which is set afterwards. */
static void take_signal(int number, sigset_t *mask) {
    const uint64_t set = UINT64_C(1) << (number - 1);
    const struct timespec at_once = {0, 0};
    if (os_has_own_filter())
        sigaddset(mask, number);
    else
        syscall(SYS_rt_sigtimedwait, &set, NULL, &at_once, sizeof set);
}

/* Whether signal NUMBER was blocked BEFORE and is pending for the program: then we must not consume it. */
static bool is_waiting(const sigset_t *before, int number) { return sigismember(before, number) == 1 && is_pending(number); }

/* A program must not die of our messages because their reader is gone or its file is at its size limit. So SIGPIPE and SIGXFSZ are
 * blocked during the write and then consumed, unless one of the program's own was pending. */
bool os_write(int fd, const char *text, size_t bytes) {
    const int kept = errno;
    sigset_t ours, before;
    sigemptyset(&ours);
    sigaddset(&ours, SIGPIPE);
    sigaddset(&ours, SIGXFSZ);
    const bool blocked = pthread_sigmask(SIG_BLOCK, &ours, &before) == 0;
    const bool takes_pipe = blocked && !is_waiting(&before, SIGPIPE), takes_limit = blocked && !is_waiting(&before, SIGXFSZ);
    const bool done = write_all(fd, text, bytes);
    const int why = errno;
    if (!done && why == EPIPE && takes_pipe) take_signal(SIGPIPE, &before);
    if (!done && why == EFBIG && takes_limit) take_signal(SIGXFSZ, &before);
    if (blocked) pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = done ? kept : why;
    return done;
}

static size_t compose(char *line, size_t used, const char *format, va_list arguments) {
    int length = vsnprintf(line + used, LINE_BYTES - used, format, arguments);
    if (length < 0) return used;
    size_t end = used + (size_t)length;
    return end < LINE_BYTES ? end : LINE_BYTES - 1;
}

static void message(const char *format, va_list arguments) {
    int saved = errno;
    char line[LINE_BYTES + 1] = "hakmem: ";
    size_t end = compose(line, strlen(line), format, arguments);
    line[end] = '\n';
    os_write(os_message_fd(), line, end + 1);
    errno = saved;
}

void os_message(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    message(format, arguments);
    va_end(arguments);
}

_Noreturn void os_panic(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    message(format, arguments);
    va_end(arguments);
    abort();
}

_Noreturn void os_leave(const char *line) {
    syscall(SYS_write, STDERR_FILENO, line, strlen(line));
    for (;;) syscall(SYS_exit_group, EXIT_FAILURE);
}
