/* fork_test.c - fork from quiet and threaded processes, nested, from a second thread, with handlers
 * that allocate. Thousands of forks out of a busy process are in tests/stress/fork_stress.c.
 *
 * Planted defects it was seen to catch:
 *   no atfork handlers (a lock stays taken)  fork_while_another_thread_allocates: watchdog
 *   the child forgets all blocks             the_child_owns_all_blocks
 *   it loses what others kept at hand        the_child_has_what_others_kept_at_hand
 *   handlers registered at the first malloc  early_atfork_handlers_may_allocate: watchdog
 */
#include "blocks.h"
#include "child.h"

#include <stdatomic.h>

enum { SHARED = 400 };
static struct {
    void *block;
    size_t bytes;
} shared[SHARED];

static void make_shared(void) {
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < SHARED; i++) {
        shared[i].block = hak_malloc(rng_size(&rng, 80));
        CHECK(shared[i].block != NULL);
        shared[i].bytes = hak_usable_size(shared[i].block);
        block_fill(shared[i].block, shared[i].bytes, i);
    }
}

static void free_shared(void) {
    for (size_t i = 0; i < SHARED; i++) {
        CHECK_EQ(hak_usable_size(shared[i].block), shared[i].bytes);
        CHECK_AT(block_holds(shared[i].block, shared[i].bytes, i), i);
        hak_free(shared[i].block);
    }
}

static void use_every_class(void) {
    static void *blocks[100];
    for (size_t size = 16; size <= MIB(2); size += size / 3) {
        size_t count = size < KIB(1) ? 100 : size < KIB(64) ? 10 : 2;
        for (size_t i = 0; i < count; i++) {
            blocks[i] = i % 2 ? hak_malloc(size) : hak_calloc(size, 1);
            CHECK(blocks[i] != NULL);
            if (i % 2 == 0) CHECK(block_is_zero(blocks[i], size));
            block_fill(blocks[i], size, i + 7);
        }
        for (size_t i = 0; i < count; i++) {
            CHECK(block_holds(blocks[i], size, i + 7));
            hak_free(blocks[i]);
        }
    }
}

CHECK_UNUSED static void *use_every_class_in_thread(void *unused) {
    use_every_class();
    return unused;
}

static void start_a_thread(void) {
#if !CHECK_SHADOWED /* as in stress/fork_stress: a sanitizer may hold locks of its own over the fork */
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, use_every_class_in_thread, NULL), 0);
    pthread_join(thread, NULL);
#endif
}

static void child_that_does_all(void) {
    use_every_class();
    free_shared();
    start_a_thread();
    use_every_class();
}

TEST(the_child_owns_all_blocks) {
    make_shared();
    for (size_t i = 0; i < check_count(20); i++) IN_CHILD(child_that_does_all);
    free_shared();
}

HELPER(fork_before_anything) { IN_CHILD(use_every_class); }

static void become_one_that_forks(void) { become_helper("fork_before_anything"); }

/* A fresh one: in this the library has started. */
TEST(the_first_operation_of_a_process_may_be_in_a_child) {
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    IN_CHILD(become_one_that_forks);
}

static unsigned depth;

static void child_that_forks(void) {
    use_every_class();
    if (++depth < 5) IN_CHILD(child_that_forks);
    child_that_does_all();
}

TEST(children_may_fork_children) {
    make_shared();
    depth = 0;
    IN_CHILD(child_that_forks);
    free_shared();
}

static void *fork_here(void *unused) {
    for (size_t i = 0; i < check_count(20); i++) IN_CHILD(child_that_does_all);
    IN_CHILD(child_that_forks);
    return unused;
}

static void fork_in_thread(void) {
    pthread_t thread;
    depth = 3;
    CHECK_EQ(pthread_create(&thread, NULL, fork_here, NULL), 0);
    pthread_join(thread, NULL);
}

/* The forking thread has allocated nothing itself; the shared blocks are main's. */
TEST(a_second_thread_may_fork) {
    make_shared();
    fork_in_thread();
    free_shared();
}

/* A thread that ended before the fork left blocks and free memory. */
static void *make_shared_in_thread(void *unused) {
    use_every_class();
    make_shared();
    return unused;
}

TEST(the_child_frees_what_the_dead_left) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, make_shared_in_thread, NULL), 0);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < check_count(10); i++) IN_CHILD(child_that_does_all);
    free_shared();
}

/* What another thread keeps at hand: the child has the memory, though the thread is gone. In a slab of its own the blocks may begin elsewhere,
 * so that one at the end has no counterpart. */
enum { AT_HAND = 20, AT_HAND_BYTES = 24000 };
static void *at_hand[AT_HAND];
static pthread_barrier_t at_fork;

