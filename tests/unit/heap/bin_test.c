/* bin_test.c - the slabs of a heap of the test's own: lists by fullness, filling, putting back, handing
 * over, adopting. After every step all lists are walked.
 *
 * Planted defects it was seen to catch:
 *   the emptiest slab is filled from first       random_filling_and_putting
 *   an empty slab is kept                        random_filling_and_putting
 *   prev is not mended when a slab is unlinked   random_filling_and_putting
 *   hand-over forgets the full slabs             handing_over_and_adopting
 *   adoption leaves the old word                 handing_over_and_adopting
 *   unused blocks come beside returned ones      returned_blocks_come_before_unused_ones
 *   the commons wait for all that is handed over others_come_between
 */
#include "own_heap.h"

#include <pthread.h>

enum { MOST_HELD = 6000 };

static enum bucket bucket_of(uint32_t first) {
    double share = (double)slab_at(first)->free / slab_classes[slab_at(first)->span.class].blocks;
    return share <= 0 ? BUCKET_FULL : share <= 0.25 ? BUCKET_QUARTER : share <= 0.5 ? BUCKET_HALF : BUCKET_MORE;
}

/* Walks the lists of CLASS; returns how many blocks are out of its slabs. */
static size_t check_lists(const struct heap *heap, unsigned class) {
    const struct bin *bin = &heap->bins[class];
    size_t out = 0, slabs = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        uint32_t before = 0;
        for (uint32_t first = bin->slabs[bucket]; first != 0; first = slab_at(first)->span.next) {
            const struct slab *slab = slab_at(first);
            CHECK_EQ(slab->span.prev, before);
            CHECK_EQ(slab->span.class, class);
            CHECK_EQ(slab->bucket, bucket);
            CHECK_EQ(bucket_of(first), bucket);
            CHECK(atomic_load(&slab->owner) == heap);
            for (uint32_t page = first; page < first + slab_classes[class].pages; page++)
                CHECK_EQ(page_word(page), heap_word(heap, class));
            out += slab_classes[class].blocks - slab->free;
            before = first;
            CHECK_AT(++slabs <= bin->slab_count, class);
        }
    }
    CHECK_EQ(slabs, bin->slab_count);
    CHECK_EQ(out, bin->taken_blocks);
    return out;
}

/* From 1 KiB on a refill is of blocks that came back, as long as there are some, where others give blocks back. */
static void check_refill_of_returned(unsigned class, bool from_others) {
    enum { GIVEN = 3, WANTED = 8 };
    struct heap *heap = make_heap(HEAP_LIVE);
    const uint32_t first = add_slab(heap, class);
    const bool only = from_others && slab_classes[class].block_bytes >= 1024;
    void *blocks[WANTED], *more[WANTED];
    bool zero;
    CHECK_EQ(bin_fill(heap, class, blocks + WANTED, WANTED, &zero), WANTED);
    if (from_others) bin_note_returned(&heap->bins[class], 1);
    CHECK(bin_wants_drain(heap, class) == only);
    bin_put(heap, blocks, GIVEN);
    CHECK(!bin_wants_drain(heap, class));
    const uint32_t got = bin_fill(heap, class, more + WANTED, WANTED, &zero);
    CHECK_EQ(got, only ? GIVEN : WANTED);
    CHECK_EQ(slab_at(first)->carved, WANTED + got - GIVEN);
    bin_put(heap, blocks + GIVEN, WANTED - GIVEN);
    bin_put(heap, more + WANTED - got, got);
    CHECK_EQ(heap->bins[class].slab_count, 0);
    CHECK(bin_wants_drain(heap, class));
}

TEST(returned_blocks_come_before_unused_ones) {
    for (unsigned class = 0; class < SMALL_CLASSES; class++) {
        if (slab_classes[class].blocks < 16) continue;
        check_refill_of_returned(class, false);
        check_refill_of_returned(class, true);
    }
}

static void *held[5 * MOST_HELD]; /* and what a last filling takes */
static size_t held_count;

static void fill(struct heap *heap, unsigned class, uint32_t want) {
    void *blocks[600], **end = blocks + want;
    unsigned fullest = BUCKET_QUARTER;
    while (fullest < BUCKETS && heap->bins[class].slabs[fullest] == 0) fullest++;
    uint32_t expected = fullest < BUCKETS ? heap->bins[class].slabs[fullest] : 0;
    bool zero = false;
    uint32_t got = bin_fill(heap, class, end, want, &zero);
    CHECK(got == 0 || !zero || block_is_zero(end[-1], slab_classes[class].block_bytes));
    for (uint32_t i = 0; i < got; i++) *(char *)end[-1 - (long)i] = 'x';
    CHECK(got <= want);
    if (expected == 0) CHECK_EQ(got, 0);
    else CHECK_EQ(slab_head(page_index(end[-1])), expected);
    for (uint32_t i = 0; i < got; i++) held[held_count++] = end[-1 - (long)i];
    /* Less than wanted only when no slab of the class has a free block. */
    if (got < want)
        for (unsigned bucket = BUCKET_QUARTER; bucket < BUCKETS; bucket++)
            CHECK_EQ(heap->bins[class].slabs[bucket], 0);
}

static void put(struct heap *heap, struct rng *rng, size_t count) {
    void *blocks[600];
    for (size_t i = 0; i < count; i++) {
        size_t at = rng_below(rng, held_count);
        blocks[i] = held[at];
        held[at] = held[--held_count];
    }
    bin_put(heap, blocks, count);
}

