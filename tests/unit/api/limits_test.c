/* limits_test.c - ulimit -v and ulimit -d: as much memory as the limit leaves, then NULL and ENOMEM.
 *
 * Each case is a fresh process that takes memory until it is refused, gives it back and takes it
 * again. Under a sanitizer the shadow alone exceeds any limit; these tests are skipped there.
 *
 * Planted defects it was seen to catch:
 *   a fixed reservation larger than the limit   all: the child gets nothing
 *   a refused reservation is not noticed        all: the child dies by SIGSEGV
 *   freed memory is not used again              all: the second round gets less
 *   free memory keeps its addresses             ever_larger_blocks_under_a_limit
 *   metadata gets no addresses of free memory   each_size_gets_what_the_last_left
 *   metadata is mapped with the first block     a_limit_before_the_first_block
 */
#include "blocks.h"

#include <sys/resource.h>
#include <sys/wait.h>

enum { MOST = 200000, CHILD_SECONDS = 60 };
static void *blocks[MOST];

/* Takes blocks of up to LARGEST bytes until refused or CAP bytes live; returns what it got. */
static size_t take(size_t *count, size_t largest, size_t cap) {
    struct rng rng = {check_now.seed};
    size_t got = 0;
    for (*count = 0; *count < MOST && got < cap; ++*count) {
        size_t size = largest / 2 + rng_below(&rng, largest / 2) + 1;
        errno = 0;
        void *block = blocks[*count] = hak_malloc(size);
        if (block == NULL) {
            CHECK_EQ(errno, ENOMEM);
            break;
        }
        size = hak_usable_size(block);
        memset(block, 0, size);
        block_fill(block, 16, block_key(block, *count));
        got += size;
    }
    return got;
}

static void give_back(size_t count) {
    for (size_t i = 0; i < count; i++) {
        CHECK(block_holds(blocks[i], 16, block_key(blocks[i], i)));
        errno = 4711;
        hak_free(blocks[i]);
        CHECK_EQ(errno, 4711);
    }
}

/* A quarter is little; what matters is that it is not nothing, and no less the second time. */
static void use_all_there_is(size_t limit) {
    static const size_t largest[] = {MIB(1), 4000, KIB(100), 200, MIB(3)};
    size_t cap = limit < MIB(192) ? limit : MIB(192), count;
    for (size_t i = 0; i < sizeof largest / sizeof largest[0]; i++) {
        size_t most = largest[i] < 1000 ? MIB(16) : cap;
        size_t first = take(&count, largest[i], most);
        give_back(count);
        if (limit >= MIB(64)) CHECK_AT(first >= (most < limit / 4 ? most : limit / 4), first >> 10);
        size_t second = take(&count, largest[i], most);
        give_back(count);
        size_t piece = largest[i] > MIB(1) ? largest[i] : MIB(1); /* a block, or two slabs: how they lie differs */
        CHECK_AT(second + piece >= first - first / 8, second >> 10);
    }
}

static void *use_some(void *unused) {
    size_t size = 16;
    void *block;
    while (size < MIB(2) && (block = hak_malloc(size)) != NULL) {
        memset(block, 1, size);
        hak_free(block);
        size *= 2;
    }
    return unused;
}

/* Small stacks: libc keeps those of ended threads, and they count too. */
static void start_threads(void) {
    pthread_t threads[8];
    pthread_attr_t small_stack;
    size_t count = 0;
    CHECK_EQ(pthread_attr_init(&small_stack), 0);
    CHECK_EQ(pthread_attr_setstacksize(&small_stack, KIB(128)), 0);
    while (count < 8 && pthread_create(&threads[count], &small_stack, use_some, NULL) == 0) count++;
    while (count > 0) pthread_join(threads[--count], NULL);
    pthread_attr_destroy(&small_stack);
}

static size_t limit_of(int resource) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(resource, &limit), 0);
    return limit.rlim_cur;
}

static void limit_to(int resource, size_t bytes) {
    struct rlimit limit = {bytes, bytes};
    CHECK_EQ(setrlimit(resource, &limit), 0);
}

/* Ever larger blocks, one at a time, with small ones between that stay: what one leaves is too short for the next. */
HELPER(take_ever_larger_blocks) {
    enum { ROUNDS = 20, STEPS = 4, BETWEEN = 50 };
    void *between[STEPS * BETWEEN] = {NULL};
    for (size_t i = 0; i < ROUNDS * STEPS; i++) {
        const size_t bytes = (i % STEPS + 1) * MIB(60);
        char *block = hak_malloc(bytes);
        CHECK_AT(block != NULL, i);
        for (size_t at = 0; at < bytes; at += 4096) block[at] = 'x';
        for (size_t k = 0; k < BETWEEN; k++) {
            void **small = &between[i % STEPS * BETWEEN + k];
            hak_free(*small);
            *small = hak_malloc(KIB(50));
            CHECK_AT(*small != NULL, i);
        }
        hak_free(block);
    }
}

