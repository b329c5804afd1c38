/* holes_test.c - kernel pages inside slabs of every class that no block in use lies on, against a model of one byte a
 * block. What is found is really given back, so that a page too many shows in the contents of a block.
 *
 * Planted defects it was seen to catch, in every_class_against_a_model unless said otherwise:
 *   a hole begins or ends inside a page of a block in use
 *   the blocks of a hole can be had meanwhile, or are carved
 *   what was carved, or how many are free, is forgotten
 *   low_word is not lowered
 *   the search ends with a word, or leaves out what follows a hole
 *   the tail is said to be zero though its first page, or all of it, was not given back
 *   a block that came back is said to be zero
 *   the tail of a slab of dirty pages is no hole
 *   the tail of a fresh slab of huge pages is no hole   the_tail_of_a_huge_page_is_a_hole
 */
#include "blocks.h"
#include "no_purger.h"
#include "os/os.h"
#include "slab/slab.h"

enum { MOST_BLOCKS = 8192, MOST_PAGES = 1024 };

/* Where a block is. HELD: in the hole that is being given back. */
enum place { FREE, IN_USE, HELD };

static struct heap *const nobody = (struct heap *)0x1000;

static struct {
    uint32_t first, blocks, bytes, carved; /* blocks below were handed out once */
    size_t slab_bytes, pages;              /* of the kernel */
    char *start;
    uint8_t place[MOST_BLOCKS];
    bool in_hole[MOST_PAGES], expected[MOST_PAGES];
    size_t holes, zeroes; /* seen so far */
} model;

static struct slab *slab(void) { return slab_at(model.first); }

static char *block_at(uint32_t number) { return model.start + (size_t)number * model.bytes; }

static void create(unsigned class, bool dense) {
    const struct slab_class *shape = &slab_classes[class];
    memset(&model, 0, offsetof(typeof(model), holes));
    model.first = slab_create(class, dense ? ACE_DENSE : ACE_SPARSE);
    CHECK(model.first != 0);
    slab_set_owner(model.first, nobody, 640 + class);
    model.blocks = shape->blocks;
    model.bytes = shape->block_bytes;
    model.slab_bytes = shape->pages * PAGE_BYTES;
    model.pages = model.slab_bytes / os_page_bytes();
    model.start = page_address(model.first);
    CHECK(model.blocks <= MOST_BLOCKS && model.pages <= MOST_PAGES);
}

static uint32_t count(enum place place, uint32_t end) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < end; i++) sum += model.place[i] == place;
    return sum;
}

static uint64_t key_of(uint32_t number) { return mix64(number + 77); }

static void check_contents(void) {
    for (uint32_t i = 0; i < model.blocks; i++)
        if (model.place[i] == IN_USE) CHECK_AT(block_holds(block_at(i), model.bytes, key_of(i)), i);
}

/* The lowest free ones, of which none lies in a hole; and the first is zero if that was said. */
static void take(uint32_t want) {
    static void *stack[MOST_BLOCKS + 1];
    void **end = stack + want;
    bool zero = slab_next_is_zero(model.first);
    uint32_t available = count(FREE, model.blocks), next = 0, got = slab_take(model.first, end, want);
    CHECK_EQ(got, want < available ? want : available);
    if (got != 0 && zero) {
        model.zeroes++;
        CHECK(block_is_zero(end[-1], model.bytes));
    }
    for (uint32_t i = 0; i < got; i++) {
        while (model.place[next] != FREE) next++;
        CHECK_AT(*--end == block_at(next), next);
        model.place[next] = IN_USE;
        block_fill(*end, model.bytes, key_of(next));
        if (next >= model.carved) model.carved = next + 1;
    }
}

/* Some of what is in use, together or scattered; by the owner, or by another thread and then taken in. */
static void put(struct rng *rng, size_t most) {
    static void *blocks[MOST_BLOCKS];
    size_t chosen = 0;
    uint32_t at = (uint32_t)rng_below(rng, model.blocks), step = rng_below(rng, 3) ? 1 : 67;
    for (uint32_t tried = 0; tried < model.blocks && chosen < most; tried++, at = (at + step) % model.blocks) {
        if (model.place[at] != IN_USE) continue;
        CHECK_AT(block_holds(block_at(at), model.bytes, key_of(at)), at);
        model.place[at] = FREE;
        blocks[chosen++] = block_at(at);
    }
    if (chosen == 0) return;
    if (rng_below(rng, 2)) {
        CHECK_EQ(slab_put(model.first, blocks, chosen), chosen);
    } else {
        CHECK_EQ(slab_put_remote(model.first, blocks, chosen), chosen);
        CHECK_EQ(slab_drain(model.first), chosen);
    }
}

