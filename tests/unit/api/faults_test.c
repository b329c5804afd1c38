/* faults_test.c - the kernel says no: the k-th mmap, munmap, mprotect, madvise, mremap,
 * pthread_create or membarrier fails, once or for ever, in a running process and from its first instruction on;
 * and every other call of the allocator's.
 *
 * Built with tests/faults/fail_calls.c, which takes the place of libc's functions.
 *
 * Each case is a process of its own. Under the fault an allocation may return NULL with ENOMEM and
 * nothing else; every block that was given keeps its contents; free keeps errno. Once the fault is
 * lifted everything works again. k rises until the workload makes fewer calls than that, at most to
 * 200; doubled beyond 4, or every k with --scale=2.
 *
 * Planted defects it was seen to catch:
 *   a refused mmap or mprotect is not noticed   their sweeps, both starts: a child dies by SIGSEGV
 *   a refusal gives EINVAL                      the same
 *   refused advice reaches errno                the sweep of madvise, refused_returns_...
 *   a refused start is remembered for ever      the sweep of mmap, after the fault is lifted
 *   a realloc that fails frees its block        the sweeps for ever
 *   memory is lost when advice is refused       refused_returns_lose_no_memory
 *   pages are lost when commitment is refused   refused_commitment_loses_no_address_space
 */
#include "../../faults/fail_calls.h"
#include "blocks.h"
#include "child.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { SLOTS = 160, WORKERS = 3, NOT_REACHED = 77 };

/* The workload. STRICT: no allocation may fail. Slots belong to one thread at a time. */
static bool strict;
static struct slot {
    void *block;
    size_t bytes;
    uint64_t key;
} slots[WORKERS][SLOTS];

/* How much of a block is filled: where that takes a second, the beginning of a large one. */
static size_t filled(size_t bytes) { return CHECK_SHADOWED && bytes > KIB(64) ? KIB(64) : bytes; }

static void release(struct slot *slot) {
    if (slot->block == NULL) return;
    CHECK(hak_usable_size(slot->block) == slot->bytes);
    CHECK(block_holds(slot->block, filled(slot->bytes), slot->key));
    errno = 4711;
    hak_free(slot->block);
    CHECK_EQ(errno, 4711);
    slot->block = NULL;
}

static void fill_slot(struct slot *slot, void *block) {
    slot->block = block;
    slot->bytes = hak_usable_size(block);
    slot->key = block_key(block, 1);
    block_fill(block, filled(slot->bytes), slot->key);
}

/* A new block by one of the functions; the old one was released. */
static void acquire(struct slot *slot, struct rng *rng, size_t size) {
    void *block = NULL;
    size_t which = rng_below(rng, 8), alignment = (size_t)64 << rng_below(rng, 12);
    errno = 0;
    if (which == 0) block = hak_calloc(1, size);
    if (which == 0 && block) CHECK(block_is_zero(block, size));
    if (which == 1) block = hak_memalign(alignment, size);
    if (which == 2) errno = hak_posix_memalign(&block, alignment, size);
    if (which >= 3) block = hak_malloc(size);
    if (block == NULL) {
        CHECK_EQ(errno, ENOMEM);
        CHECK_AT(!strict, size);
        return;
    }
    CHECK(hak_usable_size(block) >= size);
    fill_slot(slot, block);
}

/* On failure the block stays. */
static void resize(struct slot *slot, size_t size) {
    size_t kept = size < slot->bytes ? size : slot->bytes;
    errno = 0;
    void *block = hak_realloc(slot->block, size);
    if (block == NULL) {
        CHECK_EQ(errno, ENOMEM);
        CHECK_AT(!strict, size);
        return;
    }
    CHECK(block_holds(block, filled(kept) & ~(size_t)7, slot->key));
    fill_slot(slot, block);
}

static size_t pick_size(struct rng *rng) {
    size_t dice = rng_below(rng, 120);
    if (dice == 0) return MIB(1) + rng_below(rng, MIB(4));
    if (dice < 5) return KIB(64) + rng_below(rng, KIB(500));
    return rng_size(rng, 0);
}

