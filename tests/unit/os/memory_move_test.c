/* memory_move_test.c - moving memory by its page tables, replacing it, and advice about huge pages: with the kernel that is
 * there, and with one that says no in every way. In children, since what is refused for want of support is remembered.
 *
 * Planted defects it was seen to catch:
 *   the old place is unmapped                    a_move_takes_the_contents_along
 *   a destination that is gone is not mapped anew, a lost one used, another's mapping replaced   refused_moves
 *   locked memory is moved                       locked_memory_stays
 *   the first move unmaps what may be another's, or decides without memory   a_first_move_without_memory
 *   what the kernel has not is asked for again   refused_moves, huge_pages_are_asked_for_while_there_are_some
 *   out of memory is taken for want of support   refused_moves, huge_pages_are_asked_for_while_there_are_some
 *   nothing is renewed                           a_renewed_range_is_zero
 *   what the kernel moves is taken for a failure   a_move_takes_the_contents_along
 *   what lies elsewhere stays there              refused_moves
 *   what cannot be given back is moved all the same   a_first_move_where_nothing_goes_back
 */
#include "blocks.h"
#include "child.h"
#include "kernel.h"
#include "os/os.h"
#include "os_counts.h"
#include "stubborn.h"

#include <sys/syscall.h>

static size_t page;

enum { MOVED_PAGES = 40 };

static struct {
    char *from, *to;
} pair;

/* Two ranges, each between others. */
static void map_pair(void) {
    page = os_page_bytes();
    char *memory = os_map((2 * MOVED_PAGES + 3) * page, page);
    CHECK(memory != NULL);
    memset(memory, 'o', (2 * MOVED_PAGES + 3) * page);
    pair.from = memory + page;
    pair.to = memory + (MOVED_PAGES + 2) * page;
    block_fill(pair.from, MOVED_PAGES * page, 1);
    block_fill(pair.to, MOVED_PAGES * page, 2);
    errno = 4711;
}

static void check_from_stayed(void) {
    CHECK_EQ(errno, 4711);
    CHECK(block_holds(pair.from, MOVED_PAGES * page, 1));
    CHECK(pair.from[-1] == 'o' && pair.from[MOVED_PAGES * page] == 'o');
    CHECK(pair.to[-1] == 'o' && pair.to[MOVED_PAGES * page] == 'o');
}

/* The first move is tried on pages of its own before: that is over then. */
static void check_that_moves_work(void) {
    map_pair();
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), kernel_moves() ? OS_MOVED : OS_NOT_MOVED);
}

static void move_pages(void) {
    check_that_moves_work();
    NEED_MOVES();
    map_pair();
    uint64_t calls = calls_of(OS_CALL_MREMAP);
    enum os_moved moved = os_move(pair.from, pair.to, MOVED_PAGES * page);
    CHECK_EQ(moved, OS_MOVED);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(calls_of(OS_CALL_MREMAP), calls + 1);
    CHECK(block_holds(pair.to, MOVED_PAGES * page, 1));
    CHECK(block_is_zero(pair.from, MOVED_PAGES * page));
    CHECK(pair.from[-1] == 'o' && pair.from[MOVED_PAGES * page] == 'o');
    CHECK(pair.to[-1] == 'o' && pair.to[MOVED_PAGES * page] == 'o');
    block_fill(pair.from, MOVED_PAGES * page, 3); /* still mapped */
    CHECK(block_holds(pair.to, MOVED_PAGES * page, 1));
    CHECK_EQ(os_renew(pair.to, MOVED_PAGES * page), OS_MOVE_RENEWED);
    CHECK(block_is_zero(pair.to, MOVED_PAGES * page) && block_holds(pair.from, MOVED_PAGES * page, 3));
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_MOVED);
}

TEST(a_move_takes_the_contents_along) { IN_CHILD(move_pages); }

