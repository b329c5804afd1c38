/* span_test.c - spans taken, given back, lengthened, shortened and moved at random, with time passing. After each
 * round every page of the window is looked at.
 *
 * Tests run in children: what the layer knows stays in the process.
 *
 * Planted defects it was seen to catch:
 *   no merging with the span before, or after    random_work_keeps_the_books
 *   dirty pages are not counted when taken       random_work_keeps_the_books
 *   every span claims to be zero                 random_work_keeps_the_books
 *   pages of one dirty run are counted twice     random_work_keeps_the_books
 *   one dirty page passes for all, or none does  what_is_kept_is_asked_for_before_growth
 *   an aligned hole is not found                 aligned_holes_are_used_again
 *   more comes than an alignment needs           alignment_brings_no_more_than_it_needs
 *   every thread in need brings memory           threads_in_need_wait_for_who_brings_memory
 *   one take makes all the room that is missing,
 *   or room is made only for fresh memory        one_take_returns_little_more_than_it_takes
 *   the end is published in no order             what_lies_below_the_end_can_be_read, under ThreadSanitizer, not each time
 */
#include "child.h"
#include "clock.h"
#include "faults/fail_calls.h"
#include "spans.h"

enum { LOOKS = 16, THREADS = 4, SLOTS = 60, HUGE_FROM = 400 };

static void check_zero_if_said(const struct mine *mine) {
    if (span_at(mine->first)->zero) check_zero(mine->first, mine->pages);
}

static void take(struct mine *mine, struct rng *rng) {
    size_t align = rng_below(rng, 3) ? 1 : (size_t)1 << rng_below(rng, 8);
    size_t most = rng_below(rng, 8) ? 20 : 300;
    mine->pages = 1 + (uint32_t)rng_below(rng, most);
    mine->first = span_take(mine->pages, align, (enum ace_fill)rng_below(rng, ACE_GROWN + 1));
    CHECK(mine->first != 0);
    CHECK(is_aligned(page_address(mine->first), align * PAGE_BYTES));
    CHECK_EQ(span_at(mine->first)->pages, mine->pages);
    check_zero_if_said(mine);
    mine->key = rng_next(rng);
    write_pages(mine, 0);
}

static void change(struct mine *mine, struct rng *rng) {
    check_pages(mine, mine->pages);
    uint32_t before = mine->pages;
    size_t dice = rng_below(rng, 5);
    if (dice == 0) {
        mine->pages += 1 + (uint32_t)rng_below(rng, 30);
        if (!span_extend(mine->first, mine->pages)) mine->pages = before;
    } else if (dice == 1) {
        mine->pages = 1 + (uint32_t)rng_below(rng, mine->pages);
        span_trim(mine->first, mine->pages);
    } else if (dice == 2) {
        mine->pages += 1 + (uint32_t)rng_below(rng, 30);
        mine->first = span_move(mine->first, before, mine->pages);
        CHECK(mine->first != 0);
        check_pages(mine, before);
    } else {
        span_give(mine->first);
        mine->pages = 0;
        return;
    }
    CHECK_EQ(span_at(mine->first)->pages, mine->pages);
    if (mine->pages > before) write_pages(mine, before);
}

static void pass(uint64_t ms) {
    clock_pass(ms);
    for (int i = 0; i < LOOKS; i++) {
        span_purging_lock();
        bool more;
        span_decay(i % 3 ? SPAN_PACE_WORK : SPAN_PACE_IDLE, i % 4 ? UINT64_MAX : 10, &more);
        span_purging_unlock();
    }
}

static _Atomic uint64_t zero_spans;

static void *work(void *argument) {
    struct rng rng = {check_now.seed * 1000 + (uintptr_t)argument};
    struct mine slots[SLOTS] = {{0}};
    /* Threads wait for the kernel most of the time: together they do as much as one alone. */
    const size_t count = check_count(argument == NULL || CHECK_SLOW ? 20000 : 20000 / THREADS);
    for (size_t i = 0; i < count; i++) {
        struct mine *mine = &slots[rng_below(&rng, SLOTS)];
        if (mine->pages == 0) {
            take(mine, &rng);
            atomic_fetch_add(&zero_spans, span_at(mine->first)->zero);
        } else {
            change(mine, &rng);
        }
        if (i % 50 == 0) pass(rng_below(&rng, 200));
        if (argument == NULL && i % 100 == 0) check_books();
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i].pages == 0) continue;
        check_pages(&slots[i], slots[i].pages);
        span_give(slots[i].first);
    }
    return NULL;
}

static void work_alone(void) {
    touch_memory();
    struct span_counts before = counts_now();
    configure(500, HUGE_FROM);
    work(NULL);
    check_books();
    struct span_counts after = counts_now();
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.taken - before.taken, after.given - before.given);
    CHECK(atomic_load(&zero_spans) > check_count(20000) / 400); /* there were some to find wrong */
    CHECK(after.fresh_pages < 2 * 40000 / 64 * SLOTS);          /* pages are used again */
    CHECK(after.moves + after.copies > before.moves + before.copies);
    CHECK(after.huge_pages > before.huge_pages && after.huge_pages < after.fresh_pages); /* both zones */
}

