/* misuse_test.c - what must end the process: a line `hakmem: ...` on stderr, then SIGABRT.
 *
 * Each misuse is one short function, run in a child. Wild pointers are found at once. A pointer into
 * a small block and a second free may lie in a cache for a while without harm; they must be found at
 * the latest when everything that was allocated goes through free (run_all_blocks_through).
 *
 * Planted defects it was seen to catch:
 *   a wild pointer is ignored                 wild_pointers_*
 *   it ends in SIGSEGV, or without the line   all
 *   the second free is never found            double_free_*
 *   interior pointers are rounded down        *_of_a_small_block, *_of_a_medium_block, *_of_a_large_block
 *   checked builds believe what free is told  what_free_is_told_is_checked
 */
#include "blocks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { CHILD_SECONDS = CHECK_SHADOWED ? 120 : 30 };

static uintptr_t argument;
static char stderr_text[4000];

/* Runs MISUSE in a child; says how it ended and keeps what it wrote to stderr. */
static int run_misuse(void (*misuse)(void)) {
    int ends[2], status = -1;
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGALRM, SIG_DFL);
        alarm(CHILD_SECONDS);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        misuse();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    ssize_t more;
    while ((more = read(ends[0], stderr_text + length, sizeof stderr_text - 1 - length)) > 0)
        length += (size_t)more;
    stderr_text[length] = '\0';
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    return status;
}

/* The last line, without anything after it. */
static bool last_line_is_ours(void) {
    size_t length = strlen(stderr_text);
    if (length < 2 || stderr_text[length - 1] != '\n') return false;
    const char *line = stderr_text + length - 1;
    while (line > stderr_text && line[-1] != '\n') line--;
    return strncmp(line, "hakmem: ", 8) == 0;
}

static void must_abort(void (*misuse)(void), uintptr_t value) {
    argument = value;
    int status = run_misuse(misuse);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !last_line_is_ours()) {
        check_say("     argument %#lx, status %#x, stderr: %s", (unsigned long)value, (unsigned)status,
                  stderr_text);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
        CHECK(last_line_is_ours());
    }
}

static void free_argument(void) {
    hak_free(hak_malloc(100)); /* a heap that is in use */
    hak_free((void *)argument);
}

static void free_argument_first(void) { hak_free((void *)argument); }

static void realloc_argument(void) {
    hak_free(hak_malloc(100));
    void *volatile moved = hak_realloc((void *)argument, 200);
    (void)moved;
}

static void must_abort_everywhere(uintptr_t value) {
    must_abort(free_argument, value);
    must_abort(free_argument_first, value);
    must_abort(realloc_argument, value);
}

#ifdef TEST_AGAINST_LIBC
#define NEEDS_HAKMEM()                                                                                       \
    if (getenv("EXPECT_HAKMEM") == NULL) OMIT("glibc says it otherwise")
#else
#define NEEDS_HAKMEM() (void)0
#endif

static char static_array[4096] __attribute__((aligned(4096)));

TEST(wild_pointers_to_stack_data_and_code) {
    char on_stack[64];
    NEEDS_HAKMEM();
    must_abort_everywhere((uintptr_t)on_stack & ~(uintptr_t)15);
    must_abort_everywhere((uintptr_t)on_stack | 1);
    must_abort_everywhere((uintptr_t)static_array);
    must_abort_everywhere((uintptr_t)static_array + 16);
    must_abort_everywhere((uintptr_t)&free_argument);
    must_abort_everywhere((uintptr_t) "literal");
}

TEST(wild_pointers_to_foreign_mappings) {
    NEEDS_HAKMEM();
    char *mapping = mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED);
    must_abort_everywhere((uintptr_t)mapping);
    must_abort_everywhere((uintptr_t)mapping + 65536);
    munmap(mapping, MIB(1));
    must_abort_everywhere((uintptr_t)mapping);
}

TEST(wild_pointers_that_are_small_or_no_address) {
    static const uintptr_t values[] = {1,
                                       8,
                                       16,
                                       24,
                                       4095,
                                       4096,
                                       65536,
                                       0x7fffffff,
                                       (uintptr_t)-1,
                                       (uintptr_t)-16,
                                       (uintptr_t)-4096,
                                       (uintptr_t)1 << 47,
                                       (uintptr_t)1 << 48,
                                       (uintptr_t)1 << 56,
                                       (uintptr_t)1 << 63,
                                       0xdeadbeefdeadbee0u};
    NEEDS_HAKMEM();
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) must_abort_everywhere(values[i]);
}

