/* group_test.c - the control group, from trees of files that the test makes.
 *
 * Planted defects it was seen to catch:
 *   the limit of a group above is not seen             version_2
 *   the path outside a container is looked up inside   version_2_in_a_namespace
 *   any mount of the right type will do                mounts_of_other_groups
 *   long paths are none                                long_paths
 *   files that can be dropped count as used            version_2
 *   names of files that can be dropped count           version_2
 *   a group full of files passes for the nearest       files_make_no_limit_near
 *   the program's own file is read, or closed          files_of_the_programs_own_under_kept_numbers
 *   a position is moved                                files_of_the_programs_own_under_kept_numbers
 *   descriptors are taken and not given back           what_changes_is_read_from_files_that_stay_open
 */
#include "os/os.h"

#include "blocks.h"
#include "child.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char root[] = "/tmp/hakmem-group-XXXXXX";

/* Makes ROOT/PATH, with the folders above it. */
static void put(const char *path, const char *text) {
    char name[600];
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *slash = name + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(name, 0700);
        *slash = '/';
    }
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    close(file);
}

enum { KEPT_MIN = 200, DESCRIPTORS = 400, MOST_KEPT = 3 };

static void begin(void) {
    for (int fd = KEPT_MIN; fd < DESCRIPTORS; fd++) close(fd); /* inherited */
    strcpy(root, "/tmp/hakmem-group-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static void end(void) {
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    CHECK_EQ(system(command), 0);
}

static struct os_group group_now(void) {
    struct os_group group;
    os_group_read(root, &group);
    return group;
}

static void check_unlimited(struct os_group group) {
    CHECK(group.memory_limit_bytes == OS_UNLIMITED && group.memory_high_bytes == OS_UNLIMITED);
    CHECK(group.memory_used_bytes == OS_UNLIMITED && group.stalled == OS_UNLIMITED);
}

static void put_mounts(void) {
    put("/proc/self/mountinfo",
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
}

TEST(where_nothing_is_said_nothing_is_known) {
    begin();
    check_unlimited(group_now());
    put("/proc/self/cgroup", "");
    check_unlimited(group_now());
    put("/proc/self/cgroup", "nonsense\n:::\n0\n");
    put("/proc/self/mountinfo", "x\n- - -\n1 2 3\n");
    check_unlimited(group_now());
    put_mounts();
    put("/sys/fs/cgroup/memory.max", "1000\n");
    put("/sys/fs/cgroup/memory.current", "10\n");
    put("/proc/self/cgroup", "4:cpu,cpuacct:/\n"); /* of version 1, without a group of memory */
    check_unlimited(group_now());
    end();
}

TEST(version_2) {
    begin();
    put_mounts();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.high", "1000000\n");
    put("/sys/fs/cgroup/a/b/memory.current", "900000\n");
    put("/sys/fs/cgroup/a/b/memory.stat", "anon 5\ninactive_file 400000\nactive_file 100000\nslab_reclaimable 50000\n");
    put("/sys/fs/cgroup/a/b/memory.pressure", "some avg10=12.34 avg60=1.00 avg300=0.00 total=5\nfull avg10=99.00\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_limit_bytes, OS_UNLIMITED);
    CHECK_EQ(group.memory_high_bytes, 1000000);
    CHECK_EQ(group.memory_used_bytes, 350000); /* without files and their names */
    CHECK_EQ(group.stalled, 1234);
    /* The nearest limit counts, of all above. */
    put("/sys/fs/cgroup/a/memory.max", "950000\n");
    put("/sys/fs/cgroup/a/memory.high", "max\n");
    put("/sys/fs/cgroup/a/memory.current", "940000\n");
    group = group_now();
    CHECK_EQ(group.memory_limit_bytes, 950000);
    CHECK_EQ(group.memory_high_bytes, OS_UNLIMITED);
    CHECK_EQ(group.memory_used_bytes, 940000);
    end();
}

/* The process's first thread has ended: its files can be opened, but not read. */
TEST(what_another_thread_is_told) {
    begin();
    put_mounts();
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", "");
    put("/proc/thread-self/cgroup", "0::/a\n");
    put("/proc/thread-self/mountinfo", "30 22 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("/sys/fs/cgroup/a/memory.max", "1000000\n");
    put("/sys/fs/cgroup/a/memory.current", "900000\n");
    CHECK_EQ(group_now().memory_limit_bytes, 1000000);
    end();
}

/* The group above is full of files, which the kernel drops; the one below of memory. */
TEST(files_make_no_limit_near) {
    begin();
    put_mounts();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/memory.max", "100000000\n");
    put("/sys/fs/cgroup/a/memory.current", "100000000\n");
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 90000000\n");
    put("/sys/fs/cgroup/a/b/memory.max", "8000000\n");
    put("/sys/fs/cgroup/a/b/memory.current", "7900000\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_limit_bytes, 8000000);
    CHECK_EQ(group.memory_used_bytes, 7900000);
    end();
}

TEST(version_2_in_a_namespace) {
    begin();
    put("/proc/self/mountinfo", "30 22 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("/proc/self/cgroup", "0::/docker/x\n");
    put("/sys/fs/cgroup/memory.max", "1000\n");
    put("/sys/fs/cgroup/memory.current", "10\n");
    CHECK_EQ(group_now().memory_limit_bytes, 1000);
    put("/proc/self/cgroup", "0::/docker/x/inner\n");
    put("/sys/fs/cgroup/inner/memory.max", "500\n");
    put("/sys/fs/cgroup/inner/memory.current", "10\n");
    CHECK_EQ(group_now().memory_limit_bytes, 500);
    end();
}

/* As a container in a container has; the longer part lies outside of it, or inside. */
#define LONG_PART "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/0123456789abcdef0123456789abcdef01234567"
TEST(long_paths) {
    begin();
    put("/proc/self/mountinfo", "30 22 0:26 " LONG_PART LONG_PART LONG_PART " /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("/proc/self/cgroup", "0::" LONG_PART LONG_PART LONG_PART "\n");
    put("/sys/fs/cgroup/memory.max", "1000\n");
    put("/sys/fs/cgroup/memory.current", "10\n");
    CHECK_EQ(group_now().memory_limit_bytes, 1000);
    put("/proc/self/cgroup", "0::" LONG_PART LONG_PART LONG_PART LONG_PART LONG_PART LONG_PART "\n");
    put("/sys/fs/cgroup" LONG_PART LONG_PART LONG_PART "/memory.max", "500\n");
    put("/sys/fs/cgroup" LONG_PART LONG_PART LONG_PART "/memory.current", "10\n");
    CHECK_EQ(group_now().memory_limit_bytes, 500);
    end();
}

/* Folders of other groups may be mounted, too, before the process's own or behind it; and one whose place has too long a name. */
TEST(mounts_of_other_groups) {
    char mounts[2000], deep[1100];
    begin();
    memset(deep, 'd', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    snprintf(mounts, sizeof mounts,
             "29 22 0:26 /other /mnt/other rw - cgroup2 cgroup rw\n"
             "30 22 0:26 /own /mnt/%s rw - cgroup2 cgroup rw\n"
             "31 22 0:26 /own /mnt/own rw - cgroup2 cgroup rw\n"
             "32 22 0:26 /own2 /mnt/own2 rw - cgroup2 cgroup rw\n",
             deep);
    put("/proc/self/mountinfo", mounts);
    put("/mnt/other/memory.max", "1000\n");
    put("/mnt/other/memory.current", "10\n");
    put("/mnt/own/inner/memory.max", "2000\n");
    put("/mnt/own/inner/memory.current", "20\n");
    put("/mnt/own2/memory.max", "3000\n");
    put("/mnt/own2/memory.current", "30\n");
    put("/proc/self/cgroup", "0::/own/inner\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_limit_bytes, 2000);
    CHECK_EQ(group.memory_used_bytes, 20);
    put("/proc/self/cgroup", "0::/own2\n");
    CHECK_EQ(group_now().memory_limit_bytes, 3000);
    end();
}

TEST(version_1) {
    begin();
    put("/proc/self/mountinfo",
        "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    put("/proc/self/cgroup", "4:cpu,cpuacct:/c\n5:memory:/m\n1:name=systemd:/x\n0::/x\n");
    put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "1500000\n");
    put("/sys/fs/cgroup/memory/m/memory.stat", "inactive_file 7\ntotal_inactive_file 60000\nactive_file 7\ntotal_active_file 40000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "15000000\n");
    put("/proc/pressure/memory", "some avg10=0.07 avg60=0.00\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_limit_bytes, 2000000);
    CHECK_EQ(group.memory_used_bytes, 1400000);
    CHECK_EQ(group.memory_high_bytes, OS_UNLIMITED);
    CHECK_EQ(group.stalled, 7);
    put("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "1600000\n");
    os_group_read_again(&group);
    CHECK_EQ(group.memory_used_bytes, 1500000);
    end();
}

/* A controller is a whole word of a list; and a path that is not below what is mounted is taken as it is. */
TEST(lists_of_controllers) {
    begin();
    put("/proc/self/mountinfo",
        "32 30 0:28 / /sys/fs/cgroup/memoryless rw - cgroup cgroup rw,memoryless\n"
        "33 30 0:28 /elsewhere /sys/fs/cgroup/memory rw - cgroup cgroup rw,cpuacct,memory,pids\n");
    put("/proc/self/cgroup", "6:memoryless:/s\n5:no_memory:/s\n4:cpuacct,memory,pids:/c\n");
    put("/sys/fs/cgroup/memoryless/s/memory.limit_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memoryless/s/memory.usage_in_bytes", "10\n");
    put("/sys/fs/cgroup/memory/c/memory.limit_in_bytes", "3000\n");
    put("/sys/fs/cgroup/memory/c/memory.usage_in_bytes", "10\n");
    put("/proc/pressure/memory", "some avg10=3 avg60=0.00\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_limit_bytes, 3000);
    CHECK_EQ(group.stalled, 300);
    put("/proc/pressure/memory", "some avg10=3.5\n");
    CHECK_EQ(group_now().stalled, 350);
    end();
}

TEST(where_mounts_are_not_told) {
    begin();
    put("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/root rw\n");
    put("/proc/self/cgroup", "5:memory:/m\n");
    put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "10\n");
    CHECK_EQ(group_now().memory_limit_bytes, 1000);
    put("/proc/self/cgroup", "0::/n\n");
    put("/sys/fs/cgroup/n/memory.max", "2000\n");
    check_unlimited(group_now()); /* how much of it is used is not known */
    put("/sys/fs/cgroup/n/memory.current", "10\n");
    CHECK_EQ(group_now().memory_limit_bytes, 2000);
    end();
}

/* Whatever stands in the files: nothing but numbers, and an end. */
TEST(nonsense_in_every_file) {
    static const char *const texts[] = {"", "\n", "max", "-5\n", "99999999999999999999999\n", "1e9\n", "some avg10=\n", "some avg10=x.y"};
    begin();
    put_mounts();
    put("/proc/self/cgroup", "0::/a\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        static const char *const files[] = {"memory.max", "memory.high", "memory.current", "memory.stat", "memory.pressure"};
        for (size_t j = 0; j < sizeof files / sizeof files[0]; j++) {
            char path[100];
            snprintf(path, sizeof path, "/sys/fs/cgroup/a/%s", files[j]);
            put(path, texts[i]);
        }
        struct os_group group = group_now();
        os_group_read_again(&group);
    }
    end();
}

/* The descriptors that are open from FIRST on, in KEPT; returns how many. */
static int open_from(int first, int kept[DESCRIPTORS]) {
    int count = 0;
    for (int fd = first; fd < DESCRIPTORS; fd++) {
        const int flags = fcntl(fd, F_GETFD);
        if (fd >= KEPT_MIN) CHECK_AT(flags < 0 || flags == FD_CLOEXEC, fd);
        if (flags >= 0) kept[count++] = fd;
    }
    return count;
}

static void put_limited_group(const char *used) {
    put_mounts();
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "1000\n");
    put("/sys/fs/cgroup/a/memory.current", used);
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 100\n");
    put("/sys/fs/cgroup/a/memory.pressure", "some avg10=1.00 avg60=1.00\n");
}

TEST(what_changes_is_read_from_files_that_stay_open) {
    int before[DESCRIPTORS], fds[DESCRIPTORS];
    begin();
    const int low = open_from(0, before);
    put_limited_group("900\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_used_bytes, 800);
    CHECK_EQ(open_from(KEPT_MIN, fds), MOST_KEPT);
    CHECK_EQ(open_from(0, fds), low + MOST_KEPT);
    put("/sys/fs/cgroup/a/memory.current", "700\n");
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 200\n");
    put("/sys/fs/cgroup/a/memory.pressure", "some avg10=2.00 avg60=1.00\n");
    end(); /* nothing is found by its name any more */
    for (int i = 0; i < 2; i++) {
        errno = EDOM;
        os_group_read_again(&group);
        CHECK_EQ(errno, EDOM);
        CHECK_EQ(group.memory_limit_bytes, 1000);
        CHECK_EQ(group.memory_used_bytes, 500);
        CHECK_EQ(group.stalled, 200);
    }
    check_unlimited(group_now());
    CHECK_EQ(open_from(0, fds), low);
}

/* Without a limit what is used does not matter; nor does it take descriptors. */
TEST(a_limit_is_found_by_the_next_full_look) {
    int fds[DESCRIPTORS];
    begin();
    put_limited_group("900\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    struct os_group group = group_now();
    CHECK_EQ(open_from(KEPT_MIN, fds), 1);
    put("/sys/fs/cgroup/a/memory.max", "1000\n");
    os_group_read_again(&group);
    CHECK(group.memory_limit_bytes == OS_UNLIMITED && group.memory_used_bytes == OS_UNLIMITED);
    CHECK_EQ(group.stalled, 100);
    group = group_now();
    CHECK(group.memory_limit_bytes == 1000 && group.memory_used_bytes == 800);
    CHECK_EQ(open_from(KEPT_MIN, fds), MOST_KEPT);
    end();
}

/* As in a program that closes all that is open and opens files of its own. */
TEST(files_of_the_programs_own_under_kept_numbers) {
    int fds[DESCRIPTORS], again[DESCRIPTORS];
    begin();
    put_limited_group("900\n");
    struct os_group group = group_now();
    CHECK_EQ(open_from(KEPT_MIN, fds), MOST_KEPT);
    put("/own", "some avg10=99.00\n");
    char name[100];
    snprintf(name, sizeof name, "%s/own", root);
    for (int i = 0; i < MOST_KEPT; i++) {
        const int own = open(name, O_RDONLY | O_CLOEXEC);
        CHECK(own >= 0 && dup3(own, fds[i], O_CLOEXEC) == fds[i]);
        close(own);
    }
    os_group_read_again(&group);
    CHECK(group.memory_used_bytes == OS_UNLIMITED && group.stalled == OS_UNLIMITED);
    group = group_now();
    CHECK_EQ(group.memory_used_bytes, 800);
    os_group_read_again(&group);
    CHECK(group.memory_used_bytes == 800 && group.stalled == 100);
    CHECK_EQ(open_from(KEPT_MIN, again), 2 * MOST_KEPT);
    for (int i = 0; i < MOST_KEPT; i++) {
        CHECK_EQ(lseek(fds[i], 0, SEEK_CUR), 0);
        CHECK_EQ(close(fds[i]), 0);
    }
    end();
}

/* Closed, and nothing in their place: what is used with files in it would be more than counts. */
TEST(without_what_stayed_open_nothing_is_known) {
    int fds[DESCRIPTORS];
    for (int closed = 0; closed < MOST_KEPT; closed++) {
        begin();
        put_limited_group("900\n");
        struct os_group group = group_now();
        CHECK_EQ(open_from(KEPT_MIN, fds), MOST_KEPT);
        close(fds[closed]);
        os_group_read_again(&group);
        const bool use_known = group.memory_used_bytes == 800, stalls_known = group.stalled == 100;
        CHECK_AT(use_known || group.memory_used_bytes == OS_UNLIMITED, closed);
        CHECK_AT(stalls_known || group.stalled == OS_UNLIMITED, closed);
        CHECK_AT(use_known != stalls_known, closed);
        end();
    }
}

/* The limit of descriptors is below the numbers that are wanted: each full look is all there is. */
static void look_without_high_numbers(void) {
    int fds[DESCRIPTORS];
    begin();
    put_limited_group("900\n");
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){KEPT_MIN, KEPT_MIN}), 0);
    const int low = open_from(0, fds);
    struct os_group group = group_now();
    CHECK(group.memory_used_bytes == 800 && group.stalled == 100);
    CHECK_EQ(open_from(0, fds), low);
    os_group_read_again(&group);
    CHECK(group.memory_used_bytes == OS_UNLIMITED && group.stalled == OS_UNLIMITED);
    end();
}

TEST(where_no_number_is_high) { IN_CHILD(look_without_high_numbers); }

/* Files of the kernel's, too, say what is so now, when they are read from the beginning again. */
TEST(the_real_one) {
    struct os_group group;
    os_group_read("", &group);
    CHECK(group.memory_limit_bytes > 0);
    const bool limited = group.memory_used_bytes != OS_UNLIMITED, stalls_known = group.stalled != OS_UNLIMITED;
    static char used[MIB(64)];
    const uint64_t before_bytes = group.memory_used_bytes;
    block_fill(used, sizeof used, 1);
    CHECK(block_holds(used, sizeof used, 1));
    os_group_read_again(&group);
    CHECK_EQ(group.memory_used_bytes != OS_UNLIMITED, limited);
    CHECK_EQ(group.stalled != OS_UNLIMITED, stalls_known);
    if (limited) CHECK(group.memory_used_bytes != before_bytes);
}
