/* spawn.c - children by vfork and exec, posix_spawn, system and popen, from a threaded process; each
 * child is this program again, and says by its status whether hakmem serves it too.
 *
 * Planted defect it was seen to catch: an allocator that copies the environment into a buffer of
 * 64 KiB at its start.
 */
#include "served.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static char self[4096];

static void wait_for(pid_t child) {
    int status = -1;
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
}

HELPER(be_a_child) {
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    for (size_t size = 1; size < 1000000; size *= 2) {
        void *block = malloc(size);
        CHECK(block != NULL);
        memset(block, 1, size);
        free(block);
    }
}

static volatile int stop;

static void *keep_busy(void *unused) {
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (size_t size = 16; size < 300000; size *= 2) free(malloc(size));
    return unused;
}

static void spawn_all_ways(int rounds) {
    char *arguments[] = {self, (char *)(uintptr_t) "be_a_child", NULL};
    char command[5000];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) SKIP("no /proc");
    self[length] = '\0';
    snprintf(command, sizeof command, "'%s' be_a_child", self);
    for (int round = 0; round < rounds; round++) {
        pid_t child = vfork();
        if (child == 0) {
            execv(self, arguments);
            _exit(127);
        }
        wait_for(child);
        CHECK_EQ(posix_spawn(&child, self, NULL, NULL, arguments, environ), 0);
        wait_for(child);
#ifdef __GLIBC__ /* the shell has glibc, and would be handed another's preload */
        CHECK_EQ(system(command), 0);
        FILE *from_child = popen(command, "r");
        CHECK(from_child != NULL);
        CHECK_EQ(pclose(from_child), 0);
#endif
    }
}

TEST(from_a_quiet_process) { spawn_all_ways(10); }

TEST(from_a_busy_process) {
    pthread_t threads[4];
    stop = 0;
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, keep_busy, NULL), 0);
    spawn_all_ways(10);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

/* More than 1 MiB in 2200 variables, and one as long as the kernel allows, for the child to read its options from. */
TEST(with_a_huge_environment) {
    char name[32], value[500];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < 2200; i++) {
        snprintf(name, sizeof name, "HUGE_%d", i);
        CHECK_EQ(setenv(name, value, 1), 0);
    }
    static char longest[(128 << 10) - 16]; /* MAX_ARG_STRLEN, the name included */
    memset(longest, 'v', sizeof longest - 1);
    CHECK_EQ(setenv("HUGE", longest, 1), 0);
    spawn_all_ways(2);
}
