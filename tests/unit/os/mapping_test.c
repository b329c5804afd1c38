/* mapping_test.c - the mapping that an address lies in.
 *
 * Planted defects it was seen to catch:
 *   the end belongs to the mapping   the_range_is_the_kernels
 *   a long name is cut at its end    names
 *   a line is read from the middle   many_mappings
 *   out of memory is taken for want of support, or what the kernel lacks is asked for again   refused_names
 */
#include "child.h" /* first: it says _GNU_SOURCE */

#include "faults/fail_calls.h"
#include "os/os.h"

#include <sys/mman.h>
#include <sys/resource.h>

static struct os_mapping mapping;

TEST(the_range_is_the_kernels) {
    size_t page = os_page_bytes();
    char *three = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(three != MAP_FAILED);
    CHECK_EQ(mprotect(three + page, page, PROT_READ), 0);
    CHECK(os_find_mapping(three + page, &mapping));
    CHECK(mapping.start == (uintptr_t)three + page && mapping.end == (uintptr_t)three + 2 * page);
    CHECK(mapping.name[0] == '\0');
    CHECK(os_find_mapping(three + 2 * page - 1, &mapping));
    CHECK(mapping.start == (uintptr_t)three + page);
    munmap(three, 3 * page);
    errno = 4711;
    CHECK(!os_find_mapping(three + page, &mapping));
    CHECK(!os_find_mapping(NULL, &mapping));
    CHECK_EQ(errno, 4711);
}

TEST(names) {
    char local[10] = "", name[200] = "";
    CHECK(os_find_mapping(local, &mapping));
    CHECK(strcmp(mapping.name, "[stack]") == 0 ||
          mapping.name[0] == '\0'); /* an emulator's stack is its own */
    memset(name, 'n', 180);
    int fd = memfd_create(name, MFD_CLOEXEC);
    CHECK(fd >= 0);
    CHECK_EQ(ftruncate(fd, 65536), 0);
    void *file = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    CHECK(file != MAP_FAILED);
    CHECK(os_find_mapping(file, &mapping));
    CHECK_EQ(strlen(mapping.name), sizeof mapping.name - 1);
    CHECK(strcmp(mapping.name + sizeof mapping.name - 1 - strlen("nnn (deleted)"), "nnn (deleted)") == 0);
    munmap(file, 65536);
}

/* What is nameless right behind a file's range is the file's; not what lies further on. */
TEST(behind_a_file) {
    size_t page = os_page_bytes();
    int fd = memfd_create("before", MFD_CLOEXEC);
    char *at = mmap(NULL, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fd >= 0 && at != MAP_FAILED && munmap(at, 4 * page) == 0);
    CHECK_EQ(ftruncate(fd, (off_t)page), 0);
    CHECK(mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at);
    CHECK(mmap(at + page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + page);
    CHECK(os_find_mapping(at + page, &mapping));
    CHECK(strstr(mapping.name, "before") != NULL);
    munmap(at, 4 * page);
    /* A file's, a gap, and a nameless one. */
    CHECK(mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at);
    CHECK(mmap(at + 2 * page, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at + 2 * page);
    CHECK(os_find_mapping(at + 2 * page, &mapping));
    CHECK(mapping.name[0] == '\0');
    munmap(at, 4 * page);
    close(fd);
}

TEST(many_mappings) {
    enum { MAPPINGS = 300 };
    static char *maps[MAPPINGS];
    size_t page = os_page_bytes();
    for (size_t i = 0; i < MAPPINGS; i++) { /* none of them one with its neighbour */
        maps[i] = mmap(NULL, 2 * page, i % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(maps[i] != MAP_FAILED);
        CHECK_EQ(munmap(maps[i], page), 0);
        maps[i] += page;
    }
    for (size_t i = 0; i < MAPPINGS; i++) {
        CHECK_AT(os_find_mapping(maps[i], &mapping), i);
        CHECK_AT(mapping.start <= (uintptr_t)maps[i] && (uintptr_t)maps[i] < mapping.end, i);
    }
    for (size_t i = 0; i < MAPPINGS; i++) munmap(maps[i], page);
}

/* All descriptors are in use, of a few: there may be a billion of them. */
static void look_without_descriptors(void) {
    const struct rlimit few = {64, 64};
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    int last = -1;
    for (int next; (next = dup(STDOUT_FILENO)) >= 0;) last = next;
    CHECK_EQ(errno, EMFILE);
    const bool found = os_find_mapping(&last, &mapping);
    close(last); /* where a build that counts writes what it counted */
    CHECK(!found);
}

TEST(without_proc_nothing_is_known) { IN_CHILD(look_without_descriptors); }

/* How often the kernel is asked for two names. */
static unsigned long asked_to_name(int error) {
    char *memory = os_map(os_page_bytes(), os_page_bytes());
    CHECK(memory != NULL);
    fail_arm(FAIL_PRCTL, 1, true, error);
    errno = 4711;
    os_name(memory, os_page_bytes(), OS_NAME_BLOCKS);
    os_name(memory, os_page_bytes(), OS_NAME_BLOCKS);
    CHECK_EQ(errno, 4711);
    fail_disarm();
    return fail_counted(FAIL_PRCTL);
}

HELPER(names_are_refused) {
    CHECK_EQ(asked_to_name(EAGAIN), 2);
    CHECK_EQ(asked_to_name(ENOMEM), 2);
    CHECK_EQ(asked_to_name(EINVAL), 1);
    CHECK_EQ(asked_to_name(EINVAL), 0);
}

/* Where the kernel lacks names that is known since the start: here it had no memory then. */
static void start_without_memory_for_names(void) {
    setenv("FAIL_CALL", "prctl", 1);
    setenv("FAIL_FOR", "ever", 1);
    setenv("FAIL_ERRNO", "EAGAIN", 1);
    become_helper("names_are_refused");
}

TEST(refused_names) {
    if (CHECK_SHADOWED) OMIT("the sanitizer makes such calls too");
#ifdef CHECK_EMULATED
    OMIT("an emulated program cannot execute itself");
#endif
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    IN_CHILD(start_without_memory_for_names);
}
