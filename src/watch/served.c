/* served.c - who owns malloc in this process, told to the launcher. */
#include "watch/served.h"

#include "os/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

/* Weak: a static program has no dynamic linker to ask, and should not be made to link one. */
#pragma weak dlsym
#pragma weak dladdr

/* The object that `malloc` means in this process; NULL when it is this one. */
static const char *other_owner(Dl_info *owner) {
    Dl_info self;
    if (dlsym == NULL || dladdr == NULL) return NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "malloc");
    if (symbol == NULL || dladdr(symbol, owner) == 0) return "an object without a name";
    if (dladdr((void *)(size_t)served_report, &self) == 0 || self.dli_fbase == owner->dli_fbase) return NULL;
    return owner->dli_fname;
}

void served_report(void) {
    const char *path = os_variable("HAKMEM_PROOF");
    if (path == NULL || *path == '\0') return;
    int saved = errno;
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd >= 0) {
        Dl_info owner;
        const char *other = other_owner(&owner);
        char line[4200];
        int length = other == NULL ? snprintf(line, sizeof line, "%ld served\n", (long)getpid())
                                   : snprintf(line, sizeof line, "%ld other %s\n", (long)getpid(), other);
        /* One write: lines of several processes do not mix. A failure is what the launcher will report. */
        if (length > 0 && (size_t)length < sizeof line) (void)!write(fd, line, (size_t)length);
        close(fd);
    }
    errno = saved;
}
