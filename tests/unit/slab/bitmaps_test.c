/* bitmaps_test.c - pairs of bitmaps: zero, apart, used again.
 *
 * Planted defects it was seen to catch:
 *   a pair comes back as it was left             pairs_are_zero_and_apart
 *   the remote one lies within the next pair     pairs_are_zero_and_apart
 *   sizes just above a power share its list      pairs_are_zero_and_apart
 *   given pairs are forgotten                    given_pairs_are_used_again
 *   the lock is not taken                        threads_have_pairs_of_their_own
 *   a longer pair is of no use                   without_memory_a_longer_one_will_do
 */
#include "base/size_classes.h"
#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "region/books.h"
#include "slab/bitmaps.h"

#include <stdatomic.h>

enum { PAIRS = 500, THREADS = 4 };

struct pair {
    uint64_t *words;
    unsigned count;
    uint64_t key;
};

static void take(struct pair *pair, struct rng *rng) {
    pair->count = 2 + (unsigned)rng_below(rng, SLAB_MAX_WORDS - 1);
    pair->key = rng_next(rng) | 1;
    pair->words = bitmap_take(pair->count);
    CHECK(pair->words != NULL);
    _Atomic uint64_t *remote = bitmap_remote(pair->words);
    for (unsigned i = 0; i < pair->count; i++) {
        CHECK_AT(pair->words[i] == 0, i);
        CHECK_AT(atomic_load_explicit(&remote[i], memory_order_relaxed) == 0, i);
        pair->words[i] = pair->key + i;
        atomic_store_explicit(&remote[i], ~pair->key - i, memory_order_relaxed);
    }
}

static void give(struct pair *pair) {
    _Atomic uint64_t *remote = bitmap_remote(pair->words);
    for (unsigned i = 0; i < pair->count; i++) {
        CHECK_AT(pair->words[i] == pair->key + i, i);
        CHECK_AT(atomic_load_explicit(&remote[i], memory_order_relaxed) == ~pair->key - i, i);
        atomic_store_explicit(&remote[i], 0, memory_order_relaxed);
    }
    bitmap_give(pair->words, pair->count);
    pair->words = NULL;
}

static void *take_and_give(void *argument) {
    struct rng rng = {check_now.seed * 1000 + (uintptr_t)argument};
    struct pair pairs[PAIRS] = {{0}};
    for (size_t i = 0; i < check_count(40000); i++) {
        struct pair *pair = &pairs[rng_below(&rng, PAIRS)];
        if (pair->words == NULL) take(pair, &rng);
        else give(pair);
    }
    for (size_t i = 0; i < PAIRS; i++)
        if (pairs[i].words != NULL) give(&pairs[i]);
    return NULL;
}

TEST(pairs_are_zero_and_apart) { take_and_give(NULL); }

TEST(threads_have_pairs_of_their_own) {
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

TEST(given_pairs_are_used_again) {
    static struct pair pairs[PAIRS];
    uint64_t before = 0;
    for (int round = 0; round < 20; round++) {
        struct rng rng = {check_now.seed};
        for (size_t i = 0; i < PAIRS; i++) take(&pairs[i], &rng);
        for (size_t i = 0; i < PAIRS; i++) give(&pairs[i]);
        if (round == 0) before = books_bytes();
    }
    CHECK_EQ(books_bytes(), before);
}

TEST(without_memory_there_are_none) {
    fail_arm(FAIL_MMAP, 1, true, 0);
    size_t taken = 0;
    errno = 4711;
    while (bitmap_take(SLAB_MAX_WORDS) != NULL) CHECK_AT(++taken < 10000, taken);
    CHECK(bitmap_take(SLAB_MAX_WORDS) == NULL);
    CHECK_EQ(errno, 4711);
    fail_disarm();
    CHECK(bitmap_take(SLAB_MAX_WORDS) != NULL);
}

/* A longer pair that serves a shorter need is one of the shorter ones from then on. */
static void use_longer_ones(void) {
    enum { WORDS = 4 };
    uint64_t *longer = bitmap_take(SLAB_MAX_WORDS);
    CHECK(longer != NULL);
    fail_arm(FAIL_MMAP, 1, true, ENOMEM);
    while (bitmap_take(WORDS) != NULL) {}
    memset(longer, 0xff, SLAB_MAX_WORDS * sizeof *longer);
    bitmap_give(longer, SLAB_MAX_WORDS);
    CHECK(bitmap_take(WORDS) == longer);
    for (unsigned i = 0; i < SLAB_MAX_WORDS; i++) CHECK_AT(longer[i] == 0, i);
    CHECK(bitmap_take(WORDS) == NULL);
    bitmap_give(longer, WORDS);
    CHECK(bitmap_take(SLAB_MAX_WORDS) == NULL);
    CHECK(bitmap_take(WORDS) == longer);
}

TEST(without_memory_a_longer_one_will_do) { IN_CHILD(use_longer_ones); }
