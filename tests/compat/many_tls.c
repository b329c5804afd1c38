/* many_tls.c - a program opens 70 plugins with thread-local storage, and in the middle of that much is to be returned.
 *
 * glibc's loader lengthens its list of such libraries at about the 63rd, and calls malloc to do so. A thread that is started by
 * that malloc reads the list as it must not be: "_dl_allocate_tls_init: Assertion".
 *
 * Planted defect that it catches: tests/defects/loaders_malloc_starts_a_thread.toml.
 */
#include "beside.h" /* first: it says _GNU_SOURCE */
#include "child.h"

#include <pthread.h>

enum { PLUGINS = 70, FIRST = 61, LAST = 65, TICKS = 4 };

static char plugin_path[PATH_MAX];
static int plugin_before, blocks_before;

/* Beside another thread a megabyte is worth a thread. */
static void *wait_for_ever(void *unused) {
    free(malloc(100));
    for (;;) pause();
    return unused;
}

/* It begins to be worth a thread where none may be started, as in a signal handler. */
static void leave_much(void) {
    enum { BYTES = 8 << 20 };
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    char *block = malloc(BYTES);
    CHECK(block != NULL);
    memset(block, 1, BYTES);
    free(block);
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
}

/* Hakmem looks at each fourth call that does not find a block at hand: which one that is depends on the blocks before. */
static void open_plugins(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_ever, NULL), 0);
    usleep(2000);
    for (int i = 0; i < blocks_before; i++) CHECK(malloc(3000000) != NULL);
    for (int i = 1; i <= PLUGINS; i++) {
        if (i == plugin_before) leave_much();
        void *plugin = open_copy(plugin_path, i);
        CHECK(plugin != NULL);
    }
}

TEST(memory_to_be_returned_while_libraries_are_opened) {
    path_beside(plugin_path, "compat", "thread_local_plugin.so");
    for (plugin_before = FIRST; plugin_before <= LAST; plugin_before++)
        for (blocks_before = 0; blocks_before < TICKS; blocks_before++) IN_CHILD(open_plugins);
}