TEST(random_work_keeps_the_books) { IN_CHILD(work_alone); }

static void work_without_moves(void) {
    fail_arm(FAIL_MREMAP, 1, true, EINVAL);
    work_alone();
    CHECK_EQ(counts_now().moves, 0);
}

TEST(random_work_where_nothing_can_be_moved) { IN_CHILD(work_without_moves); }

TEST(aligned_spans) {
    for (size_t align = 1; align <= 16384; align *= 2) {
        uint32_t first = span_take(1, align, align % 3 == 0 ? ACE_DENSE : ACE_SPARSE);
        CHECK_AT(first != 0 && is_aligned(page_address(first), align * PAGE_BYTES), align);
        span_give(first);
    }
    CHECK_EQ(span_take(window.pages + 1, 1, ACE_SPARSE), 0);
    CHECK_EQ(span_take(1, window.pages * 2, ACE_SPARSE), 0);
    CHECK_EQ(span_take(window.pages - CHUNK_PAGES + 1, 1, ACE_SPARSE), 0);
    CHECK(!span_extend(CHUNK_PAGES, window.pages + 1));
}

/* What earlier tests left free serves nobody then; what comes for the last page, at most 4095 more, does. */
static void use_what_is_free(void) {
    configure(ACE_NEVER, UINT64_MAX);
    for (const uint64_t fresh = counts_now().fresh_pages; counts_now().fresh_pages == fresh;)
        CHECK(span_take(1, 1, ACE_DENSE) != 0);
}

/* Of aligned spans side by side every second one is given back: as many again find room there. */
static uint32_t hole_pages;
static void take_holes_again(void) {
    enum { PAGES = 16384 }; /* half of it is more than can be free elsewhere */
    static uint32_t spans[PAGES / 2];
    const uint32_t count = PAGES / hole_pages;
    use_what_is_free();
    for (uint32_t i = 0; i < count; i++) CHECK((spans[i] = span_take(hole_pages, hole_pages, ACE_DENSE)) != 0);
    for (uint32_t i = 0; i < count; i += 2) span_give(spans[i]);
    const uint64_t fresh = counts_now().fresh_pages;
    for (uint32_t i = 0; i < count; i += 2) {
        CHECK((spans[i] = span_take(hole_pages, hole_pages, ACE_DENSE)) != 0);
        CHECK_AT(is_aligned(page_address(spans[i]), hole_pages * PAGE_BYTES), i);
    }
    CHECK_EQ(counts_now().fresh_pages, fresh);
    check_books();
}

TEST(aligned_holes_are_used_again) {
    for (hole_pages = 2; hole_pages <= 128; hole_pages *= 4) IN_CHILD(take_holes_again);
}

/* Fresh memory begins with a chunk: only what is aligned to more needs more pages than it has. */
static void take_fresh_aligned(void) {
    enum { PAGES = 3 * 4096 }; /* more than comes at once for less */
    use_what_is_free();
    for (uint32_t align = 2; align <= 16 * CHUNK_PAGES; align *= 4) {
        const uint64_t fresh = counts_now().fresh_pages;
        const uint32_t first = span_take(PAGES, align, ACE_DENSE);
        CHECK_AT(first != 0 && is_aligned(page_address(first), align * PAGE_BYTES), align);
        CHECK_EQ(counts_now().fresh_pages - fresh, PAGES + (align > CHUNK_PAGES ? align - CHUNK_PAGES : 0));
    }
    check_books();
}

TEST(alignment_brings_no_more_than_it_needs) { IN_CHILD(take_fresh_aligned); }

/* What is kept is asked for once, where some of the pages would have to be brought in, and no sooner. */
static size_t asked_pages;
static uint32_t asked, kept;
static void ask(size_t pages) {
    asked_pages = pages;
    asked++;
    if (kept != 0) span_give(kept);
    kept = 0;
}
static void grow_or_not(void) {
    enum { PAGES = 300 }; /* more than earlier tests left dirty in one piece */
    configure(ACE_NEVER, UINT64_MAX);
    span_on_growth(ask);
    const uint32_t first = span_take(PAGES, 1, ACE_SPARSE);
    CHECK(asked == 1 && asked_pages == PAGES);
    span_give(first);
    CHECK(span_take(PAGES - 1, 1, ACE_SPARSE) == first && asked == 1);
    span_give(first);
    kept = span_take(PAGES + 1, 1, ACE_SPARSE); /* one of them is not dirty */
    CHECK(asked == 2 && asked_pages == PAGES + 1);
    const uint32_t given = kept;
    CHECK(span_take(PAGES + 1, 1, ACE_SPARSE) == given && asked == 3);
    CHECK(span_take(window.pages + 1, 1, ACE_SPARSE) == 0 && asked == 3);
}

