/* clock_steps.c - a clock that jumps by hours and years, back and forth, as on machines that were suspended, moved or
 * have no good clock. The clock is interposed, and what the allocator gives back is counted.
 *
 * No crash, no storm of giving back, and memory still comes back after a jump. (A clock that says another hour each time
 * it is asked looks like a process that slept for hours, each time: then everything free goes back, each time.)
 *
 * Planted defects it was seen to catch:
 *   the clock stands still after a step back   memory_comes_back_after_a_step
 *   a step back is taken for a long sleep      no_storm_of_giving_back
 */
#include "child.h"
#include "work.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

static _Atomic int64_t step_seconds;
static atomic_size_t asked, advised, advised_bytes;

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE) {
        atomic_fetch_add(&asked, 1);
        now->tv_sec += atomic_load(&step_seconds);
    }
    return result;
}

int madvise(void *address, size_t bytes, int advice) {
    if (advice == MADV_DONTNEED) {
        atomic_fetch_add(&advised, 1);
        atomic_fetch_add(&advised_bytes, bytes);
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static uint64_t real_ms(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

enum { ROUNDS_PER_STEP = 10 };

/* 0: as it is. The first step is long before the process began. By rounds, since on a busy machine every round would be a step if
 * they came by time. */
static int64_t step_at(size_t round, bool steps) {
    static const int64_t seconds[] = {0, -3600, 10LL * 365 * 86400, 0, 3600, -60, 86400, -10};
    return steps ? seconds[round / ROUNDS_PER_STEP % (sizeof seconds / sizeof seconds[0])] : 0;
}

/* Works for ROUNDS rounds, its memory swinging by 64 MiB; returns how many bytes were given back for each that was used. */
static double give_back_rate(size_t rounds, bool steps) {
    atomic_store(&advised_bytes, 0);
    size_t used = 0;
    for (size_t round = 0; round < rounds; round++) {
        atomic_store(&step_seconds, step_at(round, steps));
        work_leave_dirty(16, MIB(1));
        work_leave_dirty(20000, 500);
        used += MIB(16) + 20000 * 500;
        CHECK_EQ(work(round, 300), 0);
    }
    atomic_store(&step_seconds, 0);
    return (double)atomic_load(&advised_bytes) / (double)used;
}

static atomic_bool second_allocated;

static void *allocate_and_wait(void *unused) {
    free(malloc(1));
    atomic_store(&second_allocated, true);
    while (true) pause();
    return unused;
}

/* Where one thread allocates alone more is kept. */
static void start_second_thread(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, allocate_and_wait, NULL), 0);
    while (!atomic_load(&second_allocated)) usleep(100);
}

static void work_by_a_clock_that_steps(void) {
    start_second_thread();
    double steady = give_back_rate(40, false), stepping = give_back_rate(160, true);
    check_say("     given back of each byte used: %.3f by a steady clock, %.3f by one that steps", steady,
              stepping);
    CHECK(atomic_load(&asked) > 0);
    CHECK(stepping < 4 * steady + 0.35); /* a storm gives back all of what was used */
}

static void stay_after_a_step(int64_t seconds) {
    start_second_thread();
    size_t before = resident_bytes();
    work_leave_dirty(64, MIB(1));
    CHECK(work(1, 500) == 0 && resident_bytes() > before + MIB(32));
    atomic_store(&step_seconds, seconds);
    uint64_t began = real_ms();
    while (resident_bytes() > before + MIB(20) && real_ms() < began + 15000) {
        CHECK_EQ(work(1, 200), 0);
        work_leave_dirty(8, KIB(128)); /* beyond all stacks: where there is no purge thread, slow paths give back */
        usleep(10000);
    }
    check_say("     after a step of %lld s memory was back in %llu ms", (long long)seconds,
              (unsigned long long)(real_ms() - began));
    CHECK(resident_bytes() <= before + MIB(20));
}

HELPER(work_by_steps) { work_by_a_clock_that_steps(); }
HELPER(step_back) { stay_after_a_step(-3600); }
HELPER(step_forth) { stay_after_a_step(10LL * 365 * 86400); }

/* Runs each helper with a purge thread and without; most of the time they wait, so all at once if they may. */
static void run_helpers(const char *const *helpers, size_t count, bool at_once) {
    pid_t children[8];
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    for (size_t i = 0; i < 2 * count; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            setenv("HAKMEM_DECAY", "50ms", 1); /* or a process that works keeps everything for seconds */
            if (i % 2) setenv("HAKMEM_PURGE_THREAD", "off", 1);
            become_helper(helpers[i / 2]);
        }
        if (!at_once) CHECK_EQ(child_status_now(children[i]), 0);
    }
    for (size_t i = 0; at_once && i < 2 * count; i++) CHECK_EQ(child_status_now(children[i]), 0);
}

TEST(no_storm_of_giving_back) {
    static const char *const helpers[] = {"work_by_steps"};
    run_helpers(helpers, 1, false);
}

TEST(memory_comes_back_after_a_step) {
    static const char *const helpers[] = {"step_back", "step_forth"};
    run_helpers(helpers, 2, true);
}
