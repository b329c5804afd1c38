/* group_root.h - a root of the calling process's own, with the files of a control group in it that a test writes. In a child. */
#ifndef HAK_TESTS_GROUP_ROOT_H
#define HAK_TESTS_GROUP_ROOT_H

#include "child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>

#define GROUP_ROOT "/tmp/hakmem-pressure-XXXXXX"
static char group_root[sizeof GROUP_ROOT];
static int group_root_before;

static void put(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
}

#define GROUP "/sys/fs/cgroup/"

/* Everything of "memory.NAME" that matters to pressure. */
static void put_group(const char *limit, const char *high, const char *used, const char *stalled) {
    char text[100];
    put(GROUP "memory.max", limit);
    put(GROUP "memory.high", high);
    snprintf(text, sizeof text, "some avg10=%s avg60=0.00 avg300=0.00 total=5\n", stalled);
    put(GROUP "memory.pressure", text);
    put(GROUP "memory.current", used);
    put(GROUP "memory.stat", "anon 5\n");
}

static bool enter_root(void) {
    static const char *const folders[] = {"/proc", "/proc/self", "/sys", "/sys/fs", "/sys/fs/cgroup"};
    group_root_before = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if ((chroot(group_root) != 0 && (unshare(CLONE_NEWUSER) != 0 || chroot(group_root) != 0)) || chdir("/") != 0) return false;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) mkdir(folders[i], 0700);
    put("/proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/proc/self/cgroup", "0::/\n");
    put_group("max", "max", "1000", "0.00");
    return true;
}

/* Where a build that counts writes what it counted. */
static void leave_root(void) { CHECK(fchdir(group_root_before) == 0 && chroot(".") == 0); }

/* As IN_CHILD, with a folder for its root. */
static void in_child_with_root(void (*body)(void)) {
    char command[100];
    strcpy(group_root, GROUP_ROOT);
    CHECK(mkdtemp(group_root) != NULL);
    int status = child_status(body, CHILD_SECONDS);
    snprintf(command, sizeof command, "rm -r '%s'", group_root);
    CHECK_EQ(system(command), 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_NOT_RUN) check_leave(CHECK_SKIPPED);
    CHECK_EQ(status, 0);
}

#endif
