/* first_thread_test.c - what the kernel says of a process whose first thread has ended by pthread_exit: nothing of its memory in
 * /proc/self, all in /proc/thread-self.
 *
 * Planted defects it was seen to catch:
 *   the process's own folder is asked alone      all
 */
#include "blocks.h" /* first: it says _GNU_SOURCE */

#include "child.h"
#include "os/os.h"

#include <fcntl.h>
#include <pthread.h>

static void (*to_be_done)(void);

static bool is_first_there(void) {
    char beginning;
    const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    const bool there = file >= 0 && read(file, &beginning, 1) == 1;
    if (file >= 0) close(file);
    return there;
}

static void *outlive(void *unused) {
    if (access("/proc/thread-self/maps", R_OK) != 0) SKIP("no /proc, or none of threads");
    while (is_first_there()) usleep(1000);
    to_be_done();
    _exit(0);
    return unused;
}

static void leave_it_to_another(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, outlive, NULL), 0);
    pthread_exit(NULL);
}

#define AFTER_THE_FIRST(body)          \
    do {                               \
        to_be_done = (body);           \
        IN_CHILD(leave_it_to_another); \
    } while (0)

static void read_usage(void) {
    struct os_usage usage;
    os_usage_read(&usage);
    CHECK(usage.rss_bytes >= KIB(64) && usage.peak_rss_bytes >= usage.rss_bytes);
}

TEST(resident_memory_is_seen) { AFTER_THE_FIRST(read_usage); }

static void find_mappings(void) {
    struct os_mapping mapping;
    CHECK(os_find_mapping(&to_be_done, &mapping));
    CHECK(strstr(mapping.name, "first_thread_test") != NULL);
    CHECK(os_count_mappings() >= 5);
}

TEST(mappings_are_seen) { AFTER_THE_FIRST(find_mappings); }

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */

#include "sandbox.h"

static const struct sandbox_rule no_mincore[] = {{.call = SYS_mincore}};

static void ask_under_a_filter(void) {
    const size_t page = os_page_bytes();
    sandbox_enter(SANDBOX_RULES(no_mincore), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    os_note_filter();
    char *memory = os_map(2 * page, page);
    CHECK(memory != NULL);
    memory[0] = 'x';
    CHECK_EQ(os_resident_bytes(memory, 2 * page), page);
}

TEST(what_is_resident_is_told_under_a_filter) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    AFTER_THE_FIRST(ask_under_a_filter);
}

#endif
