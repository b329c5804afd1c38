/* memory_test.c - every primitive's contract as os.h states it, with a kernel that says yes and one that
 * says no. mmap, munmap, mprotect and madvise are interposed; they pass calls on unless told otherwise.
 *
 * Planted defects it was seen to catch:
 *   no second way when mprotect is refused       commit_finds_another_way
 *   the slack of an alignment is kept            maps_are_aligned_and_exact
 *   an emulator's yes to MADV_DONTNEED believed  purge_by_an_emulator
 *   a refused call changes errno, is not counted refusals_are_results
 *   os_reserve_at takes what it is given         reserve_at_means_there
 */
#include "blocks.h"
#include "os/os.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum answer { ASK_THE_KERNEL, REFUSE, PRETEND };
static enum answer mmap_answer, munmap_answer, mprotect_answer, madvise_answer;
static int mprotect_error = EACCES;

/* ThreadSanitizer calls some of these before it can run instrumented code: there they stay libc's, and what
 * needs a kernel that says no is skipped. */
#ifdef CHECK_TSAN
#define NEED_A_STUBBORN_KERNEL() SKIP("ThreadSanitizer needs the calls itself")
#else
#define NEED_A_STUBBORN_KERNEL() ((void)0)

extern void *__interceptor_mmap(void *, size_t, int, int, int, off_t) __attribute__((weak));
extern int __interceptor_munmap(void *, size_t) __attribute__((weak));
extern int __interceptor_mprotect(void *, size_t, int) __attribute__((weak));

void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (mmap_answer == REFUSE) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    if (__interceptor_mmap) return __interceptor_mmap(hint, bytes, protection, flags, file, offset);
    return (void *)syscall(SYS_mmap, hint, bytes, protection, flags, file, offset);
}

int munmap(void *address, size_t bytes) {
    if (munmap_answer == REFUSE) {
        errno = ENOMEM;
        return -1;
    }
    if (__interceptor_munmap) return __interceptor_munmap(address, bytes);
    return (int)syscall(SYS_munmap, address, bytes);
}

int mprotect(void *address, size_t bytes, int protection) {
    if (mprotect_answer == REFUSE) {
        errno = mprotect_error;
        return -1;
    }
    if (__interceptor_mprotect) return __interceptor_mprotect(address, bytes, protection);
    return (int)syscall(SYS_mprotect, address, bytes, protection);
}

int madvise(void *address, size_t bytes, int advice) {
    if (madvise_answer == PRETEND) return 0;
    if (madvise_answer == REFUSE) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}
#endif

static size_t page;

/* Whether the kernel could read or write there: it says EFAULT where a program would die. */
static bool can_access(void *address, bool writing) {
    int ends[2];
    char byte = 0;
    CHECK_EQ(pipe(ends), 0);
    if (writing) CHECK_EQ(write(ends[1], &byte, 1), 1);
    long done = writing ? syscall(SYS_read, ends[0], address, 1) : syscall(SYS_write, ends[1], address, 1);
    close(ends[0]);
    close(ends[1]);
    return done == 1;
}
static bool can_read(void *address) { return can_access(address, false); }
static bool can_write(void *address) { return can_access(address, true); }

static uint64_t counted(const _Atomic uint64_t *counter) { return atomic_load(counter); }

static uint64_t mapped_bytes(void) {
    return counted(&os_counters.reserved_bytes) - counted(&os_counters.unmapped_bytes);
}

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
    CHECK(!os_reserve_at(memory, page));
    CHECK(!os_reserve_at(memory + 2 * page, 2 * page));
    CHECK_EQ(mapped_bytes(), before);
    CHECK(os_commit(memory, 3 * page));
    memory[page] = 'x';
    CHECK(!os_reserve_at(memory + page, page));
    CHECK_EQ(memory[page], 'x');
    os_unmap(memory + page, page);
    CHECK(os_reserve_at(memory + page, page));
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
    uint64_t maps = counted(&os_counters.calls[OS_CALL_MMAP]);
    mprotect_answer = REFUSE;
    errno = 4711;
    bool done = os_commit(memory + page, page);
    mmap_answer = REFUSE;
    bool second = os_commit(memory, page);
    mmap_answer = mprotect_answer = ASK_THE_KERNEL;
    CHECK_EQ(errno, 4711);
    CHECK(done && !second);
    CHECK_EQ(counted(&os_counters.calls[OS_CALL_MMAP]), maps + 2);
    /* Old kernels unmap what mmap would replace before they find that there is no memory for it. */
    mprotect_answer = REFUSE;
    mprotect_error = ENOMEM;
    CHECK(!os_commit(memory, page));
    mprotect_answer = ASK_THE_KERNEL;
    mprotect_error = EACCES;
    CHECK_EQ(errno, 4711);
    CHECK_EQ(counted(&os_counters.calls[OS_CALL_MMAP]), maps + 2);
    memory[page] = 'x';
    CHECK(!can_read(memory) && !can_read(memory + 2 * page));
    os_unmap(memory, 3 * page);
}

