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

static int open_lowest(const char *path, int flags, unsigned mode) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode); }

/* What is 0 to 2 is standard input, output or error to the program, whatever file it is: another thread would print into it. So what is
 * free of these is taken, while a file is opened, by a descriptor that can be neither read nor written. */
int os_open(const char *path, int flags, unsigned mode) {
    const int saved = errno, plug = open_lowest("/", O_PATH | O_CLOEXEC, 0);
    const bool is_low = plug >= 0 && plug <= STDERR_FILENO;
    errno = saved;
    if (plug >= 0 && !is_low) os_close(plug);
    const int fd = is_low ? os_open(path, flags, mode) : open_lowest(path, flags, mode), why = errno;
    if (is_low) os_close(plug);
    errno = why;
    return fd;
}

static long read_next(int fd, void *bytes, size_t count) { return syscall(SYS_read, fd, bytes, count); }

long os_read_at(int fd, void *bytes, size_t count, size_t offset) { return syscall(SYS_pread64, fd, bytes, count, (off_t)offset); }

bool os_close(int fd) { return syscall(SYS_close, fd) == 0; }

bool os_fstat(int fd, struct stat *file) { return syscall(SYS_fstat, fd, file) == 0; }

unsigned os_effective_user(void) { return (unsigned)syscall(SYS_geteuid); }

long os_read_file(const char *path, char *text, size_t bytes) {
    int saved = errno, fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);
    size_t length = 0;
    long got = fd < 0 ? -1 : 1;
    while (got > 0 && length < bytes - 1) {
        got = read_next(fd, text + length, bytes - 1 - length);
        if (got < 0 && errno == EINTR) got = 1;
        else if (got > 0) length += (size_t)got;
    }
    text[length] = '\0';
    if (fd >= 0) os_close(fd);
    errno = saved;
    return got < 0 && length == 0 ? -1 : (long)length;
}

bool os_lines_open(struct os_lines *lines, const char *path) {
    lines->fd = os_open(path, O_RDONLY | O_CLOEXEC, 0);
    lines->used = lines->length = 0;
    return lines->fd >= 0;
}

bool os_lines_next(struct os_lines *lines, char *line, size_t bytes) {
    for (size_t length = 0;; lines->used++) {
        if (lines->used == lines->length) {
            const long got = read_next(lines->fd, lines->piece, sizeof lines->piece);
            if (got <= 0) return false;
            lines->used = 0;
            lines->length = (size_t)got;
        }
        const char next = lines->piece[lines->used];
        if (next != '\n' && length == bytes - 1) continue;
        line[length++] = next == '\n' ? '\0' : next;
        if (next != '\n') continue;
        lines->used++;
        return true;
    }
}

void os_lines_close(struct os_lines *lines) { os_close(lines->fd); }

/* In a folder that all users may write to, anybody can create a link or a FIFO. Only those of this user or root are followed or waited for. */
static bool is_trusted(const struct stat *file) { return file->st_uid == 0 || file->st_uid == os_effective_user(); }

/* Replaces the path of a link in AT by that of its target; false with errno. */
static bool follow_link(char *at, size_t bytes) {
    char next[1024];
    const ssize_t length = readlink(at, next, sizeof next);
    if (length < 0) return false;
    const char *folder_end = next[0] == '/' ? NULL : strrchr(at, '/');
    const size_t kept = folder_end == NULL ? 0 : (size_t)(folder_end + 1 - at);
    errno = ENAMETOOLONG;
    if (kept + (size_t)length >= bytes) return false;
    memcpy(at + kept, next, (size_t)length);
    at[kept + (size_t)length] = '\0';
    return true;
}

/* What is opened when PATH is written to. */
struct way {
    char at[1024];
    int links;          /* that led there */
    bool to_descriptor; /* it is a link of the kernel's to an open file, like the one /dev/stderr leads to: others write to that file, too */
};

/* False with errno: links of other users are not followed. */
static bool find_way(const char *path, struct way *way) {
    enum { MOST_LINKS = 40 }; /* as many as the kernel follows */
    struct stat kernels, link;
    const bool has_proc = lstat("/proc/self", &kernels) == 0;
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof way->at) return false;
    strcpy(way->at, path);
    way->to_descriptor = false;
    for (way->links = 0; lstat(way->at, &link) == 0 && S_ISLNK(link.st_mode); way->links++) {
        way->to_descriptor = has_proc && link.st_dev == kernels.st_dev;
        if (way->to_descriptor) return true;
        errno = way->links == MOST_LINKS ? ELOOP : EACCES;
        if (way->links == MOST_LINKS || !is_trusted(&link) || !follow_link(way->at, sizeof way->at)) return false;
    }
    return true;
}

/* A regular file only if a link led to it: any other appeared after the path was looked at. Only root can create devices. */
static bool may_be_written(int fd, bool linked) {
    struct stat file;
    if (!os_fstat(fd, &file)) return false;
    return S_ISREG(file.st_mode) ? linked : !S_ISFIFO(file.st_mode) || is_trusted(&file);
}

/* Opens what is there already and is no regular file. A FIFO without a reader is refused, not waited for. The target of a link is rewritten
 * in place. Links were followed by find_way: one that somebody creates meanwhile is not followed. */
static int open_in_place(const char *path) {
    struct way way;
    if (!find_way(path, &way)) return -1;
    const int how = way.links != 0 && !way.to_descriptor ? O_CREAT | O_TRUNC : O_APPEND;
    const int follow = way.to_descriptor ? 0 : O_NOFOLLOW;
    const int fd = os_open(way.at, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | follow | how, 0644);
    if (fd >= 0 && !way.to_descriptor && !may_be_written(fd, way.links != 0)) {
        os_close(fd);
        errno = EACCES;
        return -1;
    }
    if (fd >= 0) fcntl(fd, F_SETFL, how & O_APPEND); /* a slow reader is waited for */
    return fd;
}

/* A regular file is replaced by a new one once that is complete; with the permissions of the old, unless another user set them. */
bool os_file_create(struct os_file *file, const char *path) {
    struct stat there;
    const bool exists = lstat(path, &there) == 0;
    file->path = path;
    if (exists && !S_ISREG(there.st_mode)) {
        file->temporary[0] = '\0';
        file->fd = open_in_place(path);
        return file->fd >= 0;
    }
    int length = snprintf(file->temporary, sizeof file->temporary, "%s.%u.tmp", path, os_thread_id());
    if (length < 0 || (size_t)length >= sizeof file->temporary) {
        errno = ENAMETOOLONG;
        return false;
    }
    /* Never an existing file: in a folder that others may write to, it may be their link to a file of ours. */
    enum { FLAGS = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC };
    const bool kept = exists && is_trusted(&there);
    const mode_t mode = kept ? there.st_mode & 0777 : 0644;
    file->fd = os_open(file->temporary, FLAGS, mode);
    if (file->fd < 0 && errno == EEXIST && unlink(file->temporary) == 0) file->fd = os_open(file->temporary, FLAGS, mode);
    if (file->fd >= 0 && kept) fchmod(file->fd, mode); /* despite the umask; a file system that cannot do it has no permissions */
    return file->fd >= 0;
}

bool os_file_finish(struct os_file *file, bool written) {
    bool done = os_close(file->fd) && written;
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
