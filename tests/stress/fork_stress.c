/* fork_stress.c - a ninth thread forks while eight allocate.
 *
 *     fork_stress [FORKS [SEED [THREADS]]]        default 100 1 8
 *
 * Each child takes and verifies the blocks that the busy threads had in the shared slots, allocates
 * in every class, starts a thread and exits 0; every sixteenth forks again. Prints one line and exits
 * 0; 1 by a failed check; a child or parent that hangs is ended by SIGALRM.
 *
 * Planted defects it was seen to catch: no atfork handlers (a lock stays taken in the child), a child
 * that forgets the parent's blocks, a block handed out twice.
 */
#define CHECK_NO_MAIN
#include "marked.h"

#include <sched.h>
#include <sys/wait.h>

enum { MOST_THREADS = 64, CHILD_SECONDS = CHECK_SHADOWED ? 120 : 30 };

static atomic_bool stop;
static atomic_size_t running;

static void *allocate_until_stopped(void *argument) {
    struct rng rng = {mix64((uintptr_t)argument ^ mark_seed)};
    atomic_fetch_add(&running, 1);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        size_t slot = rng_below(&rng, SHARED_SLOTS), size = marked_size(&rng);
        if (rng_below(&rng, 16)) size &= 4095; /* keeps what a fork must copy small */
        struct mark *mark = make_marked(&rng, size < 16 ? 16 : size);
        if (rng_below(&rng, 8) == 0) mark = resize_marked(&rng, mark);
        free_marked(swap_slot(slot, mark));
    }
    return NULL;
}

static void *use_every_class(void *argument) {
    struct mark *marks[8];
    struct rng rng = {mark_seed + (uintptr_t)argument};
    for (size_t size = 16; size <= KIB(256); size += size / 3) {
        size_t count = size < KIB(4) ? 8 : 1;
        for (size_t i = 0; i < count; i++) marks[i] = make_marked(&rng, size);
        for (size_t i = 0; i < count; i++) free_marked(marks[i]);
    }
    return NULL;
}

static void be_child(size_t number);

static void wait_for(pid_t child, size_t number) {
    int status = -1;
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    if (status != 0) check_say("     fork %zu: child ended with status %#x", number, (unsigned)status);
    CHECK_EQ(status, 0);
}

static void fork_once(size_t number) {
    pid_t child = fork();
    if (child == 0) be_child(number);
    wait_for(child, number);
}

static void be_child(size_t number) {
    alarm(CHILD_SECONDS);
    use_every_class((void *)number);
    for (size_t i = number % 2; i < SHARED_SLOTS; i += 2) free_marked(swap_slot(i, NULL));
    if (number % 16 == 1) fork_once(number * 16); /* from a child; that one does not fork again */
    /* ThreadSanitizer refuses threads after such a fork; AddressSanitizer holds locks of its runtime while a
     * thread starts (the purge thread may just then), and a thread of the child would wait for them for ever. */
#if !CHECK_SHADOWED
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, use_every_class, (void *)number), 0);
    pthread_join(thread, NULL);
#endif
    use_every_class((void *)(number + 1));
    _exit(0);
}

static size_t forks;

static void *fork_many(void *unused) {
    for (size_t i = 1; i <= forks; i++) {
        alarm(CHILD_SECONDS * 4);
        fork_once(i);
    }
    return unused;
}

int main(int argc, char **argv) {
    static pthread_t threads[MOST_THREADS], forker;
    size_t count = argument_or(argc, argv, 3, 8);
    forks = argument_or(argc, argv, 1, 100);
    mark_seed = argument_or(argc, argv, 2, 1);
    check_now.name = "fork_stress";
    if (count > MOST_THREADS) return 2;
    for (size_t i = 0; i < count; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, allocate_until_stopped, (void *)i), 0);
    while (atomic_load(&running) < count) sched_yield();
    CHECK_EQ(pthread_create(&forker, NULL, fork_many, NULL), 0);
    pthread_join(forker, NULL);
    atomic_store(&stop, true);
    for (size_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SHARED_SLOTS; i++) free_marked(swap_slot(i, NULL));
    check_say("fork_stress: %zu forks beside %zu threads, seed %llu, no error", forks, count,
              (unsigned long long)mark_seed);
    return 0;
}
