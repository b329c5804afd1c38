/* many_threads.c - what a thread costs where there are many: each has one block of each of some sizes, and waits.
 *
 *     many_threads [THREADS]
 *
 * Before the first measurement there are as many threads as get slabs of their own, two for each processor, and some more. What
 * THREADS (1000) more add to the resident memory counts: their stacks, what the allocator knows of each, and their blocks, with what
 * was given to each along with these.
 *
 * Planted defect it is to catch: a thread that shares its slabs with others is given as many blocks of a size at once as one that
 * has slabs of its own.
 */
#define CHECK_NO_MAIN
#include "footprint.h"

enum { SIZES = 20, SIZE_STEP = 40, SETTLED = 8, STACK_BYTES = KIB(64) };
#define LIMIT_BYTES KIB(60) /* for each thread: it was 81 KiB where each was given as many as any other, and is 49 */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t begun;
    bool over;
} state = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false};

static void *hold_some(void *argument) {
    void *blocks[SIZES];
    for (size_t i = 0; i < SIZES; i++) {
        const size_t size = 16 + i * SIZE_STEP;
        CHECK((blocks[i] = malloc(size)) != NULL);
        block_fill(blocks[i], size, (uintptr_t)argument + i);
    }
    pthread_mutex_lock(&state.lock);
    state.begun++;
    pthread_cond_broadcast(&state.changed);
    while (!state.over) pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
    for (size_t i = 0; i < SIZES; i++) {
        CHECK_AT(block_holds(blocks[i], 16 + i * SIZE_STEP, (uintptr_t)argument + i), i);
        free(blocks[i]);
    }
    return NULL;
}

/* One after the other, so that no two of them hold what one does between two measurements. */
static void begin(pthread_t *threads, size_t from, size_t to) {
    pthread_attr_t attributes;
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0);
    for (size_t i = from; i < to; i++) {
        CHECK_EQ(pthread_create(&threads[i], &attributes, hold_some, (void *)(uintptr_t)(i * SIZES)), 0);
        pthread_mutex_lock(&state.lock);
        while (state.begun != i + 1) pthread_cond_wait(&state.changed, &state.lock);
        pthread_mutex_unlock(&state.lock);
    }
    pthread_attr_destroy(&attributes);
}

int main(int argc, char **argv) {
    check_now.name = "many_threads";
    const size_t added = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    const size_t first = 2 * (size_t)sysconf(_SC_NPROCESSORS_ONLN) + SETTLED, all = first + added;
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    CHECK(added != 0);
    alarm(120);
    pthread_t *threads = map_populated(all * sizeof *threads);
    begin(threads, 0, first);
    const size_t before = rss_bytes();
    begin(threads, first, all);
    const size_t each = (rss_bytes() - before) / added;
    pthread_mutex_lock(&state.lock);
    state.over = true;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
    for (size_t i = 0; i < all; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    check_say("many_threads: %zu KiB for each of %zu threads, limit %zu", each >> 10, added, LIMIT_BYTES >> 10);
    CHECK(each <= LIMIT_BYTES);
    check_say("ok many_threads");
    return 0;
}
