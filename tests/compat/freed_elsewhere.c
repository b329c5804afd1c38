/* freed_elsewhere.c - blocks that another thread frees while a child shares their pages: the pages stay shared, since nothing
 * is written to them.
 *
 * Planted defect it was seen to catch: tests/defects/children_are_not_expected.toml.
 */
#include "../preload/served.h" /* first: it says _GNU_SOURCE */
#include "blocks.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 8192, BYTES = 1024 };

static char *blocks[BLOCKS];

static long faults(void) {
    struct rusage usage;
    CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

static void *free_all(void *unused) {
    for (size_t i = 0; i < BLOCKS; i++) free(blocks[i]);
    return unused;
}

TEST(a_child_keeps_its_pages) {
    int end[2];
    char none;
    pthread_t thread;
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(BYTES)) != NULL);
        memset(blocks[i], 'x', BYTES);
    }
    CHECK_EQ(pipe(end), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(end[1]);
        _exit(read(end[0], &none, 1) == 0 ? 0 : 1); /* until the parent is done */
    }
    const long before = faults();
    CHECK_EQ(pthread_create(&thread, NULL, free_all, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    const long copied = faults() - before;
    CHECK_AT(copied < BLOCKS * (long)BYTES / sysconf(_SC_PAGESIZE) / 4, (size_t)copied);
    CHECK_EQ(close(end[1]), 0);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}