TEST(random_filling_and_putting) {
    const unsigned classes[] = {0, 15, 31, 47, 63};
    struct heap *heap = make_heap(HEAP_DEAD);
    struct span_counts before, after;
    span_counts_read(&before);
    for (size_t c = 0; c < sizeof classes / sizeof classes[0]; c++) {
        struct rng rng = {check_now.seed + c};
        unsigned class = classes[c];
        held_count = 0;
        for (size_t i = 0; i < check_count(4000); i++) {
            bool growing = i / 300 % 2 == 0;
            size_t count = 1 + rng_below(&rng, rng_below(&rng, 8) ? 20 : 600);
            if (rng_below(&rng, 3) < (growing ? 2 : 1)) {
                if (held_count + count > MOST_HELD) continue;
                size_t had = held_count;
                fill(heap, class, (uint32_t)count);
                if (held_count == had) add_slab(heap, class);
            } else if (held_count != 0) {
                put(heap, &rng, count < held_count ? count : held_count);
                /* The one that was added and not yet used aside, no slab stays without a use. */
                for (uint32_t at = heap->bins[class].slabs[BUCKET_MORE]; at != 0; at = slab_at(at)->span.next)
                    CHECK(slab_at(at)->free < slab_classes[class].blocks || slab_at(at)->carved == 0);
            }
            CHECK_EQ(check_lists(heap, class), held_count);
        }
        while (held_count > 500) put(heap, &rng, 500);
        for (size_t had = SIZE_MAX; had != held_count;) { /* uses the one that was added, if any */
            had = held_count;
            fill(heap, class, 600);
        }
        while (held_count != 0) put(heap, &rng, held_count < 500 ? held_count : 500);
        CHECK_EQ(heap->bins[class].slab_count, 0);
    }
    span_counts_read(&after);
    CHECK_EQ(after.used_pages, before.used_pages);
}

TEST(handing_over_and_adopting) {
    struct heap *from = make_heap(HEAP_DEAD), *to = make_heap(HEAP_DEAD);
    const unsigned classes[] = {15, 47};
    struct rng rng = {check_now.seed};
    for (size_t c = 0; c < 2; c++) {
        unsigned class = classes[c];
        uint32_t blocks = slab_classes[class].blocks, full = 0, partial = 0;
        held_count = 0;
        CHECK_EQ(commons.bins[class].slab_count, 0);
        for (int i = 0; i < 6; i++) add_slab(from, class);
        while (held_count + 300 < 5 * (size_t)blocks + 300) fill(from, class, 1);
        put(from, &rng, blocks / 2);
        for (uint32_t at = from->bins[class].slabs[BUCKET_FULL]; at != 0; at = slab_at(at)->span.next) full++;
        partial = (uint32_t)from->bins[class].slab_count - full;
        CHECK(partial >= 2);

        os_lock_take(&from->lock);
        bin_hand_over(from, UINT32_MAX);
        os_lock_drop(&from->lock);
        CHECK_EQ(check_lists(from, class), 0);
        CHECK_EQ(from->bins[class].slab_count, 0);
        CHECK_EQ(check_lists(&commons, class), held_count);
        CHECK_EQ(commons.bins[class].slab_count, full + partial);

        unsigned before = BUCKET_FULL;
        for (uint32_t adopted = 1; adopted <= partial; adopted++) {
            CHECK(bin_adopt(to, class));
            CHECK_EQ(to->bins[class].slab_count, adopted);
            CHECK_EQ(check_lists(to, class) + check_lists(&commons, class), held_count);
            unsigned bucket = BUCKET_FULL; /* the emptiest so far came last: the fullest are taken first */
            for (unsigned b = 0; b < BUCKETS; b++)
                if (to->bins[class].slabs[b] != 0) bucket = b;
            CHECK(bucket >= before);
            before = bucket;
        }
        CHECK(!bin_adopt(to, class)); /* the others have nothing to give */
        CHECK_EQ(to->bins[class].adopted_slabs, partial);
        CHECK_EQ(commons.bins[class].slab_count, full);
    }
}

static _Atomic bool handing_over, came_between, done;

static void *look_at_commons(void *from) {
    const struct heap *heap = from;
    while (!atomic_load(&done) && !atomic_load(&came_between)) {
        os_lock_take(&commons.lock);
        bool both = atomic_load(&commons.slab_total) != 0 && atomic_load(&heap->slab_total) != 0;
        if (both && atomic_load(&handing_over)) atomic_store(&came_between, true);
        os_lock_drop(&commons.lock);
    }
    return NULL;
}

/* However many slabs a heap hands over, whoever needs one of the commons waits for one of them. */
TEST(others_come_between) {
    enum { SLABS = 2000, CLASS = 15, ENOUGH_MS = 20000 };
    struct heap *from = make_heap(HEAP_DEAD);
    pthread_t looker;
    for (int i = 0; i < SLABS; i++) add_slab(from, CLASS);
    CHECK_EQ(pthread_create(&looker, NULL, look_at_commons, from), 0);
    for (uint64_t start = os_clock_ms(); !atomic_load(&came_between) && os_clock_ms() - start < ENOUGH_MS;) {
        os_lock_take(&from->lock);
        atomic_store(&handing_over, true);
        bin_hand_over(from, UINT32_MAX);
        atomic_store(&handing_over, false);
        for (int slab = 0; slab < SLABS; slab++) CHECK(bin_adopt(from, CLASS));
        os_lock_drop(&from->lock);
    }
    atomic_store(&done, true);
    CHECK_EQ(pthread_join(looker, NULL), 0);
    CHECK(came_between);
    held_count = 0;
    while (from->bins[CLASS].slab_count != 0) {
        fill(from, CLASS, 1); /* of a slab of one block at least */
        bin_put(from, held, held_count);
        held_count = 0;
    }
}
