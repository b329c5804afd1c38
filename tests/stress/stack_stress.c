/* stack_stress.c - two threads allocate and free as fast as they can, while a third takes the blocks out of their stacks all
 * the time. No block may be in two places.
 *
 *     stack_stress [SECONDS [SEED]]        default 4 1
 *
 * Planted defects it was seen to catch: the newest block is taken too, no barrier between raising the bounds and taking, bounds
 * that are not raised.
 */
#define CHECK_NO_MAIN
#include "marked.h"
#include "hakmem/hakmem.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "kernel.h"

#include <stdatomic.h>
#include <time.h>

enum { WORKERS = 2, MOST_HELD = 40 };

static atomic_bool over;
static atomic_ullong operations, robberies;

/* Says whose it is as long as it is in use. Nobody else may touch it then. */
static void take(uint64_t *block, uint64_t mark) {
    CHECK(block != NULL);
    CHECK_AT(*block != mark, mark); /* it is handed out while it is in use */
    *block = mark;
}

static void give(uint64_t *block, uint64_t mark) {
    CHECK_EQ(*block, mark);
    *block = 0;
    hak_free(block);
}

static void *work(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument};
    const uint64_t mark = rng_next(&rng) | 1;
    uint64_t done = 0;
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        uint64_t *held[MOST_HELD];
        size_t count = 1 + rng_below(&rng, MOST_HELD), bytes = rng_below(&rng, 2) ? 64 : 1024;
        for (size_t i = 0; i < count; i++) take(held[i] = hak_malloc(bytes), mark);
        for (size_t i = 0; i < count; i++) give(held[i], mark);
        done += count;
    }
    atomic_fetch_add(&operations, done);
    return NULL;
}

static void *rob(void *unused) {
    thread_forgo_heap();
    uint64_t done = 0;
    while (!atomic_load_explicit(&over, memory_order_relaxed)) {
        for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) stack_raise(heap);
        bool passed = os_barrier_others();
        for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) stack_take(heap, passed);
        done += passed; /* without it nothing was taken */
    }
    atomic_store(&robberies, done);
    return unused;
}

int main(int argc, char **argv) {
    unsigned seconds = (unsigned)argument_or(argc, argv, 1, 4);
    pthread_t workers[WORKERS], robber;
    check_now.name = "stack_stress";
    check_now.seed = argument_or(argc, argv, 2, 1);
    alarm(seconds + 60);
    for (size_t i = 0; i < WORKERS; i++)
        CHECK_EQ(pthread_create(&workers[i], NULL, work, (void *)(check_now.seed + i)), 0);
    CHECK_EQ(pthread_create(&robber, NULL, rob, NULL), 0);
    sleep(seconds);
    atomic_store(&over, true);
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_join(workers[i], NULL), 0);
    CHECK_EQ(pthread_join(robber, NULL), 0);
    CHECK(atomic_load(&operations) != 0);
    CHECK(atomic_load(&robberies) != 0 || !kernel_has_barrier());
    check_say("stack_stress: %llu operations, %llu robberies, no error", (unsigned long long)atomic_load(&operations),
              (unsigned long long)atomic_load(&robberies));
    return 0;
}