static void *keep_at_hand(void *unused) {
    for (size_t i = 0; i < AT_HAND; i++) CHECK((at_hand[i] = hak_malloc(AT_HAND_BYTES)) != NULL);
    for (size_t i = 0; i < AT_HAND; i++) hak_free(at_hand[i]);
    pthread_barrier_wait(&at_fork);
    pthread_barrier_wait(&at_fork); /* the fork is in between */
    return unused;
}

static void child_that_takes_all(void) {
    size_t found = 0;
    for (size_t i = 0; i < 5000; i++) {
        const void *block = hak_malloc(AT_HAND_BYTES);
        CHECK(block != NULL);
        const uintptr_t start = (uintptr_t)block, end = start + hak_usable_size(block);
        for (size_t k = 0; k < AT_HAND; k++) found += start <= (uintptr_t)at_hand[k] && (uintptr_t)at_hand[k] < end;
    }
    CHECK(found >= AT_HAND - 4);
}

TEST(the_child_has_what_others_kept_at_hand) {
    pthread_t thread;
    CHECK_EQ(pthread_barrier_init(&at_fork, NULL, 2), 0);
    CHECK_EQ(pthread_create(&thread, NULL, keep_at_hand, NULL), 0);
    pthread_barrier_wait(&at_fork);
    IN_CHILD(child_that_takes_all);
    pthread_barrier_wait(&at_fork);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static atomic_bool stop;

static void *allocate_until_stopped(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument};
    void *blocks[64] = {NULL};
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        size_t i = rng_below(&rng, 64);
        hak_free(blocks[i]);
        blocks[i] = hak_malloc(rng_size(&rng, 50));
        CHECK(blocks[i] != NULL);
        *(char *)blocks[i] = 1;
    }
    for (size_t i = 0; i < 64; i++) hak_free(blocks[i]);
    return NULL;
}

TEST(fork_while_another_thread_allocates) {
    pthread_t threads[2];
    make_shared();
    atomic_store(&stop, false);
    for (size_t i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, allocate_until_stopped, (void *)i), 0);
    for (size_t i = 0; i < check_count(100); i++) IN_CHILD(i % 10 ? free_shared : child_that_does_all);
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    free_shared();
}

/* The parent goes on with the blocks that its child freed: they are not the same memory. */
TEST(the_parent_keeps_its_blocks) {
    make_shared();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(CHILD_SECONDS);
        free_shared();
        for (int i = 0; i < 20; i++) use_every_class();
        _exit(0);
    }
    for (int i = 0; i < 20; i++) use_every_class();
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
    free_shared();
}

/* Handlers that allocate, in all three places. Those registered before the allocator's own run
 * while it is already prepared for the fork; programs' constructors do register that early. */
static bool early_on, late_on;
static void *from_before[2];
static size_t handled;

static void allocate_in_handler(size_t which) {
    void *block = hak_malloc(3000), *large = hak_malloc(MIB(3));
    CHECK(block != NULL && large != NULL);
    hak_free(from_before[which]);
    from_before[which] = block;
    hak_free(large);
    handled++;
}

static void early_handler(void) {
    if (early_on) allocate_in_handler(0);
}

static void late_handler(void) {
    if (late_on) allocate_in_handler(1);
}

__attribute__((constructor(101))) static void register_early(void) {
    pthread_atfork(early_handler, early_handler, early_handler);
}

static void child_of_handlers(void) {
    CHECK_EQ(handled, 2 * (size_t)(early_on + late_on));
    child_that_does_all();
}

static void fork_with_handlers(void) {
    pthread_t thread;
    make_shared();
    atomic_store(&stop, false);
    CHECK_EQ(pthread_create(&thread, NULL, allocate_until_stopped, NULL), 0);
    for (size_t i = 0; i < check_count(20); i++) {
        handled = 0;
        IN_CHILD(child_of_handlers);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    early_on = late_on = false;
    free_shared();
}

TEST(late_atfork_handlers_may_allocate) {
    static bool registered;
    hak_free(hak_malloc(1));
    if (!registered) CHECK_EQ(pthread_atfork(late_handler, late_handler, late_handler), 0);
    registered = late_on = true;
    fork_with_handlers();
}

TEST(early_atfork_handlers_may_allocate) {
    early_on = true;
    fork_with_handlers();
}

HELPER(use_every_class_alone) { use_every_class(); }

/* The child of vfork lives in the parent's memory until it executes something. */
TEST(vfork_and_exec) {
    if (access("/proc/self/exe", X_OK) != 0) SKIP("no /proc");
    make_shared();
    for (size_t i = 0; i < check_count(50); i++) {
        pid_t child = vfork();
        if (child == 0) {
            execl("/proc/self/exe", "fork_test", "use_every_class_alone", (char *)NULL);
            _exit(127);
        }
        CHECK(child > 0);
        int status = -1;
        while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
        CHECK_EQ(status, 0);
        use_every_class();
    }
    free_shared();
}
