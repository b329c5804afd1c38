/* threads_test.c - blocks that change hands: freed, resized and asked about by other threads while
 * their owners live. Threads that end are in thread_exit_test.
 *
 * Blocks go through rings and slots with release and acquire, so under TSan a race that it reports
 * is the allocator's: between the free in one thread and the next owner's first write.
 *
 * Planted defects it was seen to catch:
 *   a remote free is forgotten              memory_freed_elsewhere_is_reused
 *   a remote free gives the block twice     every test with a pipeline or slots
 *   malloc without its lock                 pipelines with two producers, four_threads_...
 *   a thread whose first operation is a
 *   free crashes                            the_first_operation_may_be_any
 */
#include "blocks.h"
#include "threads.h"

#include <sched.h>
#include <stdatomic.h>

struct item {
    void *block;
    size_t bytes;
    uint64_t key;
};

static struct item make_item(size_t request, uint64_t seed) {
    struct item item = {hak_malloc(request), 0, 0};
    CHECK_AT(item.block != NULL, request);
    item.bytes = hak_usable_size(item.block);
    CHECK_AT(item.bytes >= request, request);
    item.key = block_key(item.block, seed);
    block_fill(item.block, item.bytes, item.key);
    return item;
}

static void free_item(struct item item) {
    CHECK(hak_usable_size(item.block) == item.bytes);
    CHECK(block_holds(item.block, item.bytes, item.key));
    hak_free(item.block);
}

/* One list of blocks, made and freed on different sides. */
enum { LISTED = 600 };
static struct item list[LISTED];
static size_t listed, list_size;

static void *make_list(void *unused) {
    for (size_t i = 0; i < listed; i++) list[i] = make_item(list_size, i);
    return unused;
}

static void *free_list(void *unused) {
    for (size_t i = 0; i < listed; i++) free_item(list[listed - 1 - i]);
    return unused;
}

static void *make_and_wait(void *barrier) {
    make_list(NULL);
    pthread_barrier_wait(barrier); /* made: the other side frees */
    pthread_barrier_wait(barrier); /* freed: take them back as own memory */
    make_list(NULL);
    free_list(NULL);
    return NULL;
}

TEST(every_class_is_freed_by_another_thread) {
    static size_t sizes[200];
    size_t count = class_sizes(sizes, CHECK_SHADOWED ? 50 : 200, MIB(2));
    for (size_t i = 0; i < count; i++) {
        pthread_t owner;
        pthread_barrier_t barrier;
        list_size = sizes[i];
        listed = MIB(2) / list_size + 2;
        listed = listed < LISTED ? listed : LISTED;
        make_list(NULL); /* main's blocks, freed by another */
        run_thread(free_list, NULL);
        CHECK_EQ(pthread_barrier_init(&barrier, NULL, 2), 0);
        CHECK_EQ(pthread_create(&owner, NULL, make_and_wait, &barrier), 0);
        pthread_barrier_wait(&barrier); /* another's blocks, freed by main */
        free_list(NULL);
        pthread_barrier_wait(&barrier);
        pthread_join(owner, NULL);
        pthread_barrier_destroy(&barrier);
    }
}

/* Rings for one writer and one reader each. */
enum { RING = 128, SIDE = 4 };
struct ring {
    _Alignas(64) atomic_size_t written;
    _Alignas(64) atomic_size_t taken;
    struct item items[RING];
};
static struct ring rings[SIDE][SIDE];
static size_t producers, consumers, items_each;

static void *produce(void *argument) {
    size_t self = (size_t)(uintptr_t)argument;
    struct rng rng = {check_now.seed * 1000 + self};
    for (size_t i = 0; i < items_each; i++) {
        struct ring *ring = &rings[self][i % consumers];
        size_t at = atomic_load_explicit(&ring->written, memory_order_relaxed);
        struct item item = make_item(rng_size(&rng, 3000), i);
        while (at - atomic_load_explicit(&ring->taken, memory_order_acquire) == RING) sched_yield();
        ring->items[at % RING] = item;
        atomic_store_explicit(&ring->written, at + 1, memory_order_release);
    }
    return NULL;
}

static void *consume(void *argument) {
    size_t self = (size_t)(uintptr_t)argument, left = 0;
    for (size_t i = 0; i < items_each; i++) left += i % consumers == self;
    for (left *= producers; left > 0;) {
        bool any = false;
        for (size_t p = 0; p < producers; p++) {
            struct ring *ring = &rings[p][self];
            size_t at = atomic_load_explicit(&ring->taken, memory_order_relaxed);
            if (at == atomic_load_explicit(&ring->written, memory_order_acquire)) continue;
            struct item item = ring->items[at % RING];
            atomic_store_explicit(&ring->taken, at + 1, memory_order_release);
            free_item(item);
            left--;
            any = true;
        }
        if (!any) sched_yield();
    }
    return NULL;
}

static void run_pipeline(size_t from, size_t to, size_t items) {
    pthread_t threads[2 * SIDE];
    producers = from;
    consumers = to;
    items_each = items / from;
    for (size_t i = 0; i < from + to; i++) {
        void *self = (void *)(uintptr_t)(i < from ? i : i - from);
        CHECK_EQ(pthread_create(&threads[i], NULL, i < from ? produce : consume, self), 0);
    }
    for (size_t i = 0; i < from + to; i++) pthread_join(threads[i], NULL);
}

TEST(one_producer_one_consumer) { run_pipeline(1, 1, check_count(200000)); }
TEST(four_producers_one_consumer) { run_pipeline(4, 1, check_count(200000)); }
TEST(one_producer_four_consumers) { run_pipeline(1, 4, check_count(200000)); }
TEST(three_producers_three_consumers) { run_pipeline(3, 3, check_count(200000)); }

