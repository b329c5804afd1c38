/* resident_test.c - how much is resident, with the kernel asked in either way, or not at all.
 *
 * Planted defects it was seen to catch:
 *   mincore is called under a filter that kills       under_a_filter_from_the_start, under_the_programs_own_filter
 *   the pages' words are read from the wrong place    under_a_filter_from_the_start
 *   a file is opened under the program's own filter   under_the_programs_own_filter
 *   half an answer counts                             where_the_kernel_does_not_say
 *   a kernel without filters passes for a filter      where_there_are_no_filters
 *   one that may not be asked for them for none       where_nobody_may_ask_for_filters
 */
#include "check.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "os/os.h"

enum { PAGES = 600, ODD_BYTES = 100 }; /* more than either way asks for at once */

static size_t page;

static bool is_touched(size_t i) { return i % 3 == 0 || i == PAGES - 1; }

/* A few pages of PAGES touched; how many is stored in *TOUCHED. */
static char *some_touched(size_t *touched) {
    page = os_page_bytes();
    char *memory = os_map(PAGES * page, page);
    CHECK(memory != NULL);
    os_avoid_huge(memory, PAGES * page);
    *touched = 0;
    for (size_t i = 0; i < PAGES; i++) {
        if (!is_touched(i)) continue;
        memory[i * page] = 'x';
        ++*touched;
    }
    return memory;
}

static void need_a_kernel_that_tells(void) {
    size_t touched;
    char *memory = some_touched(&touched);
    if (os_resident_bytes(memory, PAGES * page) == PAGES * page) SKIP("pages that were never touched are said to be there");
    os_unmap(memory, PAGES * page);
}

static void must_be_told(void) {
    size_t touched;
    char *memory = some_touched(&touched);
    errno = 4711;
    CHECK_EQ(os_resident_bytes(memory, PAGES * page), touched * page);
    CHECK_EQ(os_resident_bytes(memory, page), page);
    CHECK_EQ(os_resident_bytes(memory + page, 2 * page), 0);
    CHECK_EQ(os_resident_bytes(memory + page, 2 * page + ODD_BYTES), page);
    CHECK_EQ(os_resident_bytes(memory + (PAGES - 1) * page, ODD_BYTES), ODD_BYTES);
    CHECK_EQ(errno, 4711);
    os_unmap(memory, PAGES * page);
}

TEST(without_a_filter) {
    need_a_kernel_that_tells();
    must_be_told();
}

static void must_pass_for_all(void) {
    size_t touched;
    char *memory = some_touched(&touched);
    errno = 4711;
    CHECK_EQ(os_resident_bytes(memory, PAGES * page), PAGES * page);
    CHECK_EQ(os_resident_bytes(memory + page, ODD_BYTES), ODD_BYTES);
    CHECK_EQ(errno, 4711);
    os_unmap(memory, PAGES * page);
}

static void ask_where_there_are_none(void) {
    fail_arm(FAIL_PRCTL, 1, true, EINVAL); /* as a kernel without seccomp answers */
    os_note_filter();
    must_be_told();
    CHECK(fail_counted(FAIL_MINCORE) > 0);
}

TEST(where_there_are_no_filters) {
    need_a_kernel_that_tells();
    IN_CHILD(ask_where_there_are_none);
}

/* That is a filter's work, so mincore may end the process; and here no file can be opened, either. */
static void ask_where_nobody_may(void) {
    fail_arm(FAIL_PRCTL, 1, true, EPERM);
    os_note_filter();
    fail_arm(FAIL_OPEN, 1, true, EMFILE);
    must_pass_for_all();
    CHECK(fail_failed() > 0 && fail_counted(FAIL_MINCORE) == 0);
    fail_disarm();
}

TEST(where_nobody_may_ask_for_filters) { IN_CHILD(ask_where_nobody_may); }

/* ---- under filters -------------------------------------------------------------------------------------- */

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */

#include "sandbox.h"

static const struct sandbox_rule no_mincore[] = {{.call = SYS_mincore}};
static const struct sandbox_rule no_mincore_no_files[] = {{.call = SYS_mincore}, {.call = SYS_openat}, {.call = SYS_pread64}};
static const struct sandbox_rule no_reading[] = {{.call = SYS_pread64}};

static void need_filters(void) {
    need_a_kernel_that_tells();
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    if (access("/proc/self/pagemap", R_OK) != 0) SKIP("no /proc, or none that tells");
}

static void with_a_filter_from_the_start(void) {
    sandbox_enter(SANDBOX_RULES(no_mincore), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    os_note_filter();
    must_be_told();
}

TEST(under_a_filter_from_the_start) {
    need_filters();
    IN_CHILD(with_a_filter_from_the_start);
}

static void with_the_programs_own(void) {
    os_note_filter();
    sandbox_enter(SANDBOX_RULES(no_mincore_no_files), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    must_pass_for_all();
    sandbox_leave();
}

TEST(under_the_programs_own_filter) {
    need_filters();
    IN_CHILD(with_the_programs_own);
}

static void with_files_that_cannot_be_read(void) {
    sandbox_refuse(SANDBOX_RULES(no_reading), EPERM);
    os_note_filter();
    must_pass_for_all();
}

TEST(where_the_kernel_does_not_say) {
    need_filters();
    IN_CHILD(with_files_that_cannot_be_read);
}
#endif
