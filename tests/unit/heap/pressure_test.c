/* pressure_test.c - a process of one thread in a small control group: what it does as it grows. In children whose root is a folder of the
 * test's, so that the group's files are its own.
 *
 * Planted defects it was seen to catch:
 *   the process grows beside what is free              free_memory_makes_room_below_a_limit
 *   what is left is asked for only once                what_is_used_is_asked_again
 *   free memory waits until there is much of it        free_memory_returns_near_a_limit
 *   what is pinned is purged again and again           what_is_pinned_is_not_purged_in_vain
 *   what was pinned once is kept for ever              what_is_no_longer_pinned_returns
 *   the child of a fork believes its parent            a_child_starts_afresh, a_child_has_limits_of_its_own
 *   the clock is read in the handler of a fork         a_child_has_limits_of_its_own
 *   what is far from the limit returns all the same    far_from_the_limit_nothing_returns
 *   a limit that was lifted holds                      a_limit_that_was_lifted_is_none
 *   who does not grow sees no change of a limit        a_limit_that_is_set_later_is_seen
 *   one of several threads asks                        among_threads_it_is_the_purge_threads_work
 *   files are opened in a signal handler               handlers_open_no_files
 *   files are opened under the program's own filter    own_filters_meet_no_files, also by the purge thread
 */
#include "../../clock.h" /* first: it says _GNU_SOURCE */

#include "group_root.h"

#include "ace/pressure.h"
#include "another.h"
#include "blocks.h"
#include "heap/alloc.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/pressure.h"
#include "heap/purger.h"
#include "span/span.h"
#include "watch/decisions.h"

#include <hakmem/hakmem.h>

#define LIMIT "67108864" /* 64 MiB: what is held is to stay below 56 */

static void set(const char *option, const char *value) { CHECK_EQ(hak_option_set(option, value), 0); }

static void begin(const char *limit) {
    if (!enter_root()) SKIP("this user may not have a root of its own");
    hak_free(hak_malloc(1));
    set("decay", "60min");
    set("huge_pages", "never");
    set("purge_thread", "on");
    set("pressure", "on");
    put_group(limit, "max", "1000", "0.00");
}

static void *take_mib(size_t mib) {
    char *block = heap_alloc(MIB(mib), NULL);
    CHECK(block != NULL);
    for (size_t at = 0; at < MIB(mib); at += 4096) block[at] = 'x';
    return block;
}

static uint64_t dirty_mib(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.dirty_pages * PAGE_BYTES / MIB(1);
}

static uint64_t near_limit(void) { return counter_read(&pressure_counts[ACE_PRESSURE_LIMIT]); }

/* No file of the group stays open. */
static void check_none_kept(void) {
    for (int file = OS_KEPT_DESCRIPTOR_MIN; file < OS_KEPT_DESCRIPTOR_MIN + 20; file++) CHECK_AT(fcntl(file, F_GETFD) < 0, file);
}

/* What is left of 28 free MiB as others are taken: pressure leaves nothing. */
enum { LEFT_MIB = 5 };

/* 28 MiB are free in two runs, and 30 are needed: less is free than a purge thread is started for. It is a new peak, before which three
 * quarters of 30 MiB are returned, pressure or not. */
static void grow_beside_free_memory(void) {
    void *first = take_mib(14), *between = take_mib(2), *second = take_mib(14), *behind = take_mib(2);
    heap_free(first, NULL);
    heap_free(second, NULL);
    CHECK(dirty_mib() >= 28 && between != NULL && behind != NULL);
    take_mib(30);
}

/* ---- where there is a limit ----------------------------------------------------------------------------- */

static void grow_below_a_limit(void) {
    begin(LIMIT);
    errno = 12345;
    grow_beside_free_memory();
    CHECK_EQ(errno, 12345);
    CHECK(dirty_mib() == 0 && near_limit() == 1 && !purger_is_running());
    CHECK_EQ(counter_read(&decision_counts[ACE_REASON_NEAR_LIMIT]), 1);
    leave_root();
}
TEST(free_memory_makes_room_below_a_limit) { in_child_with_root(grow_below_a_limit); }

static void grow_below_the_high_mark(void) {
    begin("max");
    put_group("max", LIMIT, "1000", "0.00");
    grow_beside_free_memory();
    CHECK(dirty_mib() == 0 && counter_read(&pressure_counts[ACE_PRESSURE_HIGH]) == 1);
    leave_root();
}
TEST(the_high_mark_is_a_limit) { in_child_with_root(grow_below_the_high_mark); }

/* The group's other processes grow. */
static void grow_beside_others(void) {
    begin("134217728"); /* 128 MiB: to be used up to 112 */
    void *freed = take_mib(30), *block = take_mib(2);
    heap_free(freed, NULL);
    CHECK(dirty_mib() >= 28 && near_limit() == 0);
    put(GROUP "memory.current", "110000000");
    block = take_mib(44); /* behind what is free: more than half of what was left is taken */
    CHECK(block != NULL && dirty_mib() == 0 && near_limit() == 1);
    leave_root();
}
TEST(what_is_used_is_asked_again) { in_child_with_root(grow_beside_others); }