static void move_locked_pages(void) {
    check_that_moves_work();
    NEED_MOVES();
    map_pair();
    /* By number: under a sanitizer libc's function does nothing. */
    if (syscall(SYS_mlock, pair.to, page) != 0) SKIP("this user may lock no memory");
    errno = 4711;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
    check_from_stayed();
    CHECK_EQ(syscall(SYS_munlock, pair.to, page), 0);
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_MOVED);
}

TEST(locked_memory_stays) { IN_CHILD(move_locked_pages); }

/* Twice: the second time nobody is asked, where the kernel has no such thing. */
static void move_unsupported(void) {
    map_pair();
    mremap_answer = REFUSE;
    uint64_t refused = counted(&os_counters.refusals[OS_CALL_MREMAP]);
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
    check_from_stayed();
    memset(pair.to, 'w', MOVED_PAGES * page);
    uint64_t calls = calls_of(OS_CALL_MREMAP);
    CHECK_EQ(counted(&os_counters.refusals[OS_CALL_MREMAP]), refused + 1);
    mremap_answer = ASK_THE_KERNEL;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
    CHECK_EQ(calls_of(OS_CALL_MREMAP), calls);
    check_from_stayed();
}

/* Out of memory, the destination gone: it is mapped anew, and the next move may succeed. */
static void move_without_memory(void) {
    map_pair();
    mremap_answer = REFUSE_LATE;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_MOVE_RENEWED);
    check_from_stayed();
    CHECK(block_is_zero(pair.to, MOVED_PAGES * page));
    block_fill(pair.to, MOVED_PAGES * page, 2);
    uint64_t calls = calls_of(OS_CALL_MREMAP);
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_MOVE_RENEWED);
    CHECK_EQ(calls_of(OS_CALL_MREMAP), calls + 1);
    mmap_answer = REFUSE; /* and cannot be mapped anew */
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_MOVE_LOST);
    mmap_answer = ASK_THE_KERNEL;
    CHECK_EQ(errno, 4711);
    CHECK(!can_read(pair.to) && !can_write(pair.to + (MOVED_PAGES - 1) * page));
    CHECK(block_holds(pair.from, MOVED_PAGES * page, 1));
}

/* Out of memory, and something lies at the destination: the old mapping, or another thread's. It is left alone. */
static void move_and_lose(void) {
    map_pair();
    mremap_answer = REFUSE;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_MOVE_LOST);
    check_from_stayed();
    CHECK(can_write(pair.to));
    mremap_answer = ASK_THE_KERNEL;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED); /* never after */
}

/* The same by a kernel that maps elsewhere instead: nobody needs that. */
static void move_and_lose_to_an_old_kernel(void) {
    map_pair();
    mremap_answer = REFUSE;
    mmap_answer = GO_ELSEWHERE;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_MOVE_LOST);
    mmap_answer = ASK_THE_KERNEL;
    check_from_stayed();
    CHECK(mapped_elsewhere != NULL && mapped_elsewhere != pair.to && !can_read(mapped_elsewhere));
    CHECK(can_write(pair.to));
}

/* What the first move finds out by pages of its own: where there was no memory, nothing. */
static void probe_without_memory(void) {
    map_pair();
    mremap_answer = REFUSE_LATE;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
    check_from_stayed();
    mremap_answer = ASK_THE_KERNEL;
    block_fill(pair.to, MOVED_PAGES * page, 2);
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), kernel_moves() ? OS_MOVED : OS_NOT_MOVED);
}

/* Another thread's memory lies where the kernel has unmapped the destination. */
static void probe_beside_another(void) {
    map_pair();
    mremap_answer = REFUSE_AND_FILL;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
    check_from_stayed();
    CHECK(filled_by_another != NULL && can_write(filled_by_another));
    mremap_answer = ASK_THE_KERNEL;
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
}

TEST(a_first_move_without_memory) {
    NEED_A_STUBBORN_KERNEL();
    mremap_error = ENOMEM;
    IN_CHILD(probe_without_memory);
    IN_CHILD(probe_beside_another);
}

