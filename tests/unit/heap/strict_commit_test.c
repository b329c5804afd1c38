/* strict_commit_test.c - what a block that moves may grow into, where the machine counts all that may be written, touched or not
 * (vm.overcommit_memory is 2). In children whose root is a folder of the test's, so that the setting is its own.
 *
 * Planted defects it was seen to catch:
 *   reserves are charged there                   where_all_is_charged_there_is_no_reserve
 *   the setting is read under the program's own filter   own_filters_meet_no_setting
 */
#include "group_root.h"

#include "blocks.h"
#include "kernel.h"
#include "span/span.h"

#include <hakmem/hakmem.h>

enum { READ_FROM_MIB = 28 }; /* in use: below it nothing is read */

static void begin(const char *setting) {
    if (!enter_root()) SKIP("this user may not have a root of its own");
    mkdir("/proc/sys", 0700);
    mkdir("/proc/sys/vm", 0700);
    put("/proc/sys/vm/overcommit_memory", setting);
}

static size_t used_mib(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.used_pages * PAGE_BYTES / MIB(1);
}

/* How much more is in use once a block of 2 MiB that cannot grow where it lies has 4 MiB, in MiB. */
static size_t more_after_a_move(void) {
    char *block = hak_malloc(MIB(2)), *behind = hak_malloc(MIB(2));
    CHECK(block != NULL && behind != NULL);
    if (behind < block) block = behind;
    const size_t before = used_mib();
    errno = 12345;
    CHECK(hak_realloc(block, MIB(4)) != NULL);
    CHECK_EQ(errno, 12345);
    return used_mib() - before;
}

static void move_under(const char *setting, bool reserves) {
    NEED_MOVES(); /* what is copied gets none */
    begin(setting);
    CHECK(more_after_a_move() > 2); /* little is in use */
    CHECK(hak_malloc(MIB(READ_FROM_MIB)) != NULL);
    CHECK_EQ(more_after_a_move() > 2, reserves);
    leave_root();
}
static void move_where_all_is_charged(void) { move_under("2\n", false); }
static void move_where_some_is_charged(void) { move_under("0\n", true); }
static void move_where_nothing_is_told(void) { move_under("", true); }

TEST(where_all_is_charged_there_is_no_reserve) {
    in_child_with_root(move_where_all_is_charged);
    in_child_with_root(move_where_some_is_charged);
    in_child_with_root(move_where_nothing_is_told);
}

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */
#include "sandbox.h"

static void move_under_a_filter(void) {
    static const struct sandbox_rule no_files[] = {{.call = SYS_openat}};
    NEED_MOVES();
    begin("2\n");
    CHECK(hak_malloc(MIB(READ_FROM_MIB)) != NULL);
    sandbox_enter(SANDBOX_RULES(no_files), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    CHECK(more_after_a_move() > 2);
    leave_root();
    sandbox_leave();
}
TEST(own_filters_meet_no_setting) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    in_child_with_root(move_under_a_filter);
}
#endif
