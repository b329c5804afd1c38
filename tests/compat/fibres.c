/* fibres.c - swapcontext moves computations between threads, in the middle of a block's life: what one thread
 * allocated another resizes, and a third frees.
 *
 * Fibres lie in a queue; each worker takes one, runs it until it yields, and puts it back. The stacks of the fibres are
 * blocks, too. In the code of a fibre nothing thread-local is used across a yield.
 *
 * Planted defect it was seen to catch: what other threads freed is taken in again the next time.
 */
#include "work.h"

#ifdef __GLIBC__ /* musl has no makecontext */

#include <ucontext.h>

enum { FIBRES = 48, WORKERS = 4, STACK_BYTES = 32 << 10, ROUNDS = 400 };

struct fibre {
    ucontext_t context;
    ucontext_t *worker; /* that runs it now */
    struct fibre *next;
    struct rng rng;
    size_t moves;
    pthread_t last_thread;
    bool done;
    void *stack;
};

static struct fibre fibres[FIBRES];

static struct {
    pthread_mutex_t lock;
    struct fibre *first, **last;
    size_t left; /* that are not done */
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void queue_put(struct fibre *fibre) {
    pthread_mutex_lock(&queue.lock);
    fibre->next = NULL;
    *queue.last = fibre;
    queue.last = &fibre->next;
    pthread_mutex_unlock(&queue.lock);
}

static struct fibre *queue_take(void) {
    pthread_mutex_lock(&queue.lock);
    struct fibre *fibre = queue.first;
    if (fibre != NULL) queue.first = fibre->next;
    if (fibre != NULL && queue.first == NULL) queue.last = &queue.first;
    pthread_mutex_unlock(&queue.lock);
    return fibre;
}

static __attribute__((noinline)) void yield(struct fibre *self) { swapcontext(&self->context, self->worker); }

/* The block is written in one thread and read in another. */
static __attribute__((noinline)) void live_one_life(struct fibre *self) {
    size_t size = rng_size(&self->rng, 200), larger = size + rng_below(&self->rng, 2 * size + 1);
    char *block = rng_below(&self->rng, 2) ? calloc(1, size) : malloc(size);
    CHECK(block != NULL);
    block_fill(block, size, size);
    yield(self);
    CHECK_AT(block_holds(block, size, size), size);
    block = realloc(block, larger);
    CHECK(block != NULL);
    if (size >= 8) CHECK_AT(block_holds(block, size & ~(size_t)7, size), size);
    block_fill(block, larger, larger);
    yield(self);
    CHECK_AT(block_holds(block, larger, larger), larger);
    free(block);
}

static void run_fibre(unsigned low, unsigned high) {
    struct fibre *self = (struct fibre *)((uintptr_t)low | (uintptr_t)high << 32);
    for (size_t round = 0; round < ROUNDS; round++) {
        live_one_life(self);
        if (round % 3 == 0) yield(self);
    }
    self->done = true;
    yield(self);
}

static void make_fibre(struct fibre *fibre, size_t number) {
    fibre->rng = (struct rng){number << 20};
    fibre->stack = malloc(STACK_BYTES);
    CHECK(fibre->stack != NULL);
    CHECK_EQ(getcontext(&fibre->context), 0);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = STACK_BYTES;
    uintptr_t address = (uintptr_t)fibre;
    makecontext(&fibre->context, (void (*)(void))(uintptr_t)run_fibre, 2, (unsigned)address,
                (unsigned)(address >> 32));
    queue_put(fibre);
}

/* Afterwards the fibre's context is complete, and any worker may go on with it. */
static void run_until_it_yields(struct fibre *fibre) {
    ucontext_t here;
    fibre->moves += !pthread_equal(fibre->last_thread, pthread_self());
    fibre->last_thread = pthread_self();
    fibre->worker = &here;
    CHECK_EQ(swapcontext(&here, &fibre->context), 0);
    if (!fibre->done) {
        queue_put(fibre);
        return;
    }
    free(fibre->stack);
    __atomic_fetch_sub(&queue.left, 1, __ATOMIC_RELAXED);
}

static void *run_fibres(void *unused) {
    while (__atomic_load_n(&queue.left, __ATOMIC_RELAXED) > 0) {
        struct fibre *fibre = queue_take();
        if (fibre != NULL) run_until_it_yields(fibre);
    }
    return unused;
}

TEST(blocks_move_with_their_fibres) {
    pthread_t workers[WORKERS];
    size_t moves = 0;
    queue.last = &queue.first;
    queue.left = FIBRES;
    for (size_t i = 0; i < FIBRES; i++) make_fibre(&fibres[i], i);
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_create(&workers[i], NULL, run_fibres, NULL), 0);
    for (size_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_join(workers[i], NULL), 0);
    for (size_t i = 0; i < FIBRES; i++) moves += fibres[i].moves;
    CHECK_AT(moves > FIBRES * 10, moves); /* or nothing was tested */
    CHECK_EQ(work(1, 3000), 0);
}

#else
TEST(blocks_move_with_their_fibres) { OMIT("no makecontext"); }
#endif
