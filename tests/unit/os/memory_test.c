/* memory_test.c - every primitive's contract as os.h states it, with a kernel that says yes and one that
 * says no. Moves and advice about huge pages are in memory_move_test.c, giving back in memory_purge_test.c.
 *
 * Planted defects it was seen to catch:
 *   no second way when mprotect is refused       commit_finds_another_way
 *   the slack of an alignment is kept            maps_are_aligned_and_exact
 *   a refused call changes errno, is not counted refusals_are_results
 *   os_reserve_at takes what it is given         reserve_at_means_there
 *   no memory passes for no support              populate_keeps_what_is_there
 *   nothing is brought in, or not all, or only to be read   what_is_populated_is_there
 *   errors_of_files_are_numbers                  errors_have_names_or_numbers
 */
#include "blocks.h"
#include "child.h"
#include "kernel.h"
#include "os/os.h"
#include "os_counts.h"
#include "stubborn.h"

#include <sys/resource.h>
#include <sys/syscall.h>

static size_t page;

TEST(page_size) {
    page = os_page_bytes();
    CHECK_EQ(page, sysconf(_SC_PAGESIZE));
}

TEST(reserved_memory_cannot_be_touched) {
    page = os_page_bytes();
    char *memory = os_reserve(16 * page);
    CHECK(memory != NULL && is_aligned(memory, page));
    CHECK(!can_read(memory) && !can_write(memory + 15 * page));
    os_unmap(memory, 16 * page);
    memory = os_reserve_readable(16 * page);
    CHECK(memory != NULL);
    CHECK(block_is_zero(memory, 16 * page));
    CHECK(!can_write(memory + 15 * page));
    os_unmap(memory, 16 * page);
    CHECK(!can_read(memory));
}

TEST(reserve_at_means_there) {
    page = os_page_bytes();
    char *memory = os_reserve(3 * page);
    uint64_t before = mapped_bytes();
    CHECK_EQ(os_reserve_at(memory, page), OS_PLACE_TAKEN);
    CHECK_EQ(os_reserve_at(memory + 2 * page, 2 * page), OS_PLACE_TAKEN);
    CHECK_EQ(mapped_bytes(), before);
    CHECK(os_commit(memory, 3 * page));
    memory[page] = 'x';
    CHECK_EQ(os_reserve_at(memory + page, page), OS_PLACE_TAKEN);
    CHECK_EQ(memory[page], 'x');
    os_unmap(memory + page, page);
    CHECK_EQ(os_reserve_at(memory + page, page), OS_PLACE_RESERVED);
    CHECK(!can_read(memory + page));
    CHECK_EQ(mapped_bytes(), before);
    os_unmap(memory, 3 * page);
}

TEST(map_at_means_there) {
    page = os_page_bytes();
    char *memory = os_map(3 * page, page);
    memory[0] = memory[2 * page] = 'x';
    uint64_t before = mapped_bytes();
    CHECK(!os_map_at(memory, page));
    CHECK_EQ(mapped_bytes(), before);
    os_unmap(memory + page, page);
    CHECK(!os_map_at(memory + page, 2 * page));
    CHECK(os_map_at(memory + page, page));
    CHECK_EQ(mapped_bytes(), before);
    CHECK(block_is_zero(memory + page, page) && memory[0] == 'x' && memory[2 * page] == 'x');
    memory[page] = 'y';
    os_unmap(memory, 3 * page);
}

TEST(committed_memory_is_zero_and_usable) {
    page = os_page_bytes();
    char *memory = os_reserve(4 * page);
    uint64_t before = counted(&os_counters.committed_bytes);
    CHECK(os_commit(memory + page, 2 * page));
    CHECK_EQ(counted(&os_counters.committed_bytes), before + 2 * page);
    CHECK(block_is_zero(memory + page, 2 * page));
    memset(memory + page, 'x', 2 * page);
    CHECK(!can_read(memory) && !can_read(memory + 3 * page));
    os_unmap(memory, 4 * page);
}

TEST(commit_finds_another_way) {
    NEED_A_STUBBORN_KERNEL();
    page = os_page_bytes();
    char *memory = os_reserve(3 * page);
    uint64_t maps = calls_of(OS_CALL_MMAP);
    mprotect_answer = REFUSE;
    errno = 4711;
    bool done = os_commit(memory + page, page);
    mmap_answer = REFUSE;
    bool second = os_commit(memory, page);
    mmap_answer = mprotect_answer = ASK_THE_KERNEL;
    CHECK_EQ(errno, 4711);
    CHECK(done && !second);
    CHECK_EQ(calls_of(OS_CALL_MMAP), maps + 2);
    /* Old kernels unmap what mmap would replace before they find that there is no memory for it. */
    mprotect_answer = REFUSE;
    mprotect_error = ENOMEM;
    CHECK(!os_commit(memory, page));
    mprotect_answer = ASK_THE_KERNEL;
    mprotect_error = EACCES;
    CHECK_EQ(errno, 4711);
    CHECK_EQ(calls_of(OS_CALL_MMAP), maps + 2);
    memory[page] = 'x';
    CHECK(!can_read(memory) && !can_read(memory + 2 * page));
    os_unmap(memory, 3 * page);
}