static void check_counts(void) {
    CHECK_EQ(slab()->free, count(FREE, model.blocks));
    if (count(HELD, model.blocks) == 0) CHECK_EQ(slab()->carved, model.carved);
    for (uint32_t word = 0; word < slab()->low_word && word * 64 < model.carved; word++)
        CHECK_AT(slab()->bits[word] == 0, word);
    for (uint32_t i = 0; i < model.carved; i++)
        CHECK_AT((slab()->bits[i / 64] >> i % 64 & 1) == (model.place[i] == FREE), i);
}

/* Whether the kernel's memory behind what was never carved may be there. */
static bool tail_may_be_there(void) {
    const struct chunk *chunk = page_chunk(model.first);
    return !slab()->span.zero || (chunk->zone == ZONE_HUGE && !chunk->broken);
}

/* The naive answer: a look at every page. What was never carved counts if memory may stand behind it, or if something
 * that was carved lies on the same page. */
static void expect_holes(void) {
    size_t page = os_page_bytes(), end = model.slab_bytes;
    if (!tail_may_be_there()) end = ((size_t)model.carved * model.bytes + page - 1) / page * page;
    for (size_t i = 0; i < model.pages; i++) model.expected[i] = (i + 1) * page <= end;
    for (uint32_t block = 0; block < model.blocks; block++) {
        if (model.place[block] == FREE) continue;
        size_t last = ((size_t)(block + 1) * model.bytes - 1) / page;
        for (size_t i = (size_t)block * model.bytes / page; i <= last; i++) model.expected[i] = false;
    }
    /* Less than a page in all is not looked for, though one may be made up of a block and the slab's waste. */
    if ((size_t)count(FREE, model.blocks) * model.bytes < page) memset(model.expected, 0, sizeof model.expected);
}

static bool overlaps(const struct slab_hole *hole, uint32_t block) {
    return block_at(block) < hole->start + hole->bytes && hole->start < block_at(block) + model.bytes;
}

/* HOLE was just taken: it is made of whole pages without a block in use, and its blocks can be had no more. */
static void hold(const struct slab_hole *hole) {
    size_t page = os_page_bytes(), at = (size_t)(hole->start - model.start) / page;
    CHECK(is_aligned(hole->start, page) && hole->bytes != 0 && hole->bytes % page == 0);
    CHECK(hole->start >= model.start && hole->start + hole->bytes <= model.start + model.slab_bytes);
    for (size_t i = at; i < at + hole->bytes / page; i++) {
        CHECK_AT(!model.in_hole[i], i); /* none is found twice */
        model.in_hole[i] = true;
    }
    bool tail = hole->carved != UINT32_MAX;
    if (tail) CHECK_EQ(hole->carved, model.carved);
    for (uint32_t i = 0; i < model.blocks; i++) {
        bool held = (i >= hole->block && i < hole->block + hole->blocks) || (tail && i >= model.carved);
        if (overlaps(hole, i)) CHECK_AT(model.place[i] == FREE && (held || i >= model.carved), i);
        if (held) model.place[i] = HELD;
    }
    check_counts();
    model.holes++;
}

static void let_go(const struct slab_hole *hole, bool give_back) {
    bool zero_before = slab()->span.zero, zeroed = false;
    if (give_back) {
        span_purging_lock();
        zeroed = span_purge_part(hole->start, hole->bytes);
        span_purging_unlock();
        if (zeroed) CHECK(block_is_zero(hole->start, hole->bytes));
    }
    slab_hole_give(model.first, hole, zeroed);
    for (uint32_t i = 0; i < model.blocks; i++)
        if (model.place[i] == HELD) model.place[i] = FREE;
    check_counts();
    bool to_the_end = hole->start + hole->bytes == model.start + model.slab_bytes;
    if (hole->carved != UINT32_MAX && zeroed && to_the_end && hole->start <= block_at(hole->carved))
        CHECK(slab()->span.zero);
    else
        CHECK_EQ(slab()->span.zero, zero_before);
}