TEST(purge_gives_zeroes) {
    page = os_page_bytes();
    char *memory = os_map(4 * page, page);
    memset(memory, 'x', 4 * page);
    uint64_t before = counted(&os_counters.purged_bytes);
    CHECK(os_purge(memory + page, 2 * page));
    CHECK_EQ(counted(&os_counters.purged_bytes), before + 2 * page);
    CHECK_EQ(memory[0], 'x');
    CHECK(block_is_zero(memory + page, 2 * page));
    CHECK_EQ(memory[3 * page], 'x');
    memory[page] = 'y';
    NEED_A_STUBBORN_KERNEL();
    madvise_answer = REFUSE;
    errno = 4711;
    CHECK(!os_purge(memory + page, page));
    CHECK(!os_prefer_huge(memory, page));
    madvise_answer = ASK_THE_KERNEL;
    CHECK_EQ(errno, 4711);
    CHECK_EQ(memory[page], 'y');
    CHECK_EQ(counted(&os_counters.purged_bytes), before + 2 * page);
    CHECK(os_purge(memory, page));
    os_unmap(memory, 4 * page);
}

/* In a process that never purged: what the emulator does is found out once. */
HELPER(purge_that_keeps_the_data) {
    page = os_page_bytes();
    madvise_answer = PRETEND;
    char *memory = os_map(page, page);
    *memory = 'x';
    CHECK(!os_purge(memory, page));
    CHECK(!os_purge(memory, page));
    CHECK_EQ(*memory, 'x');
}

/* Also the helper's: a kernel without it is asked once in a process's life. */
HELPER(populate_by_an_old_kernel) {
    page = os_page_bytes();
    char *memory = os_map(4 * page, page);
    /* Where libc allocates before main, the library has started and asked before. */
    uint64_t calls = counted(&os_counters.calls[OS_CALL_MADVISE_POPULATE]);
    uint64_t refusals = counted(&os_counters.refusals[OS_CALL_MADVISE_POPULATE]);
    madvise_answer = REFUSE;
    errno = 4711;
    os_populate(memory, 4 * page);
    madvise_answer = ASK_THE_KERNEL;
    os_populate(memory, 4 * page);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(counted(&os_counters.calls[OS_CALL_MADVISE_POPULATE]), calls + 1);
    CHECK_EQ(counted(&os_counters.refusals[OS_CALL_MADVISE_POPULATE]), refusals + 1);
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

TEST(purge_by_an_emulator) {
    NEED_A_STUBBORN_KERNEL();
    char output[600];
    run_myself("purge_that_keeps_the_data", output, sizeof output);
}

TEST(populate_keeps_what_is_there) {
    char output[600];
    page = os_page_bytes();
    char *memory = os_map(16 * page, page);
    memory[3 * page] = 'x';
    errno = 4711;
    os_populate(memory + 2 * page + 100, 8 * page); /* any range: widened to pages 2 to 10 */
    CHECK_EQ(errno, 4711);
    CHECK_EQ(memory[3 * page], 'x');
    memory[3 * page] = 0;
    CHECK(block_is_zero(memory, 16 * page));
    NEED_A_STUBBORN_KERNEL();
    run_myself("populate_by_an_old_kernel", output, sizeof output);
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
    uint64_t calls = counted(&os_counters.calls[OS_CALL_MMAP]);
    CHECK(os_map(SIZE_MAX - page + 1, 2 * page) == NULL);
    CHECK(os_map(SIZE_MAX - GIB(1) + 1, GIB(2)) == NULL);
    CHECK_EQ(counted(&os_counters.calls[OS_CALL_MMAP]), calls); /* nobody was asked for a sum that wrapped */
}

TEST(refusals_are_results) {
    NEED_A_STUBBORN_KERNEL();
    page = os_page_bytes();
    char *memory = os_map(page, page);
    uint64_t calls[OS_CALL_KINDS], refusals[OS_CALL_KINDS], before = mapped_bytes();
    for (int kind = 0; kind < OS_CALL_KINDS; kind++) {
        calls[kind] = counted(&os_counters.calls[kind]);
        refusals[kind] = counted(&os_counters.refusals[kind]);
    }
    mmap_answer = munmap_answer = mprotect_answer = madvise_answer = REFUSE;
    errno = 4711;
    bool any = os_reserve(page) || os_reserve_readable(page) || os_reserve_at(memory + page, page) ||
               os_map_at(memory + page, page) ||
               os_map(page, 64 * page) || os_commit(memory, page) || os_purge(memory, page) ||
               os_prefer_huge(memory, page);
    os_unmap(memory, page);
    int left = errno;
    mmap_answer = munmap_answer = mprotect_answer = madvise_answer = ASK_THE_KERNEL;
    CHECK(!any);
    CHECK_EQ(left, 4711);
    memory[0] = 'x'; /* the refused munmap left it */
    CHECK_EQ(mapped_bytes(), before);
    for (int kind = 0; kind < OS_CALL_KINDS; kind++) {
        uint64_t made = counted(&os_counters.calls[kind]) - calls[kind];
        if (kind != OS_CALL_MADVISE_POPULATE) CHECK_AT(made >= 1, kind);
        CHECK_EQ(counted(&os_counters.refusals[kind]) - refusals[kind], made);
    }
    os_unmap(memory, page);
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
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        limit_address_space();
        _exit(0);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
}

TEST(every_kind_of_call_has_a_name) {
    for (int kind = 0; kind < OS_CALL_KINDS; kind++) {
        CHECK(os_call_name((enum os_call)kind)[0] != '\0');
        for (int other = 0; other < kind; other++)
            CHECK(strcmp(os_call_name((enum os_call)kind), os_call_name((enum os_call)other)) != 0);
    }
}