/* Also the helper's: a kernel without it is asked once in a process's life, one that has no memory the next time, too. */
HELPER(populate_by_an_old_kernel) {
    page = os_page_bytes();
    char *memory = os_map(4 * page, page);
    /* Where libc allocates before main, the library has started and asked before. */
    uint64_t calls = calls_of(OS_CALL_MADVISE_POPULATE);
    uint64_t refusals = counted(&os_counters.refusals[OS_CALL_MADVISE_POPULATE]);
    const int errors[] = {ENOMEM, EINTR, EINVAL};
    madvise_answer = REFUSE;
    errno = 4711;
    for (size_t i = 0; i < 3; i++) {
        madvise_error = errors[i];
        os_populate(memory, 4 * page);
    }
    madvise_answer = ASK_THE_KERNEL;
    os_populate(memory, 4 * page);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_POPULATE), calls + 3);
    CHECK_EQ(counted(&os_counters.refusals[OS_CALL_MADVISE_POPULATE]), refusals + 3);
    CHECK(block_is_zero(memory, 4 * page));
}

static void run_myself(const char *helper, char *output, size_t bytes) {
    int ends[2], status = -1;
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "memory_test", helper, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t more; (more = read(ends[0], output + length, bytes - 1 - length)) > 0;)
        length += (size_t)more;
    output[length] = '\0';
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    if (status != 0) check_say("%s", output);
    CHECK_EQ(status, 0);
}

TEST(populate_keeps_what_is_there) {
    char output[600];
    page = os_page_bytes();
    char *memory = os_map(16 * page, page);
    memory[3 * page] = 'x';
    errno = 4711;
    os_populate(memory + 2 * page + 100, 8 * page);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(memory[3 * page], 'x');
    memory[3 * page] = 0;
    CHECK(block_is_zero(memory, 16 * page));
    NEED_A_STUBBORN_KERNEL();
    run_myself("populate_by_an_old_kernel", output, sizeof output);
}

static long page_faults(void) {
    struct rusage usage;
    CHECK_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
    return usage.ru_minflt;
}

/* Any range, widened to pages; what is there to be read alone still costs a fault when it is written. */
TEST(what_is_populated_is_there) {
    enum { PAGES = 40, FROM = 2, TO = 35 };
    unsigned char before[PAGES], after[PAGES];
    if (!kernel_populates()) SKIP("the kernel populates nothing");
    page = os_page_bytes();
    char *memory = os_map(PAGES * page, page);
    os_avoid_huge(memory, PAGES * page);
    CHECK_EQ(syscall(SYS_mincore, memory, PAGES * page, before), 0);
    os_populate(memory + FROM * page + 100, (TO - FROM - 1) * page);
    CHECK_EQ(syscall(SYS_mincore, memory, PAGES * page, after), 0);
    for (size_t i = 0; i < PAGES; i++) CHECK_AT((after[i] & 1) == (i >= FROM && i < TO ? 1 : before[i] & 1), i);
    const long faults = page_faults();
    for (size_t i = FROM; i < TO; i++) memory[i * page] = 'x';
    if (!CHECK_SHADOWED) CHECK_AT(page_faults() - faults < (TO - FROM) / 2, page_faults() - faults);
    os_unmap(memory, PAGES * page);
}

HELPER(say_seed) { check_say("%llx", (unsigned long long)os_random_seed()); }

TEST(seeds_differ_from_process_to_process) {
    char first[100], second[100];
    CHECK_EQ(os_random_seed(), os_random_seed());
    run_myself("say_seed", first, sizeof first);
    run_myself("say_seed", second, sizeof second);
    CHECK(strlen(first) > 8 && strcmp(first, second) != 0);
}

TEST(maps_are_aligned_and_exact) {
    page = os_page_bytes();
    for (size_t alignment = 1; alignment <= GIB(1); alignment *= 2) {
        for (size_t pages = 1; pages < 40; pages = pages * 3 + 1) {
            uint64_t before = mapped_bytes();
            char *memory = os_map(pages * page, alignment);
            if (memory == NULL && alignment >= MIB(64)) continue; /* little address space */
            CHECK_AT(memory != NULL && is_aligned(memory, alignment) && is_aligned(memory, page), alignment);
            CHECK_EQ(mapped_bytes(), before + pages * page);
            CHECK(block_is_zero(memory, pages * page));
            memset(memory, 'x', pages * page);
            os_unmap(memory, pages * page);
            CHECK_EQ(mapped_bytes(), before);
        }
    }
    uint64_t calls = calls_of(OS_CALL_MMAP);
    CHECK(os_map(SIZE_MAX - page + 1, 2 * page) == NULL);
    CHECK(os_map(SIZE_MAX - GIB(1) + 1, GIB(2)) == NULL);
    CHECK_EQ(calls_of(OS_CALL_MMAP), calls); /* nobody was asked for a sum that wrapped */
}