/* All holes, one after the other, with nothing in between. */
static void find_all(bool give_back) {
    struct slab_hole hole;
    expect_holes();
    memset(model.in_hole, 0, sizeof model.in_hole);
    for (uint32_t from = 0; slab_hole_take(model.first, &from, &hole);) {
        /* Or the slab could be released meanwhile. */
        CHECK(slab_at(model.first)->free < slab_classes[slab_at(model.first)->span.class].blocks);
        hold(&hole);
        let_go(&hole, give_back);
    }
    for (size_t i = 0; i < model.pages; i++) CHECK_AT(model.in_hole[i] == model.expected[i], i);
    check_contents();
}

/* The same while the owner and other threads go on. */
static void find_among_others(struct rng *rng) {
    struct slab_hole hole;
    memset(model.in_hole, 0, sizeof model.in_hole);
    for (uint32_t from = 0; slab_hole_take(model.first, &from, &hole);) {
        /* Or the slab could be released meanwhile. */
        CHECK(slab_at(model.first)->free < slab_classes[slab_at(model.first)->span.class].blocks);
        hold(&hole);
        for (size_t i = rng_below(rng, 3); i > 0; i--) {
            size_t most = 1 + rng_below(rng, model.blocks);
            if (rng_below(rng, 2)) take((uint32_t)most);
            else put(rng, most);
            check_counts();
        }
        let_go(&hole, rng_below(rng, 4) != 0);
    }
    check_contents();
}

static void empty(void) {
    static void *blocks[MOST_BLOCKS];
    size_t used = 0;
    for (uint32_t i = 0; i < model.blocks; i++)
        if (model.place[i] == IN_USE) blocks[used++] = block_at(i);
    if (used != 0) CHECK_EQ(slab_put(model.first, blocks, used), used);
    slab_release(model.first);
}

/* Holes large and small: little is in use, or much, in stretches. */
static void work(struct rng *rng) {
    for (size_t i = 0; i < check_count(40) + 4; i++) {
        uint32_t most = 1 + (uint32_t)rng_below(rng, rng_below(rng, 3) ? model.blocks : model.blocks / 8 + 1);
        if (rng_below(rng, 5) < 2) take(most);
        else put(rng, most);
        check_counts();
        if (rng_below(rng, 2)) find_all(rng_below(rng, 2));
        else if (rng_below(rng, 2)) find_among_others(rng);
    }
}

static void work_in_every_class(bool huge) {
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .huge_from_pages = huge ? 0 : UINT64_MAX});
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct rng rng = {check_now.seed + class};
        for (int round = 0; round < 2; round++) { /* the second time on pages that were used before */
            create(class, huge);
            work(&rng);
            empty();
        }
    }
    CHECK(model.holes > 500 && model.zeroes > 20);
}

TEST(every_class_against_a_model) { work_in_every_class(false); }

TEST(every_class_of_huge_pages_against_a_model) { work_in_every_class(true); }

/* A slab that is quite free is one hole; while it is held nothing can be had of it. */
TEST(a_free_slab_is_one_hole) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct slab_hole hole, none;
        uint32_t from = 0, again = 0;
        create(class, false);
        bool fresh = !tail_may_be_there();
        take(model.blocks);
        struct rng rng = {check_now.seed};
        while (count(IN_USE, model.blocks) != 0) put(&rng, model.blocks);
        CHECK(slab_hole_take(model.first, &from, &hole));
        CHECK(hole.start == model.start);
        if (!fresh) CHECK_EQ(hole.bytes, model.slab_bytes);
        hold(&hole);
        CHECK_EQ(slab()->free, 0);
        take(5);
        CHECK(!slab_hole_take(model.first, &again, &none));
        let_go(&hole, true);
        CHECK(!slab_hole_take(model.first, &from, &none)); /* it was the last */
        empty();
    }
}

/* What was never carved costs nothing in plain memory; but a huge page comes in as a whole. A medium block leaves nothing. */
TEST(the_tail_of_a_huge_page_is_a_hole) {
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .huge_from_pages = 0});
    for (unsigned class = 0; class < SMALL_CLASSES; class++) {
        struct slab_hole hole;
        uint32_t from = 0, tries = 0;
        const struct chunk *chunk;
        do { /* the others stay: better pages come first */
            create(class, true);
            chunk = page_chunk(model.first);
        } while ((chunk->zone != ZONE_HUGE || chunk->broken || !slab()->span.zero) && ++tries < 5000);
        CHECK(tries < 5000);
        take(1);
        CHECK(slab_hole_take(model.first, &from, &hole));
        CHECK(hole.start + hole.bytes == model.start + model.slab_bytes);
        hold(&hole);
        let_go(&hole, false);
        find_all(false);
    }
}
