/* file.c - files, for reports and profiles; nothing is read at start unless somebody asks. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

long os_read_file(const char *path, char *text, size_t bytes) {
    int saved = errno, fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = fd < 0 ? -1 : 1;
    while (got > 0 && length < bytes - 1) {
        got = read(fd, text + length, bytes - 1 - length);
        if (got < 0 && errno == EINTR) got = 1;
        else if (got > 0) length += (size_t)got;
    }
    text[length] = '\0';
    if (fd >= 0) close(fd);
    errno = saved;
    return got < 0 && length == 0 ? -1 : (long)length;
}

/* What is there already and is no regular file is written to: a pipe, and a link such as /dev/stderr, whatever it leads to. Of
 * anything else a new file takes the place once it is whole. */
bool os_file_create(struct os_file *file, const char *path) {
    struct stat there;
    file->path = path;
    if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        file->temporary[0] = '\0';
        file->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY);
        return file->fd >= 0;
    }
    int length = snprintf(file->temporary, sizeof file->temporary, "%s.%u.tmp", path, os_thread_id());
    if (length < 0 || (size_t)length >= sizeof file->temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    /* Never what is there already: in a folder that others write to it may be their link to a file of ours. */
    enum { FLAGS = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC };
    file->fd = open(file->temporary, FLAGS, 0644);
    if (file->fd < 0 && errno == EEXIST && unlink(file->temporary) == 0) file->fd = open(file->temporary, FLAGS, 0644);
    return file->fd >= 0;
}

bool os_file_finish(struct os_file *file, bool written) {
    bool done = close(file->fd) == 0 && written;
    if (file->temporary[0] == '\0') return done;
    if (done && rename(file->temporary, file->path) == 0) return true;
    int saved = errno;
    unlink(file->temporary);
    errno = saved;
    return false;
}

/* After a handler that returns a fault happens again, for ever, or what was to end goes on. */
static bool is_fault(int number) {
    static const int faults[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        if (number == faults[i]) return true;
    return false;
}

bool os_on_signal(int number, void (*handler)(int number)) {
    if (is_fault(number)) return false;
    struct sigaction before, action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    if (sigaction(number, NULL, &before) != 0 || before.sa_handler != SIG_DFL) return false;
    return sigaction(number, &action, NULL) == 0;
}

_Noreturn void os_exit(int status) {
    for (;;) syscall(SYS_exit_group, status);
}
