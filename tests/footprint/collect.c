/* collect.c - hak_collect and malloc_trim: everything back at once, without waiting. */
#include "footprint.h"

#define BYTES MIB(512)

static void want_collect(void) {
    if (is_hakmem_expected()) CHECK(hak_collect != NULL);
    if (hak_collect == NULL) OMIT("this allocator has no hak_collect");
}

static bool is_alone(void) {
    const char *value = getenv("HAKMEM_PURGE_THREAD");
    return value && strcmp(value, "off") == 0;
}

/* Catches: a call before the first block that finds nothing made yet. */
TEST(before_the_first_block) {
    want_collect();
    hak_collect();
    malloc_trim(0);
    void *block = malloc(100);
    CHECK(block != NULL);
    free(block);
    hak_collect();
}

static void check_drop(size_t start, struct table *table, bool by_trim) {
    size_t live = table_live_bytes(table), bound = start + live + live * 15 / 100 + MIB(4);
    size_t before = rss_bytes();
    size_t returned = by_trim ? (size_t)malloc_trim(0) : hak_collect();
    size_t after = rss_bytes(), drop = before > after ? before - after : 0;
    check_say("%s: start %zu KiB, before %zu, after %zu, pages of live blocks %zu, bound %zu, returned %zu%s",
              check_now.name, start >> 10, before >> 10, after >> 10, live >> 10, bound >> 10,
              by_trim ? returned : returned >> 10, by_trim ? "" : " KiB");
    table_verify(table);
    CHECK(after <= bound);
    if (by_trim) {
        CHECK_EQ(returned, drop > MIB(8) ? 1 : returned);
        CHECK(returned <= 1);
    } else if (is_alone()) { /* nobody else returned a part of it */
        CHECK(returned + MIB(4) >= drop);
        /* Spans count whole, holes that were given back before included: up to some tens of MiB in the second call. */
        CHECK(returned <= drop + drop / 2 + MIB(96));
    }
}

static void free_mixed_and_collect(bool logarithmic, bool by_trim) {
    struct rng rng = {21};
    struct table table = table_map(table_room(BYTES), 21);
    size_t start = rss_bytes();
    table_allocate(&table, BYTES, &rng, logarithmic);
    table_shuffle(&table, &rng);
    table_free_all_but(&table, table.count / 100);
    check_drop(start, &table, by_trim);
    table_free_all_but(&table, 0);
    check_drop(start, &table, by_trim);
}

/* Catches: a collection of wholly free slabs and spans only; bins of the calling thread left full; a sum
 * that is not what the kernel got. */
TEST(collect_returns_at_once) {
    want_collect();
    free_mixed_and_collect(false, false);
}

TEST(collect_returns_small_blocks_at_once) {
    want_collect();
    free_mixed_and_collect(true, false);
}

/* Catches: a malloc_trim that is exported and does nothing. */
TEST(trim_returns_at_once) {
    if (malloc_trim == NULL) OMIT("no malloc_trim");
    if (!is_hakmem_expected()) OMIT("EXPECT_HAKMEM is not set");
    free_mixed_and_collect(false, true);
}

/* Catches: pages counted and given back again in every call. */
TEST(the_second_call_finds_nothing) {
    want_collect();
    dirty_and_free(MIB(128), MIB(1));
    hak_collect();
    CHECK(hak_collect() <= MIB(1));
    for (int i = 0; i < 10 && malloc_trim(0) != 0; i++) sleep_ms(10);
    CHECK_EQ(malloc_trim(0), 0);
    dirty_and_free(MIB(16), MIB(1));
    CHECK_EQ(malloc_trim(0), 1);
    CHECK_EQ(malloc_trim(SIZE_MAX), 0);
}

/* Workers allocate and verify, some of their blocks freed by their neighbours; collectors collect. */
enum { WORKERS = 4, COLLECTORS = 4, SLOTS = 256 };

static void *exchanged[SLOTS];
static volatile int stop;
static volatile size_t rounds;

static void *work(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument << 40};
    struct {
        void *block;
        size_t size;
    } held[SLOTS] = {{NULL, 0}};
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        size_t slot = rng_below(&rng, SLOTS);
        if (held[slot].block != NULL)
            CHECK(block_holds(held[slot].block, held[slot].size, block_key(held[slot].block, 33)));
        if (rng_below(&rng, 4) == 0) {
            free(__atomic_exchange_n(&exchanged[slot], held[slot].block, __ATOMIC_ACQ_REL));
        } else {
            free(held[slot].block);
        }
        size_t size = rng_log(&rng, 16, rng_below(&rng, 16) ? KIB(64) : MIB(2));
        bool zeroed = rng_below(&rng, 3) == 0;
        void *block = zeroed ? calloc(1, size) : malloc(size);
        CHECK(block != NULL);
        if (zeroed) CHECK_AT(block_is_zero(block, size), size);
        block_fill(block, size, block_key(block, 33));
        held[slot].block = block;
        held[slot].size = size;
        __atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (held[slot].block != NULL)
            CHECK(block_holds(held[slot].block, held[slot].size, block_key(held[slot].block, 33)));
        free(held[slot].block);
    }
    return NULL;
}

static void *collect(void *argument) {
    size_t number = (size_t)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        void *blocks[32];
        for (size_t i = 0; i < 32; i++) CHECK((blocks[i] = malloc(i * 300)) != NULL);
        for (size_t i = 0; i < 32; i++) free(blocks[i]);
        if (number % 2)
            hak_collect();
        else
            malloc_trim(number * 4096);
        sleep_ms(number % 4);
    }
    return NULL;
}

/* Catches: pages given back under a block that another thread has just been handed, or is about to carve;
 * two collectors at the same slab. */
TEST(collectors_beside_workers) {
    pthread_t threads[WORKERS + COLLECTORS];
    want_collect();
    for (size_t i = 0; i < WORKERS + COLLECTORS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, i < WORKERS ? work : collect, (void *)(uintptr_t)(i + 1)),
                 0);
    sleep_ms(3000);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < WORKERS + COLLECTORS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t slot = 0; slot < SLOTS; slot++) free(exchanged[slot]);
    check_say("collectors_beside_workers: %zu blocks", rounds);
    CHECK(rounds > 100);
}
