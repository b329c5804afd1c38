/* message.c - the few words the library says. Lines are composed on the stack by vsnprintf, which
 * does not allocate for the conversions named in os.h, and written at once. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, KEPT_DESCRIPTOR_MIN = 200 };

/* Written once at start, before other threads can exist. */
static int kept_fd = -1;
static dev_t kept_device;
static ino_t kept_inode;

void os_message_keep(void) {
    int saved = errno;
    struct stat file;
    int copy = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, KEPT_DESCRIPTOR_MIN);
    if (copy >= 0 && fstat(copy, &file) == 0) {
        kept_fd = copy;
        kept_device = file.st_dev;
        kept_inode = file.st_ino;
    }
    errno = saved;
}

/* Programs that close every descriptor may have opened something else under the kept number. */
int os_message_fd(void) {
    int saved = errno;
    struct stat file;
    bool same = kept_fd >= 0 && fstat(kept_fd, &file) == 0 && file.st_dev == kept_device &&
                file.st_ino == kept_inode;
    errno = saved;
    return same ? kept_fd : STDERR_FILENO;
}

bool os_write(int fd, const char *text, size_t bytes) {
    while (bytes != 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text += written;
        bytes -= (size_t)written;
    }
    return true;
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