TEST(refusals_are_results) {
    NEED_A_STUBBORN_KERNEL();
    page = os_page_bytes();
    char *memory = os_map(page, page);
    uint64_t calls[OS_CALL_KINDS], refusals[OS_CALL_KINDS], before = mapped_bytes();
    for (int kind = 0; kind < OS_CALL_KINDS; kind++) {
        calls[kind] = calls_of(kind);
        refusals[kind] = counted(&os_counters.refusals[kind]);
    }
    mmap_answer = munmap_answer = mprotect_answer = madvise_answer = mremap_answer = REFUSE;
    errno = 4711;
    bool any = os_reserve(page) || os_reserve_readable(page) || os_reserve_at(memory + page, page) != OS_PLACE_REFUSED ||
               os_map_at(memory + page, page) ||
               os_map(page, 64 * page) || os_commit(memory, page) || os_purge(memory, page) ||
               os_prefer_huge(memory, page) || os_avoid_huge(memory, page) || os_renew(memory, page) == OS_MOVE_RENEWED ||
               os_move(memory, memory + page, page) != OS_NOT_MOVED;
    os_split_huge(memory, page);
    os_unmap(memory, page);
    int left = errno;
    mmap_answer = munmap_answer = mprotect_answer = madvise_answer = mremap_answer = ASK_THE_KERNEL;
    CHECK(!any);
    CHECK_EQ(left, 4711);
    memory[0] = 'x'; /* the refused munmap left it */
    CHECK_EQ(mapped_bytes(), before);
    for (int kind = 0; kind < OS_CALL_KINDS; kind++) {
        uint64_t made = calls_of(kind) - calls[kind];
        bool is_asked = kind != OS_CALL_MADVISE_POPULATE && kind != OS_CALL_THREAD && kind != OS_CALL_MEMBARRIER &&
                        kind != OS_CALL_MINCORE && kind != OS_CALL_MREMAP; /* which is tried on other pages first, and there are none */
        if (is_asked) CHECK_AT(made >= 1, kind);
        CHECK_EQ(counted(&os_counters.refusals[kind]) - refusals[kind], made);
    }
    os_unmap(memory, page);
}

TEST(what_is_in_memory) {
    page = os_page_bytes();
    const size_t bytes = 1500 * page; /* three questions */
    char *memory = os_map(bytes, page);
    os_avoid_huge(memory, bytes);
    if (os_resident_bytes(memory, bytes) != 0) SKIP("pages of memory that was never touched are said to be there");
    for (size_t at = 0; at < bytes; at += 3 * page) memory[at] = 'x';
    CHECK_EQ(os_resident_bytes(memory, bytes), bytes / 3);
    CHECK_EQ(os_resident_bytes(memory, page), page);
    CHECK_EQ(os_resident_bytes(memory + page, 2 * page), 0);
    uint64_t refusals = counted(&os_counters.refusals[OS_CALL_MINCORE]);
    errno = 4711;
    CHECK_EQ(os_resident_bytes(memory + 1, bytes), bytes); /* no page begins there: nothing is known */
    CHECK_EQ(errno, 4711);
    CHECK_EQ(counted(&os_counters.refusals[OS_CALL_MINCORE]), refusals + 1);
    os_unmap(memory, bytes);
}

static void limit_address_space(void) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    limit.rlim_cur = (rlim_t)GIB(512) - 4096;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return; /* a harder limit holds */
    errno = 4711;
    CHECK_EQ(os_address_limit(), GIB(512) - 4096);
    CHECK_EQ(errno, 4711);
}

TEST(the_limit_of_the_address_space) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    CHECK_EQ(os_address_limit(), limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur);
    IN_CHILD(limit_address_space);
}

TEST(errors_have_names_or_numbers) {
    char number[12];
    CHECK(strcmp(os_error_name(ENOMEM, number), "ENOMEM") == 0);
    static const int of_files[] = {EACCES,       EBADF, EDQUOT, EFBIG,  EIO,    EISDIR, ELOOP,  EMFILE,
                                   ENAMETOOLONG, ENFILE, ENODEV, ENOENT, ENOSPC, ENOTDIR, ENXIO, EPIPE, EROFS};
    for (size_t i = 0; i < sizeof of_files / sizeof of_files[0]; i++)
        CHECK_AT(os_error_name(of_files[i], number)[0] == 'E', of_files[i]);
    CHECK(strcmp(os_error_name(4711, number), "4711") == 0);
}

TEST(every_kind_of_call_has_a_name) {
    for (int kind = 0; kind < OS_CALL_KINDS; kind++) {
        CHECK(os_call_name((enum os_call)kind)[0] != '\0');
        for (int other = 0; other < kind; other++)
            CHECK(strcmp(os_call_name((enum os_call)kind), os_call_name((enum os_call)other)) != 0);
    }
}
