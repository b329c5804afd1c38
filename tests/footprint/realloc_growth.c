/* realloc_growth.c - one block that grows to 256 MiB and shrinks again, with what it costs on the way.
 *
 * The peak of a process is never forgotten by the kernel: start every test in a process of its own.
 * With mremap made to fail (libfail_calls.so) every test must end the same way.
 */
#include "footprint.h"

#define FINAL MIB(256)
#define SLACK MIB(16)

/* Word i of a block, wherever it lies. */
static uint64_t word_at(size_t i, uint64_t seed) { return (i + seed) * BLOCK_STEP; }

static void write_words(void *block, size_t from_byte, size_t to_byte, uint64_t seed) {
    uint64_t *words = block;
    for (size_t i = (from_byte + 7) / 8; i < to_byte / 8; i++) words[i] = word_at(i, seed);
}

static void verify_words(const void *block, size_t bytes, uint64_t seed) {
    const uint64_t *words = block;
    for (size_t i = 0; i < bytes / 8; i++) CHECK_AT(words[i] == word_at(i, seed), i);
}

/* The ends of what was kept: cheap, and where moves go wrong. */
static void verify_ends(const void *block, size_t bytes, uint64_t seed) {
    const uint64_t *words = block;
    CHECK_AT(words[0] == word_at(0, seed), bytes);
    CHECK_AT(words[bytes / 8 - 1] == word_at(bytes / 8 - 1, seed), bytes);
}

static void check_peak(size_t live) {
    size_t bound = live + live / 4 + SLACK, peak = peak_bytes();
    if (peak > bound) check_say("%s: peak %zu KiB, bound %zu", check_now.name, peak >> 10, bound >> 10);
    CHECK_AT(peak <= bound, live);
}

static size_t by_half(size_t size) { return (size + size / 2) & ~(size_t)7; }
static size_t by_64_kib(size_t size) { return size + KIB(64); }
static size_t by_1_mib(size_t size) { return size + MIB(1); }
static size_t by_4_mib(size_t size) { return size + MIB(4); }

/* Grows a block step by step, with a neighbour behind it after each if NEIGHBOUR bytes are not 0. The peak
 * is compared with the final size, as the claim is, and on the way with what makes a failure early. */
static void grow(size_t (*step)(size_t), size_t final, size_t neighbour, uint64_t seed) {
    size_t size = KIB(4), neighbours = 0;
    void **last_neighbour = NULL;
    void *block = malloc(size);
    CHECK(block != NULL);
    write_words(block, 0, size, seed);
    for (size_t steps = 0; size < final; steps++) {
        size_t larger = step(size) < final ? step(size) : final;
        CHECK((block = realloc(block, larger)) != NULL);
        verify_ends(block, size, seed);
        write_words(block, size, larger, seed);
        size = larger;
        if (neighbour > 0) {
            void **next = malloc(neighbour);
            CHECK(next != NULL);
            memset(next, 1, neighbour);
            *next = last_neighbour;
            last_neighbour = next;
            neighbours += neighbour;
        }
        if (steps % 16 == 0) check_peak(final + neighbours);
    }
    verify_words(block, final, seed);
    check_peak(final + neighbours);
    check_say("%s: peak %zu KiB for %zu", check_now.name, peak_bytes() >> 10, (final + neighbours) >> 10);
    while (last_neighbour != NULL) {
        void **next = *last_neighbour;
        free(last_neighbour);
        last_neighbour = next;
    }
    free(block);
}

/* Catches: malloc, memcpy and free, which has both blocks resident at once. */
TEST(grows_by_half) { grow(by_half, FINAL, 0, 1); }

/* Catches: the same, and the square of the size copied in all: 512 GiB, which no watchdog waits for. */
TEST(grows_by_64_kib) { grow(by_64_kib, FINAL, 0, 2); }

/* Catches: growth in place only, that copies when the pages behind the block are taken. */
TEST(grows_by_half_with_neighbours) { grow(by_half, FINAL, MIB(1), 3); }
TEST(grows_by_4_mib_with_neighbours) { grow(by_4_mib, FINAL / 2, KIB(64), 4); }
TEST(grows_by_1_mib_with_small_neighbours) { grow(by_1_mib, FINAL / 4, KIB(4), 5); }

static void shrink(size_t (*smaller)(size_t), uint64_t seed) {
    size_t start = rss_bytes(), size = FINAL;
    void *block = malloc(size);
    CHECK(block != NULL);
    write_words(block, 0, size, seed);
    while (size > MIB(1)) {
        size = smaller(size) > MIB(1) ? smaller(size) : MIB(1);
        CHECK((block = realloc(block, size)) != NULL);
    }
    verify_words(block, size, seed);
    check_peak(FINAL);
    size_t bound = start + MIB(1) + MIB(8), rss = wait_for_rss(bound, IDLE_MILLISECONDS);
    if (rss > bound) check_say("%s: resident %zu KiB, bound %zu", check_now.name, rss >> 10, bound >> 10);
    CHECK(rss <= bound);
    verify_words(block, size, seed);
    CHECK((block = realloc(block, MIB(64))) != NULL);
    verify_words(block, size, seed);
    write_words(block, size, MIB(64), seed);
    verify_words(block, MIB(64), seed);
    free(block);
}