/* Where what was moved cannot be given back, moves are of no use: an emulator may refuse, or do nothing. */
static void move_where_nothing_goes_back(void) {
    map_pair();
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
    madvise_answer = ASK_THE_KERNEL;
    check_from_stayed();
    CHECK_EQ(os_move(pair.from, pair.to, MOVED_PAGES * page), OS_NOT_MOVED);
}

TEST(a_first_move_where_nothing_goes_back) {
    NEED_A_STUBBORN_KERNEL();
    static const enum answer answers[] = {REFUSE, PRETEND};
    for (size_t i = 0; i < 2; i++) {
        madvise_answer = answers[i];
        IN_CHILD(move_where_nothing_goes_back);
    }
    madvise_answer = ASK_THE_KERNEL;
}

TEST(refused_moves) {
    NEED_A_STUBBORN_KERNEL();
    check_that_moves_work();
    NEED_MOVES();
    static const int unsupported[] = {EINVAL, ENOSYS, EPERM}, out_of_memory[] = {ENOMEM, EAGAIN, EFAULT};
    for (size_t i = 0; i < 3; i++) {
        mremap_error = unsupported[i];
        IN_CHILD(move_unsupported);
        mremap_error = out_of_memory[i];
        IN_CHILD(move_without_memory);
        IN_CHILD(move_and_lose);
        IN_CHILD(move_and_lose_to_an_old_kernel);
    }
}

static void ask_for_huge(void) {
    page = os_page_bytes();
    char *memory = os_map(MIB(4), MIB(2));
    memory[0] = 'x';
    uint64_t calls = calls_of(OS_CALL_MADVISE_HUGE);
    bool done = os_prefer_huge(memory, MIB(4));
    CHECK_EQ(os_avoid_huge(memory, MIB(2)), done);
    if (done) os_split_huge(memory, page);
    CHECK_EQ(memory[0], 'x');
    /* Refused for want of memory it is asked for again, for want of support never. */
    madvise_answer = REFUSE;
    madvise_error = ENOMEM;
    calls = calls_of(OS_CALL_MADVISE_HUGE);
    errno = 4711;
    if (done) CHECK(!os_prefer_huge(memory, MIB(4)) && !os_avoid_huge(memory, MIB(4)));
    if (done) CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls + 2);
    madvise_error = EINVAL;
    CHECK(!os_avoid_huge(memory, MIB(4)));
    madvise_answer = ASK_THE_KERNEL;
    calls = calls_of(OS_CALL_MADVISE_HUGE);
    CHECK(!os_prefer_huge(memory, MIB(4)) && !os_avoid_huge(memory, MIB(4)));
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls);
    CHECK_EQ(errno, 4711);
}

TEST(huge_pages_are_asked_for_while_there_are_some) {
    NEED_A_STUBBORN_KERNEL();
    IN_CHILD(ask_for_huge);
}

TEST(a_renewed_range_is_zero) {
    page = os_page_bytes();
    char *memory = os_map(4 * page, page);
    memset(memory, 'x', 4 * page);
    uint64_t purged = counted(&os_counters.purged_bytes);
    errno = 4711;
    CHECK_EQ(os_renew(memory + page, 2 * page), OS_MOVE_RENEWED);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(counted(&os_counters.purged_bytes), purged + 2 * page);
    CHECK(memory[0] == 'x' && memory[3 * page] == 'x' && block_is_zero(memory + page, 2 * page));
    memory[page] = 'y';
    NEED_A_STUBBORN_KERNEL();
    mmap_answer = REFUSE;
    enum os_moved renewed = os_renew(memory, 4 * page);
    mmap_answer = ASK_THE_KERNEL;
    CHECK(renewed != OS_MOVE_RENEWED);
    CHECK_EQ(errno, 4711);
    CHECK(memory[0] == 'x' && memory[page] == 'y');
    CHECK_EQ(counted(&os_counters.purged_bytes), purged + 2 * page);
    os_unmap(memory, 4 * page);
}