static void *work(void *argument) {
    struct slot *own = slots[(size_t)(uintptr_t)argument];
    struct rng rng = {check_now.seed + (uintptr_t)argument};
    for (size_t left = 250; left > 0; left--) {
        struct slot *slot = &own[rng_below(&rng, SLOTS)];
        if (slot->block && rng_below(&rng, 3) == 0) {
            resize(slot, pick_size(&rng));
        } else {
            release(slot);
            acquire(slot, &rng, pick_size(&rng));
        }
    }
    return NULL;
}

/* A block that grows, with another behind it. */
static void grow_before(struct slot *behind, struct rng *rng) {
    struct slot *slot = &slots[0][0];
    release(slot);
    for (size_t bytes = MIB(5); bytes <= MIB(20); bytes *= 2) {
        if (slot->block == NULL)
            acquire(slot, rng, bytes);
        else
            resize(slot, bytes);
        release(behind);
        acquire(behind, rng, MIB(1));
    }
}

/* Far enough to be moved by the kernel: sooner or later there is no room behind it. */
static void grow(void) {
    struct rng rng = {check_now.seed};
    size_t times = 1;
    do grow_before(&slots[0][times], &rng);
    while (++times <= 8 && fail_counted(FAIL_MREMAP) == 0);
    /* Enough for huge pages: whether the program touches what it has is looked at first. */
    release(&slots[0][1]);
    acquire(&slots[0][1], &rng, MIB(24));
}

/* Has blocks in its stacks, and does nothing: whoever gives memory back takes them, after a barrier. */
static atomic_bool asleep, may_end;
static void *sleep_with_blocks(void *unused) {
    void *blocks[4];
    for (int i = 0; i < 4; i++) blocks[i] = hak_malloc(1000);
    for (int i = 0; i < 4; i++) hak_free(blocks[i]);
    atomic_store(&asleep, true);
    while (!atomic_load(&may_end)) sched_yield();
    return unused;
}

static void collect_beside_a_sleeper(void) {
    pthread_t sleeper;
    atomic_store(&asleep, false);
    atomic_store(&may_end, false);
    bool started = pthread_create(&sleeper, NULL, sleep_with_blocks, NULL) == 0;
    while (started && !atomic_load(&asleep)) sched_yield();
    hak_collect();
    atomic_store(&may_end, true);
    if (started) pthread_join(sleeper, NULL);
}

/* Two helpers and this thread; a helper that cannot start has its work done here. Their blocks are
 * released by this thread after they ended. */
static void run_workload(void) {
    pthread_t threads[WORKERS];
    bool started[WORKERS] = {false};
    for (size_t i = 1; i < WORKERS; i++)
        started[i] = pthread_create(&threads[i], NULL, work, (void *)(uintptr_t)i) == 0;
    for (size_t i = 0; i < WORKERS; i++)
        if (!started[i]) work((void *)(uintptr_t)i);
    for (size_t i = 1; i < WORKERS; i++)
        if (started[i]) pthread_join(threads[i], NULL);
    grow();
    for (size_t i = 0; i < WORKERS; i++)
        for (size_t j = 0; j < SLOTS; j++) release(&slots[i][j]);
    collect_beside_a_sleeper();
}

static void run_strictly_without_fault(void) {
    fail_disarm();
    strict = true;
    run_workload();
}

static enum fail_kind kind;
static unsigned long at;
static bool ever;
static int error;

/* Exits with NOT_REACHED when there was no AT-th call. */
static void run_with_fault(void) {
    fail_arm(kind, at, ever, error);
    run_workload();
    bool reached = fail_failed() > 0;
    run_strictly_without_fault();
    if (!reached) _exit(NOT_REACHED);
}

/* This process without its threads and before its first allocation, or a fresh one. */
static int run_child(void (*body)(void)) {
    int status = child_status(body, CHILD_SECONDS);
    if (status != 0 && status != NOT_REACHED << 8) {
        check_say("     %s at %lu %s: child ended with status %#x", fail_names[kind], at,
                  ever ? "ever" : "once", (unsigned)status);
        CHECK_EQ(status, 0);
    }
    return status;
}

/* Every k with --scale=2; else the first ones, and then a share of the others; where each costs a second, the first alone. */
static unsigned long next_after(unsigned long k) {
#ifdef CHECK_TSAN
    return check_now.scale > 1 ? k + 1 : ULONG_MAX;
#else
    return check_now.scale > 1 || k < (CHECK_SHADOWED ? 3 : 4) ? k + 1 : 2 * k;
#endif
}