/* As much as the limit leaves room for is in use; returns 10 MiB of it. */
static void *hold_near_a_limit(void) {
    begin(LIMIT);
    void *first = take_mib(10);
    take_mib(20);
    take_mib(26);
    CHECK(near_limit() == 1 && dirty_mib() == 0);
    return first;
}

static void free_near_a_limit(void) {
    void *first = hold_near_a_limit();
    heap_free(first, NULL); /* no growth follows */
    CHECK(dirty_mib() == 0 && near_limit() == 2);
    leave_root();
}
TEST(free_memory_returns_near_a_limit) { in_child_with_root(free_near_a_limit); }

/* 40 MiB in small blocks, of which one in PINNING stays when they are freed. */
enum { SMALL_BYTES = 64, SMALL = (int)(MIB(40) / SMALL_BYTES), PINNING = 4, PINNED_MIB = 30, SHARE_MIB = 7 };
static void *small[SMALL];

static void take_some_small(int count) {
    for (int i = 0; i < count; i++)
        if (small[i] == NULL) CHECK((small[i] = heap_alloc(SMALL_BYTES, NULL)) != NULL);
}
static void take_small(void) { take_some_small(SMALL); }

static void free_small(void) {
    for (int i = 0; i < SMALL; i++) {
        if (i % PINNING == 0) continue;
        heap_free(small[i], NULL);
        small[i] = NULL;
    }
}

static void *pin_near_a_limit(void) {
    begin(LIMIT);
    take_small();
    void *large = take_mib(12);
    take_mib(6); /* more than 56 are held */
    const uint64_t before = near_limit();
    free_small();
    CHECK(footprint_returnable() >= MIB(PINNED_MIB - 2));
    CHECK(near_limit() > before && near_limit() <= before + PINNED_MIB / SHARE_MIB + 1);
    return large;
}

static void free_beside_what_is_pinned(void) {
    heap_free(pin_near_a_limit(), NULL);
    CHECK_EQ(dirty_mib(), 0);
    leave_root();
}
TEST(what_is_pinned_is_not_purged_in_vain) { in_child_with_root(free_beside_what_is_pinned); }

static void free_what_was_pinned(void) {
    pin_near_a_limit();
    take_small();
    const uint64_t before = near_limit();
    free_small();
    CHECK(near_limit() > before);
    leave_root();
}
TEST(what_is_no_longer_pinned_returns) { in_child_with_root(free_what_was_pinned); }

static void *pinned_large;

static void free_in_a_child(void) {
    heap_free(pinned_large, NULL);
    CHECK_EQ(dirty_mib(), 0);
}

static void fork_near_a_limit(void) {
    pinned_large = pin_near_a_limit();
    CHECK_EQ(child_status(free_in_a_child, CHILD_SECONDS), 0);
    leave_root();
}
TEST(a_child_starts_afresh) { in_child_with_root(fork_near_a_limit); }

/* Half of what was pinned near the limit is used again and freed: that is much, but less is held by now. */
static void free_far_from_the_limit(void) {
    heap_free(pin_near_a_limit(), NULL);
    const uint64_t before = near_limit();
    take_some_small(SMALL / 2);
    CHECK(footprint_returnable() <= MIB(PINNED_MIB / 2 + 2));
    free_small();
    CHECK(footprint_returnable() >= MIB(PINNED_MIB - 2));
    CHECK_EQ(near_limit(), before);
    leave_root();
}
TEST(far_from_the_limit_nothing_returns) { in_child_with_root(free_far_from_the_limit); }

static void free_without_a_limit_any_more(void) {
    void *first = hold_near_a_limit();
    put_group("max", "max", "1000", "0.00");
    CHECK_EQ(pressure_pace(), PURGE_DUE); /* as the purge thread finds out */
    heap_free(first, NULL);
    CHECK(dirty_mib() >= 8 && near_limit() == 1);
    leave_root();
}
TEST(a_limit_that_was_lifted_is_none) { in_child_with_root(free_without_a_limit_any_more); }

/* ---- limits that change ---------------------------------------------------------------------------------- */

enum { AROUND_MS = 30 * 1000 };

static void set_a_limit_later(void) {
    begin("max");
    void *first = take_mib(10), *second = take_mib(20);
    take_mib(28);
    put_group(LIMIT, "max", "1000", "0.00");
    clock_pass(AROUND_MS - 1);
    heap_free(second, NULL);
    CHECK(dirty_mib() >= 18 && near_limit() == 0); /* too soon */
    clock_pass(1);
    heap_free(first, NULL);
    CHECK(dirty_mib() == 0 && near_limit() == 1);
    leave_root();
}
TEST(a_limit_that_is_set_later_is_seen) { in_child_with_root(set_a_limit_later); }

