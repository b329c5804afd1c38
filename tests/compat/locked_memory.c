/* locked_memory.c - mlockall of what is and of what will be, with a small limit, a large one and none.
 *
 * Locked memory cannot be given back by madvise, and every mapping counts in full against RLIMIT_MEMLOCK, reserved
 * addresses too. Each case is a child without CAP_IPC_LOCK, which would lift the limit, unless it says otherwise.
 *
 * Planted defects it was seen to catch:
 *   pages that the kernel would not take back pass for zero   locked_memory_is_used_again
 *   after a few refusals nothing is given back any more       memory_that_is_unlocked_goes_back
 */
#include "child.h"
#include "work.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MCL_ONFAULT /* Linux 4.4 */
#define MCL_ONFAULT 4
#endif

#define EVERYTHING (MCL_CURRENT | MCL_FUTURE)
/* What the process takes at its start counts, and a program has more of it than this one. */
#define LARGE MIB(512)

/* From the kernel's capability.h, which musl's headers do not bring. */
enum { CAPABILITY_VERSION = 0x20080522, CAPABILITY_IPC_LOCK = 14 };
struct capability_header {
    uint32_t version;
    int process;
};
struct capability_sets {
    uint32_t effective, permitted, inheritable;
};

static void drop_the_capability(void) {
    struct capability_header header = {CAPABILITY_VERSION, 0};
    struct capability_sets data[2];
    CHECK_EQ(syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1u << CAPABILITY_IPC_LOCK);
    CHECK_EQ(syscall(SYS_capset, &header, data), 0);
}

static bool try_to_limit_to(rlim_t bytes) {
    struct rlimit limit = {bytes, bytes};
    return setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

static void limit_to(rlim_t bytes) {
    CHECK(try_to_limit_to(bytes));
    drop_the_capability();
}

static rlim_t asked_for;

static void ask_for_the_limit(void) { _exit(try_to_limit_to(asked_for) ? 0 : 1); }

/* Above the hard limit only where the process may raise it. */
static bool can_limit_to(rlim_t bytes) {
    asked_for = bytes;
    return child_status(ask_for_the_limit, CHILD_SECONDS) == 0;
}

static void *work_here(void *unused) {
    work(3, 3000);
    return unused;
}

static void work_in_threads(void) {
    pthread_t thread;
    pthread_attr_t attributes; /* a stack is locked as a whole */
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attributes, KIB(256)), 0);
    bool started = pthread_create(&thread, &attributes, work_here, NULL) == 0;
    pthread_attr_destroy(&attributes);
    work_here(NULL);
    if (started) CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void refused_below_what_is_mapped(void) {
    limit_to(KIB(64));
    CHECK_EQ(mlockall(EVERYTHING), -1);
    CHECK(errno == ENOMEM || errno == EPERM);
    CHECK_EQ(work(1, 5000), 0);
    work_in_threads();
}

TEST(a_small_limit_refuses_and_changes_nothing) { IN_CHILD(refused_below_what_is_mapped); }

/* Takes blocks of 1 MiB until refused, says how many, and frees them. */
static size_t mebibytes_to_be_had(size_t most) {
    void **first = NULL, **block;
    size_t got = 0;
    errno = 0;
    while (got < most && (block = (void **)malloc(MIB(1))) != NULL) {
        memset(block, 1, MIB(1));
        *block = first;
        first = block;
        got++;
    }
    if (got < most) CHECK_EQ(errno, ENOMEM);
    while ((block = first) != NULL) {
        first = (void **)*block;
        free(block);
    }
    return got;
}

/* What is there already stays unlocked; what comes counts. Whoever meets the limit gets NULL, and is served again
 * when it is lifted. */
static void live_until_the_limit(void) {
    limit_to(MIB(4));
    CHECK_EQ(mlockall(MCL_FUTURE), 0);
    size_t got = mebibytes_to_be_had(4096);
    CHECK_AT(got < 4096, got);
    work(5, 3000);
    CHECK_EQ(munlockall(), 0);
    CHECK_AT(mebibytes_to_be_had(256) == 256, got);
    CHECK_EQ(work(6, 3000), 0);
}

TEST(a_small_limit_for_what_will_be) { IN_CHILD(live_until_the_limit); }

static int flags;

static void live_within_a_large_limit(void) {
    limit_to(LARGE);
    free(malloc(1));
    CHECK_EQ(mlockall(flags), 0);
    CHECK_EQ(work(2, 5000), 0);
    work_in_threads();
    size_t first = mebibytes_to_be_had(LARGE >> 20);
    CHECK_AT(first >= LARGE >> 22 && first < LARGE >> 20, first);
    CHECK_AT(mebibytes_to_be_had(LARGE >> 20) >= first - first / 8, first);
    work(4, 5000);
}

TEST(a_large_limit_is_used_and_kept_to) {
    if (!can_limit_to(LARGE)) OMIT("this user may not raise RLIMIT_MEMLOCK");
    flags = EVERYTHING;
    IN_CHILD(live_within_a_large_limit);
}

TEST(a_large_limit_on_faults) {
    if (!can_limit_to(LARGE)) OMIT("this user may not raise RLIMIT_MEMLOCK");
    flags = EVERYTHING | MCL_ONFAULT;
    IN_CHILD(live_within_a_large_limit);
}

static void lock_everything(void) { _exit(mlockall(EVERYTHING) == 0 && malloc(MIB(64)) != NULL ? 0 : 1); }

/* What cannot be given back must not be believed to be zero, and does not grow for ever. */
static void reuse_locked_memory(void) {
    CHECK_EQ(mlockall(EVERYTHING), 0);
    size_t before = resident_bytes();
    for (int round = 0; round < 12; round++) {
        work_leave_dirty(16, MIB(2));
        work_leave_dirty(5000, 2000);
        work_give_back();
        for (size_t size = 16; size <= MIB(4); size *= 4) {
            void *block = calloc(1, size);
            CHECK(block != NULL);
            CHECK_AT(block_is_zero(block, size), size);
            free(block);
        }
        CHECK_EQ(work((uint64_t)round, 3000), 0);
    }
    CHECK_RESIDENT(before, MIB(200));
}

static void unlock_again(void) {
    enum { LOOKS = 12, BLOCKS = 64 };
    static void *blocks[BLOCKS];
    free(malloc(1));
    CHECK_EQ(mlockall(flags), 0);
    for (int i = 0; i < LOOKS; i++) {
        work_leave_dirty(1, 200000);
        work_give_back();
    }
    CHECK_EQ(munlockall(), 0);
    sleep(2); /* what was refused just now is not tried again at once */
    size_t before = resident_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(MIB(1))) != NULL);
        memset(blocks[i], 1, MIB(1));
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    work_give_back();
    CHECK_RESIDENT(before, MIB(8));
}

/* What kept memory from going back keeps it no longer: from all that there was, and from what was mapped anew alone. */
TEST(memory_that_is_unlocked_goes_back) {
    const int ways[] = {EVERYTHING | MCL_ONFAULT, MCL_FUTURE};
    if (child_status(lock_everything, CHILD_SECONDS) != 0) SKIP("not everything may be locked");
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        flags = ways[i];
        IN_CHILD(unlock_again);
    }
}

/* Without a limit by privilege; all of this is locked, and none of it goes back. */
TEST(locked_memory_is_used_again) {
    if (child_status(lock_everything, CHILD_SECONDS) != 0) SKIP("not everything may be locked");
    IN_CHILD(reuse_locked_memory);
}