static size_t to_1_mib(size_t size) { return size - size + MIB(1); }
static size_t to_three_quarters(size_t size) { return (size / 4 * 3) & ~(size_t)7; }

/* Catches: a shrink in place that keeps the tail for ever, or tells nobody that it is dirty now. */
TEST(shrinks_at_once) { shrink(to_1_mib, 6); }
TEST(shrinks_in_steps) { shrink(to_three_quarters, 7); }

/* Catches: a block moved to where its alignment is lost in the books: a free or a realloc that finds
 * another beginning, and copies from there. */
TEST(grows_from_an_aligned_block) {
    static const size_t sizes[] = {MIB(2), MIB(3), MIB(40), MIB(41), KIB(300), KIB(8), MIB(9), MIB(1)};
    struct rng rng = {8};
    for (size_t alignment = KIB(4); alignment <= MIB(4); alignment *= 2) {
        size_t size = alignment * (1 + rng_below(&rng, 3));
        unsigned char *block = aligned_alloc(alignment, size);
        CHECK(block != NULL && is_aligned(block, alignment));
        write_words(block, 0, size, alignment);
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            size_t kept = size < sizes[i] ? size : sizes[i];
            CHECK((block = realloc(block, sizes[i])) != NULL);
            verify_words(block, kept, alignment);
            write_words(block, kept, sizes[i], alignment);
            size = sizes[i];
        }
        verify_words(block, size, alignment);
        free(block);
    }
}

/* Catches: a block that a refused growth has already moved, shortened or given back. */
TEST(stays_when_growth_is_refused) {
    static const size_t sizes[] = {KIB(100), MIB(1), MIB(33)};
    volatile size_t too_many = SIZE_MAX - 100; /* the compiler would say so */
    for (size_t i = 0; i < 3; i++) {
        void *block = malloc(sizes[i]);
        CHECK(block != NULL);
        write_words(block, 0, sizes[i], i);
        errno = 0;
        CHECK(realloc(block, too_many / 2 - KIB(64)) == NULL);
        CHECK_EQ(errno, ENOMEM);
        CHECK(realloc(block, too_many) == NULL);
        verify_words(block, sizes[i], i);
        CHECK((block = realloc(block, sizes[i] * 2)) != NULL);
        verify_words(block, sizes[i], i);
        free(block);
    }
}

/* Blocks that 4 threads resize and hand to each other. In each page a word says whose it is: cheap, and
 * a move that loses, doubles or mixes pages is seen. */
enum { THREADS = 4, SLOTS = 16 };

struct stamped {
    size_t size;
    uint64_t seed;
};

static struct stamped *slots[SLOTS];
static volatile int stop;
static volatile size_t resized;

static void stamp(struct stamped *block, size_t from, size_t to) {
    char *bytes = (char *)block;
    for (size_t at = (from + 4095) & ~(size_t)4095; at + 8 <= to; at += 4096) {
        uint64_t word = word_at(at, block->seed);
        if (at > 0) memcpy(bytes + at, &word, sizeof word);
    }
}

static void verify_stamps(const struct stamped *block, size_t to) {
    const char *bytes = (const char *)block;
    for (size_t at = 4096; at + 8 <= to; at += 4096) {
        uint64_t word = word_at(at, block->seed);
        CHECK_AT(memcmp(bytes + at, &word, sizeof word) == 0, at);
    }
}

static void *resize(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument << 32};
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        size_t slot = rng_below(&rng, SLOTS), size = rng_log(&rng, KIB(32), MIB(16));
        struct stamped *block = __atomic_exchange_n(&slots[slot], NULL, __ATOMIC_ACQ_REL);
        size_t old_size = block ? block->size : 0, kept = size < old_size ? size : old_size;
        uint64_t seed = block ? block->seed : rng_next(&rng);
        if (block) verify_stamps(block, old_size);
        CHECK((block = realloc(block, size)) != NULL);
        if (old_size > 0) CHECK(block->seed == seed && block->size == old_size);
        verify_stamps(block, old_size > 0 ? kept : 0);
        block->seed = seed;
        block->size = size;
        stamp(block, old_size > 0 ? kept - kept % 4096 : 0, size);
        block = __atomic_exchange_n(&slots[slot], block, __ATOMIC_ACQ_REL);
        if (block) verify_stamps(block, block->size);
        free(block);
        __atomic_fetch_add(&resized, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Catches: a span that one thread moves away while another takes the pages behind it, or while the purge
 * thread gives back the place it comes from. */
TEST(threads_resize_large_blocks) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, resize, (void *)(uintptr_t)(i + 1)), 0);
    sleep_ms(5000);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        if (slots[slot]) verify_stamps(slots[slot], slots[slot]->size);
        free(slots[slot]);
    }
    check_say("threads_resize_large_blocks: %zu times", resized);
    CHECK(resized > 100);
}