/* Whether there was a first call. */
static bool sweep(void (*body)(void), unsigned long last) {
    for (at = 1; at <= last; at = next_after(at))
        if (run_child(body) != 0) break;
    return at > 1;
}

/* A workload without such calls would test nothing. */
static void sweep_some(void (*body)(void), unsigned long last) { CHECK_AT(sweep(body, last), kind); }

#define SWEEP(title, which, how_long)                                                                        \
    TEST(the_kth_##title) {                                                                                  \
        kind = which;                                                                                        \
        ever = how_long;                                                                                     \
        error = 0;                                                                                           \
        sweep_some(run_with_fault, 200);                                                                     \
    }
SWEEP(mmap_fails_once, FAIL_MMAP, false)
SWEEP(mmap_fails_for_ever, FAIL_MMAP, true)
SWEEP(munmap_fails_once, FAIL_MUNMAP, false)
SWEEP(munmap_fails_for_ever, FAIL_MUNMAP, true)
SWEEP(mprotect_fails_once, FAIL_MPROTECT, false)
SWEEP(mprotect_fails_for_ever, FAIL_MPROTECT, true)
SWEEP(madvise_fails_once, FAIL_MADVISE, false)
SWEEP(madvise_fails_for_ever, FAIL_MADVISE, true)
SWEEP(mremap_fails_once, FAIL_MREMAP, false)
SWEEP(mremap_fails_for_ever, FAIL_MREMAP, true)
SWEEP(thread_cannot_start_once, FAIL_PTHREAD_CREATE, false)
SWEEP(thread_cannot_start_for_ever, FAIL_PTHREAD_CREATE, true)
SWEEP(membarrier_fails_once, FAIL_MEMBARRIER, false)
SWEEP(membarrier_fails_for_ever, FAIL_MEMBARRIER, true)
SWEEP(call_of_any_kind_fails_once, FAIL_ANY, false)
SWEEP(call_of_any_kind_fails_for_ever, FAIL_ANY, true)

/* A sandbox that refuses a call answers EPERM, an old kernel EINVAL or ENOSYS. What the program
 * sees is still ENOMEM. Where a process costs a second each kind of call has one of them. */
TEST(other_refusals_are_enomem_too) {
    static const int errors[] = {EPERM, EINVAL, ENOSYS, EAGAIN, EACCES};
    enum { ERRORS = sizeof errors / sizeof errors[0] };
    ever = true;
    for (int i = 0; i < ERRORS * FAIL_ANY; i++) {
        if (CHECK_SHADOWED && check_now.scale == 1 && i / FAIL_ANY != i % FAIL_ANY % ERRORS) continue;
        error = errors[i / FAIL_ANY];
        kind = (enum fail_kind)(i % FAIL_ANY);
        for (at = 1; at <= (CHECK_SHADOWED ? 1 : 16); at *= 4)
            if (run_child(run_with_fault) != 0) break;
    }
}

/* A fresh process, in which even the allocator's own start may be refused. */
static void work_from_the_start(void) {
    signal(SIGALRM, SIG_DFL);
    alarm(CHILD_SECONDS);
    run_workload();
    bool reached = fail_failed() > 0;
    run_strictly_without_fault();
    if (!reached) _exit(NOT_REACHED);
}

HELPER(workload_from_the_start) { work_from_the_start(); }

HELPER(strict_workload_from_the_start) {
    strict = true;
    work_from_the_start();
}

static void execute(const char *helper) {
    char at_text[24], seed_text[40];
    snprintf(at_text, sizeof at_text, "%lu", at);
    snprintf(seed_text, sizeof seed_text, "--seed=%lu", check_now.seed);
    setenv("FAIL_CALL", fail_names[kind], 1);
    setenv("FAIL_AT", at_text, 1);
    setenv("FAIL_FOR", ever ? "ever" : "once", 1);
    execl("/proc/self/exe", "faults_test", seed_text, helper, (char *)NULL);
    _exit(126);
}

static void execute_fresh(void) { execute("workload_from_the_start"); }
static void execute_fresh_strictly(void) { execute("strict_workload_from_the_start"); }

