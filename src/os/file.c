/* file.c - files, for reports and profiles; none is read at start unless an option names it. */
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

/* Replaces the path of a link in AT by that of its target; false when that cannot be read or is too long. */
static bool follow_link(char *at, size_t bytes) {
    char next[256];
    const ssize_t length = readlink(at, next, sizeof next);
    if (length < 0) return false;
    const char *folder_end = next[0] == '/' ? NULL : strrchr(at, '/');
    const size_t kept = folder_end == NULL ? 0 : (size_t)(folder_end + 1 - at);
    if (kept + (size_t)length >= bytes) return false;
    memcpy(at + kept, next, (size_t)length);
    at[kept + (size_t)length] = '\0';
    return true;
}

/* Whether the link PATH is, or leads to, a link in /proc to an open descriptor, as /dev/stderr does: others write to that file, too.
 * In doubt, true. */
static bool leads_to_descriptor(const char *path) {
    enum { MOST_LINKS = 40 }; /* as many as the kernel follows */
    struct stat kernels, link;
    char at[256];
    if (lstat("/proc/self", &kernels) != 0) return false;
    if (strlen(path) >= sizeof at) return true;
    strcpy(at, path);
    for (int links = 0; links < MOST_LINKS && lstat(at, &link) == 0 && S_ISLNK(link.st_mode); links++)
        if (link.st_dev == kernels.st_dev || !follow_link(at, sizeof at)) return true;
    return false;
}

/* Opens what is there already and is no regular file. A FIFO without a reader is refused, not waited for. A link is followed by the
 * kernel, since that does not follow other users' links in folders that all may write to. So its target cannot be replaced, and is
 * rewritten in place. */
static int open_in_place(const char *path, bool is_link) {
    const int how = is_link && !leads_to_descriptor(path) ? O_CREAT | O_TRUNC : O_APPEND;
    const int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | how, 0644);
    if (fd >= 0) fcntl(fd, F_SETFL, how & O_APPEND); /* a slow reader is waited for */
    return fd;
}

/* A regular file is replaced by a new one, with the permissions of the old, once that is complete. */
bool os_file_create(struct os_file *file, const char *path) {
    struct stat there;
    const bool exists = lstat(path, &there) == 0;
    file->path = path;
    if (exists && !S_ISREG(there.st_mode)) {
        file->temporary[0] = '\0';
        file->fd = open_in_place(path, S_ISLNK(there.st_mode));
        return file->fd >= 0;
    }
    int length = snprintf(file->temporary, sizeof file->temporary, "%s.%u.tmp", path, os_thread_id());
    if (length < 0 || (size_t)length >= sizeof file->temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    /* Never an existing file: in a folder that others may write to, it may be their link to a file of ours. */
    enum { FLAGS = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC };
    const mode_t mode = exists ? there.st_mode & 0777 : 0644;
    file->fd = open(file->temporary, FLAGS, mode);
    if (file->fd < 0 && errno == EEXIST && unlink(file->temporary) == 0) file->fd = open(file->temporary, FLAGS, mode);
    if (file->fd >= 0 && exists) fchmod(file->fd, mode); /* despite the umask; a file system that cannot do it has no permissions */
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

/* After a handler of one of these returns, the fault happens again, forever, or a process that was to end goes on. */
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
