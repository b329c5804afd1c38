/* usage_test.c - what the kernel says of this process.
 *
 * Planted defects it was seen to catch:
 *   KiB taken for bytes                          resident_memory_is_seen
 *   peak and present exchanged                   resident_memory_is_seen
 *   a descriptor stays open                      no_descriptor_stays_open
 *   the name keeps its line end                  the_name_of_the_program
 *   only the first 4 KiB are read                a_user_in_many_groups
 */
#include "blocks.h"
#include "child.h"
#include "os/os.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>

TEST(resident_memory_is_seen) {
    enum { BYTES = 64 << 20 };
    struct os_usage before, full, after;
    os_usage_read(&before);
    if (before.rss_bytes == 0) SKIP("/proc says nothing");
    char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    madvise(memory, BYTES, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < BYTES; i += 4096) ((volatile char *)memory)[i] = 1;
    errno = 4711;
    os_usage_read(&full);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(munmap(memory, BYTES), 0);
    os_usage_read(&after);
    /* The kernel counts per processor and adds up late: a few hundred KiB are always missing. */
    CHECK(full.rss_bytes > before.rss_bytes + BYTES - MIB(4));
    if (!CHECK_SHADOWED) CHECK(full.rss_bytes < before.rss_bytes + BYTES + MIB(4));
    CHECK(full.minor_faults >= before.minor_faults + BYTES / (size_t)sysconf(_SC_PAGESIZE));
    CHECK(full.peak_rss_bytes + MIB(4) >= full.rss_bytes);
    CHECK(after.rss_bytes < full.rss_bytes - BYTES + MIB(4));
    CHECK(after.peak_rss_bytes + MIB(4) >= full.peak_rss_bytes);
    CHECK(after.major_faults >= before.major_faults);
}

/* Whose numbers stand before those of memory. */
static void read_in_many_groups(void) {
    enum { GROUPS = 500 };
    static gid_t groups[GROUPS];
    struct os_usage usage;
    for (unsigned i = 0; i < GROUPS; i++) groups[i] = 4000000000u + i;
    if (setgroups(GROUPS, groups) != 0) SKIP("may be in no other groups");
    os_usage_read(&usage);
    if (access("/proc/self/status", R_OK) != 0) SKIP("no /proc");
    CHECK(usage.rss_bytes > KIB(64) && usage.peak_rss_bytes >= usage.rss_bytes);
}

TEST(a_user_in_many_groups) { IN_CHILD(read_in_many_groups); }

TEST(no_descriptor_stays_open) {
    int expected = dup(0), name_bytes = 16;
    CHECK(expected >= 0);
    close(expected);
    for (int i = 0; i < 10; i++) {
        struct os_usage usage;
        char name[16];
        os_usage_read(&usage);
        os_process_name(name, (size_t)name_bytes);
    }
    int found = dup(0);
    close(found);
    CHECK_EQ(found, expected);
}

TEST(the_name_of_the_program) {
    char expected[17] = {0}, name[64], little[5];
    CHECK_EQ(prctl(PR_SET_NAME, "usage of words"), 0);
    CHECK_EQ(prctl(PR_GET_NAME, expected), 0);
    memset(name, 'x', sizeof name);
    memset(little, 'x', sizeof little);
    errno = 4711;
    os_process_name(name, sizeof name);
    if (name[0] == '\0') SKIP("/proc says nothing");
    CHECK_EQ(strcmp(name, expected), 0);
    os_process_name(little, sizeof little);
    CHECK_EQ(strcmp(little, "usag"), 0);
    CHECK_EQ(errno, 4711);
}