/* Some 1.5 GB pass from one thread to another with at most a ring of blocks live. */
TEST(memory_freed_elsewhere_is_reused) {
    run_pipeline(1, 1, check_count(20000));
    size_t before = resident_bytes();
    run_pipeline(1, 1, check_count(250000));
    CHECK_RESIDENT(before, MIB(96));
}

/* Batches: a thread makes 3000 blocks, another frees them shuffled, while the first makes more. */
enum { BATCH = 3000, BATCHES = 2 };
static struct item batches[BATCHES][BATCH];
static atomic_int batch_full[BATCHES];
static size_t batch_rounds;

static void await(atomic_int *flag, int value) {
    while (atomic_load_explicit(flag, memory_order_acquire) != value) sched_yield();
}

static void *make_batches(void *unused) {
    struct rng rng = {check_now.seed};
    for (size_t round = 0; round < batch_rounds; round++) {
        struct item *batch = batches[round % BATCHES];
        await(&batch_full[round % BATCHES], 0);
        for (size_t i = 0; i < BATCH; i++) batch[i] = make_item(rng_below(&rng, round % 4 ? 300 : 5000), i);
        atomic_store_explicit(&batch_full[round % BATCHES], 1, memory_order_release);
    }
    return unused;
}

static void *free_batches(void *unused) {
    struct rng rng = {check_now.seed + 1};
    for (size_t round = 0; round < batch_rounds; round++) {
        struct item *batch = batches[round % BATCHES];
        await(&batch_full[round % BATCHES], 1);
        for (size_t left = BATCH; left > 0; left--) {
            size_t pick = rng_below(&rng, left);
            free_item(batch[pick]);
            batch[pick] = batch[left - 1];
        }
        atomic_store_explicit(&batch_full[round % BATCHES], 0, memory_order_release);
    }
    return unused;
}

TEST(batches_are_freed_in_any_order) {
    pthread_t maker;
    batch_rounds = check_count(150);
    CHECK_EQ(pthread_create(&maker, NULL, make_batches, NULL), 0);
    free_batches(NULL);
    pthread_join(maker, NULL);
}

/* Any thread puts a block into any slot and gets what was there: free, resize or pass it on. */
enum { SLOTS = 512, TRADERS = 4 };
static _Atomic(struct item *) slots[SLOTS];
static size_t trades;

/* The item stands at the start of its own block. */
static struct item *make_traded(size_t request, uint64_t seed) {
    struct item *item = hak_malloc(sizeof *item + request);
    CHECK(item != NULL);
    item->bytes = hak_usable_size(item) - sizeof *item;
    item->key = seed;
    block_fill(item + 1, item->bytes, seed);
    return item;
}

static void *trade(void *argument) {
    struct rng rng = {check_now.seed + 100 * (size_t)(uintptr_t)argument};
    for (size_t i = 0; i < trades; i++) {
        struct item *item = make_traded(rng_size(&rng, 2000), rng_next(&rng));
        item = atomic_exchange_explicit(&slots[rng_below(&rng, SLOTS)], item, memory_order_acq_rel);
        if (item == NULL) continue;
        CHECK(block_holds(item + 1, item->bytes, item->key));
        if (i % 4 == 0) {
            size_t request = rng_size(&rng, 2000), bytes = item->bytes;
            item = hak_realloc(item, sizeof *item + request);
            CHECK(item != NULL);
            bytes = bytes < request ? bytes : request;
            CHECK(block_holds(item + 1, bytes & ~(size_t)7, item->key));
        }
        hak_free(item);
    }
    return NULL;
}

TEST(four_threads_trade_blocks) {
    pthread_t threads[TRADERS];
    trades = check_count(200000);
    for (size_t i = 0; i < TRADERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, trade, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < TRADERS; i++) pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SLOTS; i++) {
        struct item *item = atomic_exchange(&slots[i], NULL);
        CHECK(item == NULL || block_holds(item + 1, item->bytes, item->key));
        hak_free(item);
    }
}

/* What a thread without a heap does first. */
static void *first_free(void *block) { return hak_free(block), NULL; }
static void *first_usable(void *block) {
    CHECK(hak_usable_size(block) > 0);
    return first_free(block);
}
static void *first_malloc(void *block) { return hak_free(hak_malloc(10)), first_free(block); }
static void *first_calloc(void *block) { return hak_free(hak_calloc(10, 10)), first_free(block); }
static void *first_aligned(void *block) { return hak_free(hak_memalign(512, 9)), first_free(block); }
static void *first_shrink(void *block) { return hak_free(hak_realloc(block, 1)), NULL; }
static void *first_grow(void *block) { return hak_free(hak_realloc(block, MIB(1))), NULL; }
static void *first_free_null(void *block) { return hak_free(NULL), first_free(block); }
static void *first_impossible(void *block) {
    volatile size_t most = SIZE_MAX;
    CHECK(hak_malloc(most) == NULL);
    return first_free(block);
}

TEST(the_first_operation_may_be_any) {
    static void *(*const bodies[])(void *) = {first_free,   first_usable,    first_malloc,
                                              first_calloc, first_aligned,   first_shrink,
                                              first_grow,   first_free_null, first_impossible};
    for (size_t round = 0; round < check_count(20); round++) {
        for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
            for (size_t size = 10; size < MIB(4); size *= 20) {
                struct item item = make_item(size, i);
                CHECK(block_holds(item.block, item.bytes, item.key));
                run_thread(bodies[i], item.block);
            }
        }
    }
}
