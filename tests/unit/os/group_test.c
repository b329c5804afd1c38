/* group_test.c - the control group, from trees of files that the test makes.
 *
 * Planted defects it was seen to catch:
 *   the limit of a group above is not seen             version_2
 *   the path outside a container is looked up inside   version_2_in_a_namespace
 *   files that can be dropped count as used            version_2
 *   names of files that can be dropped count           version_2
 *   a group full of files passes for the nearest       files_make_no_limit_near
 */
#include "os/os.h"

#include "check.h"

#include <fcntl.h>
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

static void begin(void) {
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
    CHECK(group.memory_used_bytes == OS_UNLIMITED && group.stalled == OS_UNLIMITED && group.cpu_quota == OS_UNLIMITED);
}

TEST(where_nothing_is_said_nothing_is_known) {
    begin();
    check_unlimited(group_now());
    put("/proc/self/cgroup", "");
    check_unlimited(group_now());
    put("/proc/self/cgroup", "nonsense\n:::\n0\n");
    put("/proc/self/mountinfo", "x\n- - -\n1 2 3\n");
    check_unlimited(group_now());
    end();
}

static void put_mounts(void) {
    put("/proc/self/mountinfo",
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw\n"
        "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
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
    put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_limit_bytes, OS_UNLIMITED);
    CHECK_EQ(group.memory_high_bytes, 1000000);
    CHECK_EQ(group.memory_used_bytes, 350000); /* without files and their names */
    CHECK_EQ(group.stalled, 1234);
    CHECK_EQ(group.cpu_quota, 150);
    /* The nearest limit counts, of all above. */
    put("/sys/fs/cgroup/a/memory.max", "950000\n");
    put("/sys/fs/cgroup/a/memory.high", "max\n");
    put("/sys/fs/cgroup/a/memory.current", "940000\n");
    put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    group = group_now();
    CHECK_EQ(group.memory_limit_bytes, 950000);
    CHECK_EQ(group.memory_high_bytes, OS_UNLIMITED);
    CHECK_EQ(group.memory_used_bytes, 940000);
    CHECK_EQ(group.cpu_quota, 50);
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

TEST(version_1) {
    begin();
    put("/proc/self/mountinfo",
        "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    put("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/c\n1:name=systemd:/x\n0::/x\n");
    put("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "1500000\n");
    put("/sys/fs/cgroup/memory/m/memory.stat", "inactive_file 7\ntotal_inactive_file 60000\nactive_file 7\ntotal_active_file 40000\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "15000000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n");
    put("/proc/pressure/memory", "some avg10=0.07 avg60=0.00\n");
    struct os_group group = group_now();
    CHECK_EQ(group.memory_limit_bytes, 2000000);
    CHECK_EQ(group.memory_used_bytes, 1400000);
    CHECK_EQ(group.memory_high_bytes, OS_UNLIMITED);
    CHECK_EQ(group.stalled, 7);
    CHECK_EQ(group.cpu_quota, OS_UNLIMITED);
    put("/sys/fs/cgroup/cpu,cpuacct/c/cpu.cfs_quota_us", "20000\n");
    CHECK_EQ(group_now().cpu_quota, 20);
    end();
}

/* A controller is a whole word of a list; and a path that is not below what is mounted is taken as it is. */
TEST(lists_of_controllers) {
    begin();
    put("/proc/self/mountinfo",
        "32 30 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "33 30 0:28 /elsewhere /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu\n");
    put("/proc/self/cgroup", "6:cpuset:/s\n4:cpuacct,cpu:/c\n");
    put("/sys/fs/cgroup/cpuset/s/cpu.cfs_quota_us", "10000\n");
    put("/sys/fs/cgroup/cpuset/s/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "30000\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    put("/proc/pressure/memory", "some avg10=3 avg60=0.00\n");
    struct os_group group = group_now();
    CHECK_EQ(group.cpu_quota, 30);
    CHECK_EQ(group.stalled, 300);
    CHECK_EQ(group.memory_limit_bytes, OS_UNLIMITED);
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "0\n");
    CHECK_EQ(group_now().cpu_quota, OS_UNLIMITED);
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
        static const char *const files[] = {"memory.max", "memory.high", "memory.current", "memory.stat", "memory.pressure", "cpu.max"};
        for (size_t j = 0; j < sizeof files / sizeof files[0]; j++) {
            char path[100];
            snprintf(path, sizeof path, "/sys/fs/cgroup/a/%s", files[j]);
            put(path, texts[i]);
        }
        group_now();
    }
    end();
}

TEST(the_real_one) {
    struct os_group group;
    os_group_read("", &group);
    CHECK(group.memory_limit_bytes > 0);
}
