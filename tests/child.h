/* child.h - what a test does in a forked child, because it would disturb this process or because it ends. */
#ifndef HAK_TESTS_CHILD_H
#define HAK_TESTS_CHILD_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <sys/wait.h>

enum { CHILD_SECONDS = CHECK_SHADOWED ? 300 : 60 };

CHECK_UNUSED static int child_status_now(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    return status;
}

/* Runs BODY in a child that exits 0 after it, 1 when a check failed, 77 when it skipped, and dies by SIGALRM after SECONDS.
 * Returns its status as waitpid tells it. */
CHECK_UNUSED static int child_status(void (*body)(void), unsigned seconds) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(seconds);
        body();
        _exit(0);
    }
    return child_status_now(child);
}

/* A macro, so that a failure names the line of the test. What the child skips is skipped. */
#define IN_CHILD(body)                                                                                       \
    do {                                                                                                     \
        int check_status = child_status(body, CHILD_SECONDS);                                                \
        if (WIFEXITED(check_status) && WEXITSTATUS(check_status) == CHECK_NOT_RUN) check_leave(CHECK_SKIPPED); \
        CHECK_EQ(check_status, 0);                                                                           \
    } while (0)

/* This program anew, with one of its helpers. */
CHECK_UNUSED __attribute__((noreturn)) static void become_helper(const char *helper) {
    execl("/proc/self/exe", check_now.name, helper, (char *)NULL);
    _exit(127);
}

#endif