static void sweep_fresh(bool for_ever) {
    static const enum fail_kind kinds[] = {FAIL_MMAP, FAIL_MPROTECT, FAIL_MADVISE, FAIL_PTHREAD_CREATE,
                                           FAIL_ANY};
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    ever = for_ever;
    error = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        kind = kinds[i];
        sweep_some(execute_fresh, CHECK_SHADOWED ? 12 : 50);
    }
}

TEST(a_start_with_one_refusal) { sweep_fresh(false); }
TEST(a_start_with_nothing_but_refusals) { sweep_fresh(true); }

/* No allocation fails by them. The workload is sure to make some; others it makes by chance, as it sleeps or waits, or never. */
TEST(calls_that_ask_for_no_memory_are_refused) {
    static const bool sure[FAIL_KINDS] = {
        [FAIL_MINCORE] = true,       [FAIL_PRCTL] = true,       [FAIL_GETRLIMIT] = true,
        [FAIL_CLOCK_GETTIME] = true, [FAIL_SIGPROCMASK] = true,
    };
    if (CHECK_SHADOWED) OMIT("the sanitizer makes such calls too, and ends the process");
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    error = 0;
    for (int which = FAIL_ANY + 1; which < FAIL_KINDS; which++) {
        kind = (enum fail_kind)which;
        for (int turn = 0; turn < 2; turn++) {
            ever = turn;
            CHECK_AT(sweep(execute_fresh_strictly, 12) || !sure[which], which);
        }
    }
}

/* Nothing may be given back or moved: the memory then stays, and is used again. */
static void churn_without_returns(void) {
    static void *blocks[1000];
    size_t before = 0;
    fail_arm(kind, 1, true, 0);
    for (size_t round = 0; round < 40; round++) {
        size_t size = (size_t)4096 << round % 11, count = MIB(16) / size;
        count = count < 1000 ? count : 1000;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = hak_malloc(size);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 1, size);
        }
        for (size_t i = 0; i < count; i++) {
            errno = 4711;
            hak_free(blocks[i]);
            CHECK_EQ(errno, 4711);
        }
        if (round == 10) before = resident_bytes();
    }
    CHECK_RESIDENT(before, MIB(64));
}

TEST(refused_returns_lose_no_memory) {
    static const enum fail_kind kinds[] = {FAIL_MUNMAP, FAIL_MADVISE, FAIL_MREMAP, FAIL_PTHREAD_CREATE,
                                           FAIL_MEMBARRIER};
    at = 1;
    ever = true;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        kind = kinds[i];
        run_child(churn_without_returns);
    }
}

/* Nothing can be had beyond what is committed. A range that is lost at each refusal shows in the
 * reserved address space, or in the strict workload afterwards. */
static void ask_in_vain(void) {
    static const size_t sizes[] = {MIB(4), 100, KIB(64), KIB(300), 5000};
    strict = true;
    run_workload();
    strict = false;
    fail_arm(FAIL_ANY, 1, true, 0);
    size_t before = address_space_bytes();
    for (size_t i = 0; i < (CHECK_SHADOWED ? 3000 : 30000); i++) {
        errno = 0;
        void *block = hak_malloc(sizes[i % 5]);
        if (block == NULL) CHECK_EQ(errno, ENOMEM);
        hak_free(block);
    }
    CHECK(address_space_bytes() <= before + MIB(64));
    run_strictly_without_fault();
    CHECK(CHECK_SHADOWED || address_space_bytes() <= before + MIB(512));
}

TEST(refused_commitment_loses_no_address_space) {
    kind = FAIL_ANY;
    at = 1;
    ever = true;
    run_child(ask_in_vain);
}

/* The shim itself: a direct call is counted and fails at its turn. */
TEST(the_shim_fails_the_call_it_is_told) {
    fail_arm(FAIL_MMAP, 2, false, 0);
    for (int i = 1; i <= 3; i++) {
        void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK_AT((page == MAP_FAILED) == (i == 2), i);
        if (page != MAP_FAILED) munmap(page, 4096);
    }
    CHECK_EQ(fail_counted(FAIL_MMAP), 3);
    CHECK_EQ(fail_failed(), 1);
    fail_disarm();
}
