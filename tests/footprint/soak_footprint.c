/* soak_footprint.c - a process that does the same for ever must cost the same for ever.
 *
 *     soak_footprint SECONDS
 *
 * Four threads replace, resize and free blocks in common slots, so that most frees are of another
 * thread's block; each thread ends after about a second and a new one goes on. A slot has a size that
 * its blocks vary around: about 64 MiB are live all the time. Resident bytes and mappings are sampled
 * every second; the median of the last quarter is compared with that of the second (the first is for
 * warming up). At least 8 seconds; ten minutes or a night by hand.
 *
 * Planted defects it is to catch: a heap lost at each thread's end, spans that split and never merge,
 * a mapping left behind by each realloc that moved.
 */
#define CHECK_NO_MAIN
#include "footprint.h"

enum { THREADS = 4, SMALL = 30000, MEDIUM = 1100, LARGE = 64, SLOTS = SMALL + MEDIUM + LARGE };

#define MOST_SAMPLES ((size_t)1 << 20)
#define MOST_GROWTH_PERCENT 8
#define MOST_NEW_MAPPINGS 16

struct block {
    size_t size;
    uint64_t key;
};

static struct block *slots[SLOTS];
static struct sample { size_t rss, mappings; } * samples, *sorted;
static volatile int stop;
static volatile size_t operations, lives;

/* Around a size that belongs to the slot: 16 to 1000 bytes, 1 to 56 KiB, 64 KiB to 1.7 MiB. */
static size_t size_for(size_t slot, struct rng *rng) {
    struct rng of_slot = {slot};
    size_t usual = slot < SMALL            ? rng_log(&of_slot, 32, 600)
                   : slot < SMALL + MEDIUM ? rng_log(&of_slot, KIB(2), KIB(40))
                                           : rng_log(&of_slot, KIB(128), MIB(1));
    return usual / 2 + rng_below(rng, usual + 1) + sizeof(struct block);
}

static void mark(struct block *block, size_t size) {
    char *bytes = (char *)block;
    block->size = size;
    block->key = mix64((uint64_t)size);
    for (size_t at = 4096; at < size; at += 4096) bytes[at] = (char)block->key;
}

static void verify(const struct block *block) {
    const char *bytes = (const char *)block;
    CHECK(block->key == mix64((uint64_t)block->size));
    for (size_t at = 4096; at < block->size; at += 4096) CHECK_AT(bytes[at] == (char)block->key, at);
}

/* Puts a block, new or resized, into a slot, and frees what came there meanwhile. */
static void operate(struct rng *rng) {
    size_t dice = rng_below(rng, 1000), slot;
    if (dice < 900)
        slot = rng_below(rng, SMALL);
    else
        slot = dice < 990 ? SMALL + rng_below(rng, MEDIUM) : SMALL + MEDIUM + rng_below(rng, LARGE);
    size_t size = size_for(slot, rng);
    struct block *block = NULL;
    if (dice % 4 == 0) block = __atomic_exchange_n(&slots[slot], NULL, __ATOMIC_ACQ_REL);
    if (block != NULL) {
        verify(block);
        uint64_t key = block->key;
        CHECK((block = realloc(block, size)) != NULL);
        CHECK(block->key == key);
        mark(block, size);
    } else {
        CHECK((block = malloc(size)) != NULL);
        mark(block, size);
    }
    block = __atomic_exchange_n(&slots[slot], block, __ATOMIC_ACQ_REL);
    if (block != NULL) verify(block);
    free(block);
}

static void *live(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument << 32};
    uint64_t end = now_ms() + 800 + rng_below(&rng, 400);
    size_t done = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) && now_ms() < end)
        for (size_t i = 0; i < 100; i++, done++) operate(&rng);
    __atomic_fetch_add(&operations, done, __ATOMIC_RELAXED);
    return NULL;
}

/* Keeps one worker going, in one short life after the other. */
static void *keep_one_going(void *argument) {
    size_t number = (size_t)(uintptr_t)argument;
    for (size_t life = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); life++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, live, (void *)(uintptr_t)(life * THREADS + number)), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        __atomic_fetch_add(&lives, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static struct sample median(size_t from, size_t to) {
    struct sample result;
    size_t count = to - from;
    for (size_t field = 0; field < 2; field++) {
        for (size_t i = 0; i < count; i++) {
            size_t value = field ? samples[from + i].mappings : samples[from + i].rss, at = i;
            for (; at > 0 && sorted[at - 1].rss > value; at--) sorted[at].rss = sorted[at - 1].rss;
            sorted[at].rss = value;
        }
        if (field)
            result.mappings = sorted[count / 2].rss;
        else
            result.rss = sorted[count / 2].rss;
    }
    return result;
}

int main(int argc, char **argv) {
    check_now.name = "soak_footprint";
    size_t seconds = argc > 1 ? strtoul(argv[1], NULL, 10) : 20, wanted = 0;
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    CHECK(seconds >= 8 && seconds <= MOST_SAMPLES);
    alarm((unsigned)seconds + 120);
    samples = map_populated(2 * seconds * sizeof *samples);
    sorted = samples + seconds;
    struct rng rng = {0};
    for (size_t slot = 0; slot < SLOTS; slot++) { /* all slots full, then for ever */
        size_t size = size_for(slot, &rng);
        CHECK((slots[slot] = malloc(size)) != NULL);
        mark(slots[slot], size);
        wanted += size;
    }
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, keep_one_going, (void *)(uintptr_t)i), 0);
    uint64_t next = now_ms();
    for (size_t i = 0; i < seconds; i++) {
        next += 1000;
        if (now_ms() < next) sleep_ms(next - now_ms());
        samples[i] = (struct sample){rss_bytes(), count_mappings()};
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        verify(slots[slot]);
        free(slots[slot]);
    }
    struct sample before = median(seconds / 4, seconds / 2), after = median(seconds * 3 / 4, seconds);
    check_say("soak_footprint: live about %zu KiB, resident %zu then %zu (%+.1f %%), mappings %zu then %zu; "
              "%zu operations, %zu threads",
              wanted >> 10, before.rss >> 10, after.rss >> 10,
              100.0 * ((double)after.rss / (double)before.rss - 1), before.mappings, after.mappings,
              operations, lives);
    CHECK(after.rss <= before.rss + before.rss * MOST_GROWTH_PERCENT / 100);
    CHECK(after.mappings <= before.mappings + MOST_NEW_MAPPINGS);
    check_say("ok soak_footprint");
    return 0;
}
