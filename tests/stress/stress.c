/* stress.c - threads that allocate, resize, hand over and free blocks of all sizes, each verified.
 *
 *     stress [THREADS [SECONDS [SEED [may-fail]]]]        default 8 5 1
 *
 * Prints one line and exits 0; a failed check prints its own line and exits 1; a hang is ended by
 * SIGALRM. With may-fail an allocation may return NULL with ENOMEM: for runs under faults and limits, such as those of
 * tests/failures.
 * Threads live for some thousand operations and are replaced, so that blocks outlive their owners.
 *
 * Planted defects it was seen to catch: a block handed out twice, calloc without clearing, a realloc
 * that copies a word too few, a remote free done twice, a usable size that is too long, no lock.
 */
#define CHECK_NO_MAIN
#include "marked.h"

#include <semaphore.h>
#include <sys/resource.h>
#include <time.h>

enum { MOST_THREADS = 256, STASH = 256, BURST = 512 };

static struct timespec deadline;
static atomic_ullong operations;

/* A thread that ends says so and is replaced at once. */
static struct lane {
    pthread_t thread;
    atomic_bool ended;
    bool running;
    uint64_t seed;
} lanes[MOST_THREADS];
static sem_t ends;

static bool is_over(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > deadline.tv_sec || (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

/* Up to BURST blocks of one size at once, freed in either order. */
static void allocate_burst(struct rng *rng) {
    struct mark *burst[BURST];
    size_t count = 1 + rng_below(rng, BURST), size = 16 + rng_below(rng, 2000);
    bool last_first = rng_below(rng, 2);
    for (size_t i = 0; i < count; i++) burst[i] = make_marked(rng, size);
    for (size_t i = 0; i < count; i++) free_marked(burst[last_first ? count - 1 - i : i]);
}

static void step(struct rng *rng, struct mark **stash) {
    enum { COLLECTS_ONE_IN = 30000 };
    if (rng_below(rng, COLLECTS_ONE_IN) == 0) hak_malloc_trim(0); /* takes from the stacks of all threads */
    size_t slot = rng_below(rng, SHARED_SLOTS), own = rng_below(rng, STASH);
    switch (rng_below(rng, 16)) {
    case 0: /* another thread's block, resized and passed on */
        free_marked(swap_slot(rng_below(rng, SHARED_SLOTS), resize_marked(rng, swap_slot(slot, NULL))));
        break;
    case 1:
        stash[own] = resize_marked(rng, stash[own]);
        break;
    case 2:
        stash[own] = swap_slot(slot, stash[own]);
        break;
    case 3:
        if (rng_below(rng, 16) == 0) allocate_burst(rng);
        break;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8: /* own blocks */
        free_marked(stash[own]);
        stash[own] = make_marked(rng, marked_size(rng));
        break;
    default: /* a block for whoever comes next */
        free_marked(swap_slot(slot, make_marked(rng, marked_size(rng))));
        break;
    }
}

static void *live(void *argument) {
    struct lane *lane = argument;
    struct rng rng = {mix64(lane->seed ^ mark_seed)};
    struct mark *stash[STASH] = {NULL};
    size_t life = 2000 + rng_below(&rng, 30000), done = 0;
    for (; done < life; done++) {
        if (done % 128 == 0 && is_over()) break;
        step(&rng, stash);
    }
    /* What is left goes to the others, who free it when this thread is gone. */
    for (size_t i = 0; i < STASH; i++) {
        if (i % 2) stash[i] = swap_slot(rng_below(&rng, SHARED_SLOTS), stash[i]);
        free_marked(stash[i]);
    }
    atomic_fetch_add_explicit(&operations, done, memory_order_relaxed);
    atomic_store(&lane->ended, true);
    sem_post(&ends);
    return NULL;
}

static bool start_lane(struct lane *lane, uint64_t seed) {
    lane->seed = seed;
    atomic_store(&lane->ended, false);
    lane->running = pthread_create(&lane->thread, NULL, live, lane) == 0;
    CHECK(lane->running || may_fail);
    return lane->running;
}

int main(int argc, char **argv) {
    size_t count = argument_or(argc, argv, 1, 8), seconds = argument_or(argc, argv, 2, 5);
    size_t begun = 0, running = 0;
    mark_seed = argument_or(argc, argv, 3, 1);
    may_fail = argc > 4 && strcmp(argv[4], "may-fail") == 0;
    check_now.name = "stress";
    if (count < 1 || count > MOST_THREADS) return 2;
    alarm((unsigned)seconds * 2 + 120);
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += (time_t)seconds;

    CHECK_EQ(sem_init(&ends, 0, 0), 0);
    for (size_t i = 0; i < count; i++) running += start_lane(&lanes[i], ++begun);
    while (running > 0) {
        while (sem_wait(&ends) != 0) CHECK_EQ(errno, EINTR);
        for (size_t i = 0; i < count; i++) {
            if (!lanes[i].running || !atomic_load(&lanes[i].ended)) continue;
            pthread_join(lanes[i].thread, NULL);
            lanes[i].running = false;
            running--;
            if (!is_over()) running += start_lane(&lanes[i], ++begun);
        }
    }
    for (size_t i = 0; i < SHARED_SLOTS; i++) free_marked(swap_slot(i, NULL));

    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    check_say("stress: %zu threads, %zu s, seed %llu: %llu operations, %zu threads begun, peak RSS "
              "%ld MiB, no error",
              count, seconds, (unsigned long long)mark_seed, (unsigned long long)atomic_load(&operations),
              begun, usage.ru_maxrss >> 10);
    return 0;
}
