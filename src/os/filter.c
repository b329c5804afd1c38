/* filter.c - whether a seccomp filter is in force, and whose. */
#include "os/os.h"

#include <errno.h>
#include <sys/prctl.h>

static bool was_filtered; /* at the start */

static bool is_filtered(void) {
    const int saved = errno, mode = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
    /* EINVAL: a kernel without seccomp. Any other error is a filter's. */
    const bool filtered = mode > 0 || (mode < 0 && errno != EINVAL);
    errno = saved;
    return filtered;
}

void os_note_filter(void) { was_filtered = is_filtered(); }

bool os_was_filtered(void) { return was_filtered; }

bool os_has_own_filter(void) { return !was_filtered && is_filtered(); }
