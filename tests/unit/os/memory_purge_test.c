/* memory_purge_test.c - giving memory back: with the kernel that is there, and with one that says no, or yes and does nothing. In
 * children, since what the kernel does is found out once in a process's life. The clock is the test's.
 *
 * Planted defects it was seen to catch:
 *   an emulator's yes to MADV_DONTNEED believed  an_emulator_that_keeps_the_data
 *   what was refused for a while is given up     a_probe_that_is_refused
 *   each range has a probe of its own refused    a_probe_that_is_refused
 *   a range that is refused costs a probe        ranges_that_are_refused
 */
#include "blocks.h"
#include "child.h"
#include "clock.h"
#include "os/os.h"
#include "os_counts.h"
#include "stubborn.h"

enum { SECOND_MS = 1000 };

static size_t page;

static void purge_a_part(void) {
    page = os_page_bytes();
    char *memory = os_map(4 * page, page);
    memset(memory, 'x', 4 * page);
    uint64_t before = counted(&os_counters.purged_bytes);
    CHECK(os_purge(memory + page, 2 * page));
    CHECK_EQ(counted(&os_counters.purged_bytes), before + 2 * page);
    CHECK_EQ(memory[0], 'x');
    CHECK(block_is_zero(memory + page, 2 * page));
    CHECK_EQ(memory[3 * page], 'x');
}

TEST(purge_gives_zeroes) { IN_CHILD(purge_a_part); }

static void be_refused(void) {
    page = os_page_bytes();
    char *memory = os_map(page, page);
    *memory = 'y';
    uint64_t before = counted(&os_counters.purged_bytes), maps = calls_of(OS_CALL_MMAP);
    madvise_answer = REFUSE;
    errno = 4711;
    for (int i = 0; i < 20; i++) CHECK(!os_purge(memory, page));
    CHECK(!os_prefer_huge(memory, page));
    madvise_answer = ASK_THE_KERNEL;
    CHECK_EQ(errno, 4711);
    CHECK_EQ(*memory, 'y');
    CHECK_EQ(counted(&os_counters.purged_bytes), before);
    CHECK_EQ(calls_of(OS_CALL_MMAP), maps);
    CHECK(os_purge(memory, page)); /* at once */
    CHECK_EQ(*memory, 0);
}

TEST(ranges_that_are_refused) {
    NEED_A_STUBBORN_KERNEL();
    IN_CHILD(be_refused);
}

/* The range goes back, but nobody knows that it is zero, while there is no page to try it on. */
static void be_refused_probes(void) {
    page = os_page_bytes();
    char *memory = os_map(page, page);
    uint64_t maps = calls_of(OS_CALL_MMAP);
    mmap_answer = REFUSE;
    errno = 4711;
    for (uint64_t second = 1; second <= 20; second++) {
        for (int i = 0; i < 5; i++) CHECK_AT(!os_purge(memory, page), second);
        CHECK_EQ(calls_of(OS_CALL_MMAP), maps + second);
        clock_pass(SECOND_MS);
    }
    CHECK(!os_purge(memory, page));
    mmap_answer = ASK_THE_KERNEL;
    CHECK(!os_purge(memory, page)); /* was refused just now */
    clock_pass(SECOND_MS);
    *memory = 'x';
    CHECK(os_purge(memory, page));
    CHECK_EQ(*memory, 0);
    maps = calls_of(OS_CALL_MMAP);
    CHECK(os_purge(memory, page));
    CHECK_EQ(calls_of(OS_CALL_MMAP), maps); /* it is known now */
    CHECK_EQ(errno, 4711);
}

TEST(a_probe_that_is_refused) {
    NEED_A_STUBBORN_KERNEL();
    IN_CHILD(be_refused_probes);
}

static void keep_the_data(void) {
    page = os_page_bytes();
    char *memory = os_map(page, page);
    madvise_answer = PRETEND;
    *memory = 'x';
    CHECK(!os_purge(memory, page));
    clock_pass(SECOND_MS);
    CHECK(!os_purge(memory, page));
    CHECK_EQ(*memory, 'x');
}

TEST(an_emulator_that_keeps_the_data) {
    NEED_A_STUBBORN_KERNEL();
    IN_CHILD(keep_the_data);
}