TEST(what_is_kept_is_asked_for_before_growth) { IN_CHILD(grow_or_not); }

/* A limit far below what is held already. All memory is in use, then every second page of it is free. */
static void take_below_a_limit(void) {
    enum { PAGES = 100, MORE_PAGES = 512, MOST = 32768 };
    static uint32_t spans[MOST];
    uint32_t count = 0;
    configure(ACE_NEVER, UINT64_MAX);
    for (struct span_counts now = {0}; count < 4000 || now.fresh_pages != now.used_pages + now.lost_pages; now = counts_now()) {
        CHECK(count < MOST && (spans[count] = span_take(1, 1, ACE_SPARSE)) != 0);
        count++;
    }
    for (uint32_t i = 0; i < count; i += 2) span_give(spans[i]);
    const struct span_counts before = counts_now();
    const uint64_t calls = calls_of(OS_CALL_MADVISE_FREE);
    span_configure(&(struct span_settings){
        .decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX, .hard_pages = before.used_pages + 4 * PAGES});
    for (uint64_t takes = 1; takes <= 2; takes++) { /* the second takes what came for the first */
        CHECK(span_take(PAGES, 1, ACE_SPARSE) != 0);
        CHECK_EQ(counts_now().returned_pages - before.returned_pages, takes * (PAGES + MORE_PAGES));
        CHECK(calls_of(OS_CALL_MADVISE_FREE) - calls <= takes * (PAGES + MORE_PAGES));
    }
    check_books();
}

TEST(one_take_returns_little_more_than_it_takes) { IN_CHILD(take_below_a_limit); }

/* ---- threads: the last test, since ThreadSanitizer lets no child of a process with threads start some ------- */

TEST(threads_share_the_pages) {
    pthread_t threads[THREADS];
    struct span_counts before = counts_now();
    configure(100, HUGE_FROM);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    check_books();
    CHECK(counts_now().used_pages - before.used_pages <= 8 * THREADS); /* slabs for what libc allocates */
}

/* ---- looks without a lock ------------------------------------------------------------------------------ */

static atomic_bool seen_all;

/* As the purge thread does, of slabs. */
static void *look_below_the_end(void *unused) {
    for (size_t from = span_end_page(), end = from; !atomic_load_explicit(&seen_all, memory_order_relaxed); from = end) {
        end = span_end_page();
        for (size_t page = from; page < end; page++) CHECK_AT(page_word(page) == WORD_NONE, page);
    }
    return unused;
}

/* A sandbox lets no protection be changed: words are mapped anew, which ThreadSanitizer takes for a write. */
TEST(what_lies_below_the_end_can_be_read) {
    pthread_t looker;
    configure(ACE_NEVER, UINT64_MAX);
    CHECK_EQ(pthread_create(&looker, NULL, look_below_the_end, NULL), 0);
    fail_arm(FAIL_MPROTECT, 1, true, EPERM);
    for (int i = 0; i < 40; i++) CHECK(span_take(32 * CHUNK_PAGES, 1, ACE_SPARSE) != 0);
    fail_disarm();
    atomic_store_explicit(&seen_all, true, memory_order_relaxed);
    CHECK_EQ(pthread_join(looker, NULL), 0);
}

/* ---- many in need at once ------------------------------------------------------------------------------ */

enum { IN_NEED = 16 };
static _Atomic bool memory_is_short;

/* Stores how much had been brought once there was a page. */
static void *take_one(void *brought) {
    while (!atomic_load(&memory_is_short)) os_sleep_ms(1);
    CHECK(span_take(1, 1, ACE_DENSE) != 0);
    *(uint64_t *)brought = counts_now().fresh_pages;
    return NULL;
}

/* All look for a page before memory comes. */
static void be_in_need(void) {
    pthread_t threads[IN_NEED];
    uint64_t brought[IN_NEED];
    for (size_t i = 0; i < IN_NEED; i++) CHECK_EQ(pthread_create(&threads[i], NULL, take_one, &brought[i]), 0); /* libc allocates for them */
    use_what_is_free();
    const uint64_t before = counts_now().fresh_pages;
    use_what_is_free();
    const uint64_t fresh = counts_now().fresh_pages, step = fresh - before;
    CHECK(step > IN_NEED);
    for (uint64_t i = 1; i < step; i++) CHECK(span_take(1, 1, ACE_DENSE) != 0);
    CHECK_EQ(counts_now().fresh_pages, fresh);
    window_lock();
    atomic_store(&memory_is_short, true);
    os_sleep_ms(50); /* who is later finds memory at once */
    window_unlock();
    for (size_t i = 0; i < IN_NEED; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < IN_NEED; i++) CHECK_AT(brought[i] == counts_now().fresh_pages, i); /* all by the first, and it is enough */
    check_books();
}

TEST(threads_in_need_wait_for_who_brings_memory) { IN_CHILD(be_in_need); }
