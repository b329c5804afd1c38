/* served.c - tells the launcher which object owns malloc in this process. */
#include "watch/served.h"

#include "heap/alloc.h"
#include "os/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Weak: a static program has no dynamic linker to ask, and should not be made to link one. */
#pragma weak dlsym
#pragma weak dladdr

/* The object that `malloc` means in this process; NULL when it is this one. Decided by a block, not by the address: a program that
 * takes the address of malloc may have a stub that passes for the function. */
static const char *other_owner(Dl_info *owner) {
    if (dlsym == NULL || dladdr == NULL) return NULL;
    void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(RTLD_DEFAULT, "malloc");
    void (*release)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, "free");
    if (allocate == NULL || release == NULL) return NULL; /* no object exports them: the program contains libc, and us */
    void *block = allocate(1);
    bool own = block != NULL && heap_owns(block);
    if (block != NULL) release(block);
    if (own) return NULL;
    return dladdr((void *)(size_t)allocate, owner) == 0 ? "an object without a name" : owner->dli_fname;
}

/* The environment outlives the launcher's file, whose name lies in a folder that all may write to: what is there later may be another
 * user's FIFO or link, or another name of a file of ours. -1 unless it is a file of ours that has this name alone. */
static int open_proof(const char *path) {
    const int fd = os_open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY, 0);
    struct stat file;
    if (fd < 0) return -1;
    if (os_fstat(fd, &file) && S_ISREG(file.st_mode) && file.st_uid == os_effective_user() && file.st_nlink == 1) return fd;
    os_close(fd);
    return -1;
}

void served_report(void) {
    const char *path = os_variable("HAKMEM_PROOF");
    if (path == NULL || *path == '\0') return;
    int saved = errno;
    int fd = open_proof(path);
    if (fd >= 0) {
        Dl_info owner;
        const char *other = other_owner(&owner);
        char line[4200];
        int length = other == NULL ? snprintf(line, sizeof line, "%ld served\n", (long)getpid())
                                   : snprintf(line, sizeof line, "%ld other %s\n", (long)getpid(), other);
        /* One write: lines of several processes do not mix. A failure is what the launcher will report. */
        if (length > 0 && (size_t)length < sizeof line) os_write(fd, line, (size_t)length);
        os_close(fd);
    }
    errno = saved;
}