TEST(wild_pointers_at_random) {
    NEEDS_HAKMEM();
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < check_count(300); i++)
        must_abort(free_argument, rng_next(&rng) >> (i % 2 ? 17 : 0) & ~(uintptr_t)(i % 3 ? 15 : 0));
}

/* Near real blocks: the same reservation, but no block. */
static void free_at_a_distance(void) {
    char *small = hak_malloc(100), *large = hak_malloc(MIB(3));
    char *base = argument & 1 ? small : large;
    uintptr_t distance = argument & ~(uintptr_t)1;
    hak_free((void *)((uintptr_t)base + distance));
}

TEST(wild_pointers_far_from_any_block) {
    NEEDS_HAKMEM();
    for (unsigned bit = 32; bit < 47; bit++) {
        must_abort(free_at_a_distance, (uintptr_t)1 << bit);
        must_abort(free_at_a_distance, (uintptr_t)1 << bit | 1);
        must_abort(free_at_a_distance, -((uintptr_t)1 << bit));
    }
}

static size_t size_of_large = MIB(3);

static void free_inside_a_large_block(void) {
    char *block = hak_malloc(size_of_large);
    hak_free(block + argument);
}

static void realloc_inside_a_large_block(void) {
    char *block = hak_malloc(size_of_large);
    void *volatile moved = hak_realloc(block + argument, 100);
    (void)moved;
}

static void check_interior_of_a_large_block(void) {
    static const uintptr_t inside[] = {1, 8, 16, 64, 4096, 65536, 131072, 524288, 1048575, 1048560};
    NEEDS_HAKMEM();
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        must_abort(free_inside_a_large_block, inside[i]);
        must_abort(realloc_inside_a_large_block, inside[i]);
    }
}

TEST(interior_of_a_large_block) { check_interior_of_a_large_block(); }

/* One with room for a colour. One without begins with its page, but what lies where the colour would be passes for it, too: see start_for
 * in slab/slab.c. */
TEST(interior_of_a_medium_block) {
    size_of_large = MIB(1) - KIB(8);
    check_interior_of_a_large_block();
    size_of_large = MIB(3);
}

/* Many blocks of the class in use; each goes through free, so whatever lies in a cache must come
 * out of it. WRONG was freed wrongly before. The memory itself is not written any more. */
enum { CROWD = 60000 };
static void *crowd[CROWD];

static size_t crowd_for(size_t size) {
    size_t count = MIB(64) / size;
    return count < CROWD ? count : CROWD;
}

/* No page of the crowd, once it is free, becomes another class's slab: there the second free would be found later. The
 * threads that hakmem and libc start allocate. */
static void keep_a_block_of_each_class(void) {
    static bool kept;
    if (kept) return;
    kept = true;
    for (size_t size = 16; size <= 65536; size += size / 10 + 1) {
        void *volatile block = hak_malloc(size);
        (void)block;
    }
}

static void make_crowd(size_t size) {
    keep_a_block_of_each_class();
    for (size_t i = 0; i < crowd_for(size); i++) crowd[i] = hak_malloc(size);
}

static void run_all_blocks_through(size_t size, size_t except) {
    for (size_t i = 0; i < crowd_for(size); i++)
        if (i != except) hak_free(crowd[i]);
    for (int round = 0; round < 5; round++) {
        make_crowd(size);
        for (size_t i = 0; i < crowd_for(size); i++) hak_free(crowd[i]);
    }
}

static const size_t class_examples[] = {16, 48, 100, 256, 1000, 2000, 5000, 16384, 40000, 65536};

/* argument: index of the size, and the offset in the higher bits */
static void free_inside_a_small_block(void) {
    size_t size = class_examples[argument & 15], offset = argument >> 4;
    make_crowd(size);
    size_t middle = crowd_for(size) / 2;
    hak_free((char *)crowd[middle] + offset);
    run_all_blocks_through(size, middle);
}

TEST(interior_of_a_small_block) {
    NEEDS_HAKMEM();
    for (size_t i = 0; i < sizeof class_examples / sizeof class_examples[0]; i++) {
        size_t size = class_examples[i];
        must_abort(free_inside_a_small_block, 1 << 4 | i);
        must_abort(free_inside_a_small_block, 8 << 4 | i);
        must_abort(free_inside_a_small_block, (size - 1) << 4 | i);
        if (size > 16) must_abort(free_inside_a_small_block, 16 << 4 | i);
        if (size > 64) must_abort(free_inside_a_small_block, (size / 2) << 4 | i);
    }
}