/* Blocks of SIZE until refused, each of which leads to the one before; returns how many bytes they had. */
static size_t fill_with(size_t size) {
    size_t got = 0;
    void **last = NULL, **block;
    for (; (block = hak_malloc(size)) != NULL; last = block, got += size) *block = last;
    for (; last != NULL; last = block) {
        block = *last;
        hak_free(last);
    }
    return got;
}

/* Small ones need metadata, and of each size others. */
HELPER(take_one_size_after_the_other) {
    static const size_t sizes[] = {16, 32, 64, 128, 1040, 4000, 48};
    const size_t first = fill_with(KIB(300));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const size_t got = fill_with(sizes[i]);
        CHECK_AT(got >= first - first / 8, got >> 10);
    }
}

/* Less than the process has already: nothing more can be mapped. */
HELPER(take_after_its_own_limit) {
    limit_to(RLIMIT_AS, MIB(20));
    size_t first = fill_with(64);
    CHECK_AT(first >= MIB(24), first >> 10);
    CHECK_AT(fill_with(KIB(300)) >= MIB(24), first >> 10);
}

HELPER(live_under_an_address_space_limit) {
    start_threads();
    use_all_there_is(limit_of(RLIMIT_AS));
    start_threads();
}

HELPER(live_under_a_data_limit) {
    start_threads();
    use_all_there_is(limit_of(RLIMIT_DATA));
    start_threads();
}

static void run_helper(int resource, size_t bytes, const char *helper) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        limit_to(resource, bytes);
        if (helper) execl("/proc/self/exe", "limits_test", helper, (char *)NULL);
        if (helper) _exit(126);
        signal(SIGALRM, SIG_DFL);
        alarm(CHILD_SECONDS);
        use_all_there_is(bytes);
        _exit(0);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    if (status == 127 << 8 && bytes < MIB(32)) return; /* the loader could not map the libraries */
    if (status != 0) check_say("     limit %zu MiB: child ended with status %#x", bytes >> 20, status);
    CHECK_EQ(status, 0);
}

#define NEEDS_LIMITS()                                                                                       \
    do {                                                                                                     \
        if (CHECK_SHADOWED) OMIT("shadow memory exceeds any limit");                                         \
        if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");                                           \
    } while (0)

TEST(address_space_from_64_mib_to_4_gib) {
    NEEDS_LIMITS();
    for (size_t limit = MIB(64); limit <= GIB(4); limit *= 2)
        run_helper(RLIMIT_AS, limit, "live_under_an_address_space_limit");
}

/* Too little for anything but refusals. */
TEST(address_space_of_a_few_mib) {
    NEEDS_LIMITS();
    for (size_t limit = MIB(8); limit < MIB(64); limit += MIB(8))
        run_helper(RLIMIT_AS, limit, "live_under_an_address_space_limit");
}

TEST(data_from_16_mib_to_1_gib) {
    NEEDS_LIMITS();
    for (size_t limit = MIB(16); limit <= GIB(1); limit *= 2)
        run_helper(RLIMIT_DATA, limit, "live_under_a_data_limit");
}

/* The limit falls when the allocator has long since reserved what it wanted. What is still free of
 * that may be used or not: the child only has to behave. */
TEST(a_limit_set_by_the_process_itself) {
    NEEDS_LIMITS();
    hak_free(hak_malloc(MIB(1)));
    for (size_t limit = MIB(16); limit < MIB(64); limit += MIB(16)) {
        run_helper(RLIMIT_AS, limit, NULL);
        run_helper(RLIMIT_DATA, limit, NULL);
    }
}

TEST(a_limit_before_the_first_block) {
    NEEDS_LIMITS();
    if (limit_of(RLIMIT_AS) != SIZE_MAX) SKIP("there is a limit already");
    run_helper(RLIMIT_AS, SIZE_MAX, "take_after_its_own_limit");
}

/* 240 MiB, the program, and a little. */
TEST(ever_larger_blocks_under_a_limit) {
    NEEDS_LIMITS();
    run_helper(RLIMIT_AS, MIB(290), "take_ever_larger_blocks");
    run_helper(RLIMIT_DATA, MIB(270), "take_ever_larger_blocks");
}

TEST(each_size_gets_what_the_last_left) {
    NEEDS_LIMITS();
    run_helper(RLIMIT_AS, MIB(64), "take_one_size_after_the_other");
    run_helper(RLIMIT_DATA, MIB(64), "take_one_size_after_the_other");
}
