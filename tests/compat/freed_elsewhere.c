/* freed_elsewhere.c - blocks that another thread frees while a child shares their pages: the pages stay shared, since nothing
 * is written to them, but by a child that has threads of its own.
 *
 * Planted defects it was seen to catch: tests/defects/children_are_not_expected.toml, children_with_threads_never_write.toml.
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

static void fill_all(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(BYTES)) != NULL);
        memset(blocks[i], 'x', BYTES);
    }
}

/* Pages that are copied while another thread frees all. */
static long copied_by_another(void) {
    pthread_t thread;
    const long before = faults();
    CHECK_EQ(pthread_create(&thread, NULL, free_all, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    return faults() - before;
}

static long pages(void) { return BLOCKS * (long)BYTES / sysconf(_SC_PAGESIZE); }

TEST(a_child_keeps_its_pages) {
    int end[2];
    char none;
    fill_all();
    CHECK_EQ(pipe(end), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(end[1]);
        _exit(read(end[0], &none, 1) == 0 ? 0 : 1); /* until the parent is done */
    }
    const long copied = copied_by_another();
    CHECK_AT(copied < pages() / 4, (size_t)copied);
    CHECK_EQ(close(end[1]), 0);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* Then it is as in a process that never forked. */
TEST(a_child_with_threads_writes_again) {
    fill_all();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(copied_by_another() >= pages() / 2 ? 0 : 1);
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}