static void raise_the_limit(void) {
    void *first = hold_near_a_limit();
    put_group("134217728", "max", "1000", "0.00");
    clock_pass(AROUND_MS);
    heap_free(first, NULL);
    CHECK(dirty_mib() >= 8 && near_limit() == 1);
    leave_root();
}
TEST(a_limit_that_was_raised_is_far) { in_child_with_root(raise_the_limit); }

static uint64_t reads_before_fork;
static void note_reads(void) { reads_before_fork = atomic_load(&clock_reads); }
static void check_reads(void) { CHECK_EQ(atomic_load(&clock_reads), reads_before_fork); }

static void *freed_by_the_child;

static void grow_in_another_group(void) {
    CHECK_EQ(mkdir(GROUP "child", 0700), 0);
    put(GROUP "child/memory.max", LIMIT);
    put(GROUP "child/memory.current", "1000");
    put(GROUP "child/memory.stat", "anon 5\n");
    put("/proc/self/cgroup", "0::/child\n");
    heap_free(freed_by_the_child, NULL);
    CHECK(dirty_mib() >= 8 && near_limit() == 0); /* it has not grown */
    take_mib(12);
    CHECK(dirty_mib() == 0 && near_limit() == 1);
}

static void fork_into_another_group(void) {
    begin("2147483648");
    freed_by_the_child = take_mib(10);
    take_mib(46);
    CHECK_EQ(pthread_atfork(note_reads, NULL, check_reads), 0); /* around hakmem's: a library that wraps the clock may hold a lock there */
    CHECK_EQ(child_status(grow_in_another_group, CHILD_SECONDS), 0);
    CHECK_EQ(near_limit(), 0);
    leave_root();
}
TEST(a_child_has_limits_of_its_own) { in_child_with_root(fork_into_another_group); }

static void free_beside_another(void) {
    void *first = hold_near_a_limit();
    purger_configure(60 * 60 * 1000, false); /* none that would be there sooner */
    start_another();
    heap_free(first, NULL);
    CHECK(dirty_mib() >= 8 && near_limit() == 1);
    end_another();
    leave_root();
}
TEST(among_threads_it_is_the_purge_threads_work) { in_child_with_root(free_beside_another); }

/* ---- where there is none, or nobody asks ------------------------------------------------------------------ */

static void grow_without_a_limit(void) {
    begin("max");
    grow_beside_free_memory();
    CHECK(dirty_mib() >= LEFT_MIB && near_limit() == 0);
    check_none_kept();
    leave_root();
}
TEST(without_a_limit_nothing_is_done) { in_child_with_root(grow_without_a_limit); }

static void grow_with(const char *option, const char *value) {
    begin(LIMIT);
    set(option, value);
    grow_beside_free_memory();
    CHECK(dirty_mib() >= LEFT_MIB && near_limit() == 0);
    check_none_kept();
    leave_root();
}
static void grow_with_pressure_off(void) { grow_with("pressure", "off"); }
static void grow_without_purge_thread(void) { grow_with("purge_thread", "off"); }
static void grow_without_decay(void) { grow_with("decay", "never"); }
TEST(options_keep_it_from_asking) {
    in_child_with_root(grow_with_pressure_off);
    in_child_with_root(grow_without_purge_thread);
    in_child_with_root(grow_without_decay);
}

/* ---- where files may not be opened ------------------------------------------------------------------------ */

static void grow_in_a_handler(int number) {
    (void)number;
    grow_beside_free_memory();
    CHECK(dirty_mib() >= LEFT_MIB);
}

static void be_interrupted(void) {
    begin(LIMIT);
    CHECK(signal(SIGUSR1, grow_in_a_handler) != SIG_ERR && raise(SIGUSR1) == 0);
    check_none_kept();
    take_mib(30);
    CHECK(dirty_mib() == 0 && near_limit() == 1);
    leave_root();
}
TEST(handlers_open_no_files) { in_child_with_root(be_interrupted); }

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */
#include "sandbox.h"

static const struct sandbox_rule no_files[] = {{.call = SYS_openat}, {.call = SYS_pread64}};

static void grow_under_a_filter(void) {
    begin(LIMIT);
    sandbox_enter(SANDBOX_RULES(no_files), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    grow_beside_free_memory();
    CHECK(dirty_mib() >= LEFT_MIB && near_limit() == 0);
    leave_root();
    sandbox_leave();
}
static void hear_under_a_filter(void) {
    begin(LIMIT);
    sandbox_enter(SANDBOX_RULES(no_files), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    CHECK_EQ(pressure_pace(), PURGE_DUE);
    leave_root();
    sandbox_leave();
}
TEST(own_filters_meet_no_files) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    in_child_with_root(grow_under_a_filter);
    in_child_with_root(hear_under_a_filter);
}
#endif