static void free_twice_at_once(void) {
    make_crowd(argument);
    hak_free(crowd[5]);
    hak_free(crowd[5]);
    run_all_blocks_through(argument, 5);
}

static void free_twice_with_others_between(void) {
    size_t count = crowd_for(argument);
    make_crowd(argument);
    for (size_t i = 0; i < count / 2; i++) hak_free(crowd[i]);
    hak_free(crowd[3]);
    for (size_t i = count / 2; i < count; i++) hak_free(crowd[i]);
    make_crowd(argument);
    run_all_blocks_through(argument, CROWD);
}

static void *free_in_thread(void *block) { return hak_free(block), NULL; }

static void free_in_a_thread(void *block) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_in_thread, block) != 0) _exit(9);
    pthread_join(thread, NULL);
}

static void free_twice_elsewhere(void) {
    make_crowd(argument);
    free_in_a_thread(crowd[5]);
    free_in_a_thread(crowd[5]);
    run_all_blocks_through(argument, 5);
}

#define DOUBLE_FREE(title, misuse)                                                                           \
    TEST(double_free_##title) {                                                                              \
        NEEDS_HAKMEM();                                                                                      \
        for (size_t i = 0; i < sizeof class_examples / sizeof class_examples[0]; i++)                        \
            must_abort(misuse, class_examples[i]);                                                           \
        must_abort(misuse, KIB(800));                                                                        \
        must_abort(misuse, KIB(200));                                                                        \
    }
/* No more: what starts the purge thread then could take the pages. */
DOUBLE_FREE(at_once, free_twice_at_once)
DOUBLE_FREE(with_others_between, free_twice_with_others_between)
DOUBLE_FREE(twice_elsewhere, free_twice_elsewhere)
/* Once by the owner and once by another thread is found when both reach the slab; while one of them waits in the
 * owner's stack the block may be handed out again first. */

/* realloc moved the block: its old address was freed. */
static void free_after_a_move(void) {
    make_crowd(argument);
    void *old = crowd[5], *moved = hak_realloc(old, argument * 8 + MIB(4));
    if (moved == NULL || moved == old) _exit(9);
    hak_free(old);
    run_all_blocks_through(argument, 5);
}

TEST(double_free_after_realloc_moved_the_block) {
    NEEDS_HAKMEM();
    for (size_t i = 0; i < sizeof class_examples / sizeof class_examples[0]; i++)
        must_abort(free_after_a_move, class_examples[i]);
}

/* The harness itself: what is legal must not look like a misuse. */
static void free_correctly(void) {
    make_crowd(100);
    run_all_blocks_through(100, CROWD);
    free_in_a_thread(hak_malloc(100));
    hak_free(NULL);
}

TEST(correct_use_does_not_abort) {
    CHECK_EQ(run_misuse(free_correctly), 0);
    CHECK(stderr_text[0] == '\0');
}

/* ---- what the program says of a block, in builds that check it ----------------------------------------------------- */

#if defined(HAK_CHECKED) && !defined(TEST_AGAINST_LIBC)
static void free_with_another_size(void) {
    void *block = hak_malloc(100);
    hak_free_sized(block, hak_usable_size(block) + argument);
}

static void free_aligned_with_another_size(void) {
    void *block = hak_aligned_alloc(64, 100);
    hak_free_aligned_sized(block, 64, hak_usable_size(block) + argument);
}

static void free_with_another_alignment(void) { hak_free_aligned_sized(hak_aligned_alloc(64, 100), argument, 100); }

/* No block lies at a multiple of so much: user addresses are less. */
#define TOO_ALIGNED ((uintptr_t)1 << 60)

TEST(what_free_is_told_is_checked) {
    NEEDS_HAKMEM();
    must_abort(free_with_another_size, 1);
    must_abort(free_aligned_with_another_size, 1);
    must_abort(free_with_another_alignment, 0);
    must_abort(free_with_another_alignment, 48);
    must_abort(free_with_another_alignment, TOO_ALIGNED);
    argument = 0; /* what is right is taken */
    CHECK_EQ(run_misuse(free_with_another_size), 0);
    CHECK_EQ(run_misuse(free_aligned_with_another_size), 0);
}
#endif
