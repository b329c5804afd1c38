/* span_test.c - spans taken, given back, lengthened and shortened at random, with time passing; and what
 * decay gives back when. After each round every page of the window is looked at.
 *
 * clock_gettime is interposed, so that milliseconds pass when the test says so. Tests run in children:
 * what decay knows stays in the process.
 *
 * Planted defects it was seen to catch:
 *   no merging with the span before, or after    random_work_keeps_the_books
 *   dirty pages are not counted when taken       random_work_keeps_the_books
 *   every span claims to be zero                 random_work_keeps_the_books
 *   pages of one dirty run are counted twice     random_work_keeps_the_books
 *   a refused purge is tried again               a_refusal_is_remembered
 *   decay ignores what is used again             what_was_used_meanwhile_stays
 *   a tick has no upper bound                    a_tick_is_bounded
 *   the last few pages are given back too        a_little_is_kept
 */
#include "ace/decay.h"
#include "blocks.h"
#include "faults/fail_calls.h"
#include "os/os.h"
#include "span/span.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static _Atomic uint64_t clock_ms = 1000000;

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC_COARSE) return (int)syscall(SYS_clock_gettime, clock, now);
    uint64_t ms = atomic_load(&clock_ms);
    *now = (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    return 0;
}

enum { LOOKS = 16, LEAST_TICK_MS = 20, KEPT_PAGES = 16, TICK_PAGES = 512, THREADS = 4 };

static void in_child(void (*body)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(CHECK_SHADOWED ? 300 : 60);
        body();
        _exit(0);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
}

static void configure(uint64_t half_life_ms) {
    span_configure(&(struct span_settings){.decay_half_life_ms = half_life_ms, .huge_from_pages = UINT64_MAX});
}

static struct span_counts counts_now(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts;
}

/* Looks at every page that this floor was ever given. Nobody else works on it. */
static void check_books(void) {
    struct span_counts counts = counts_now();
    uint64_t used = 0, dirty = 0;
    bool free_before = false;
    uint32_t at = CHUNK_PAGES, end = CHUNK_PAGES + (uint32_t)counts.fresh_pages;
    while (at < end) {
        const struct span *span = span_at(at);
        CHECK_AT(span->pages > 0 && span->pages <= end - at, at);
        bool is_free = span->kind == SPAN_FREE;
        CHECK_AT(is_free || span->kind != SPAN_NONE, at);
        CHECK_AT(!(is_free && free_before), at); /* or they would be one */
        uint32_t touched = 0;
        for (uint32_t page = at; page < at + span->pages; page++) {
            struct chunk bits = window.chunks[page / CHUNK_PAGES];
            CHECK_AT((bits.used >> page % CHUNK_PAGES & 1) == !is_free, page);
            touched += bits.touched >> page % CHUNK_PAGES & 1;
        }
        if (is_free) {
            CHECK_AT(span->dirty == touched, at);
            const struct span *last = span_at(at + span->pages - 1);
            if (span->pages > 1) CHECK_AT(last->kind == SPAN_FREE_LAST && last->head == at, at);
        }
        used += is_free ? 0 : span->pages;
        dirty += is_free ? touched : 0;
        free_before = is_free;
        at += span->pages;
    }
    CHECK_EQ(used, counts.used_pages);
    CHECK_EQ(dirty, counts.dirty_pages);
}

/* A span in use: both ends of each of its pages carry its key. */
struct mine {
    uint32_t first, pages;
    uint64_t key;
};

static uint64_t *words_of(uint32_t page) { return page_address(page); }
enum { LAST_WORD = 65536 / sizeof(uint64_t) - 1 };

static void write_pages(const struct mine *mine, uint32_t from) {
    for (uint32_t page = mine->first + from; page < mine->first + mine->pages; page++)
        words_of(page)[0] = words_of(page)[LAST_WORD] = mine->key ^ page;
}

static void check_pages(const struct mine *mine) {
    for (uint32_t page = mine->first; page < mine->first + mine->pages; page++) {
        CHECK_AT(words_of(page)[0] == (mine->key ^ page), page);
        CHECK_AT(words_of(page)[LAST_WORD] == (mine->key ^ page), page);
    }
}

static void take(struct mine *mine, struct rng *rng) {
    size_t align = rng_below(rng, 3) ? 1 : (size_t)1 << rng_below(rng, 8);
    size_t most = rng_below(rng, 8) ? 20 : 300;
    mine->pages = 1 + (uint32_t)rng_below(rng, most);
    mine->first = span_take(mine->pages, align);
    CHECK(mine->first != 0);
    CHECK(is_aligned(page_address(mine->first), align * PAGE_BYTES));
    CHECK_EQ(span_at(mine->first)->pages, mine->pages);
    if (span_at(mine->first)->zero) {
        for (uint32_t page = mine->first; page < mine->first + mine->pages; page++)
            CHECK_AT(words_of(page)[0] == 0 && words_of(page)[LAST_WORD] == 0, page);
    }
    mine->key = rng_next(rng);
    write_pages(mine, 0);
}

static void change(struct mine *mine, struct rng *rng) {
    check_pages(mine);
    uint32_t before = mine->pages;
    size_t dice = rng_below(rng, 4);
    if (dice == 0) {
        mine->pages += 1 + (uint32_t)rng_below(rng, 30);
        if (!span_extend(mine->first, mine->pages)) mine->pages = before;
        CHECK_EQ(span_at(mine->first)->pages, mine->pages);
        write_pages(mine, before);
    } else if (dice == 1) {
        mine->pages = 1 + (uint32_t)rng_below(rng, mine->pages);
        span_trim(mine->first, mine->pages);
        CHECK_EQ(span_at(mine->first)->pages, mine->pages);
    } else {
        span_give(mine->first);
        mine->pages = 0;
    }
}

static void pass(uint64_t ms) {
    atomic_fetch_add(&clock_ms, ms);
    for (int i = 0; i < LOOKS; i++) span_decay();
}

enum { SLOTS = 60 };
static _Atomic uint64_t zero_spans;

static void *work(void *argument) {
    struct rng rng = {check_now.seed * 1000 + (uintptr_t)argument};
    struct mine slots[SLOTS] = {{0}};
    for (size_t i = 0; i < check_count(20000); i++) {
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
        check_pages(&slots[i]);
        span_give(slots[i].first);
    }
    return NULL;
}

static void work_alone(void) {
    struct span_counts before = counts_now();
    configure(500);
    work(NULL);
    check_books();
    struct span_counts after = counts_now();
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.taken - before.taken, after.given - before.given);
    CHECK(atomic_load(&zero_spans) > check_count(20000) / 200); /* there were some to find wrong */
    CHECK(after.fresh_pages < 40000 / 64 * SLOTS);               /* pages are used again */
}

TEST(random_work_keeps_the_books) { in_child(work_alone); }

TEST(threads_share_the_pages) {
    pthread_t threads[THREADS];
    struct span_counts before = counts_now();
    configure(100);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    check_books();
    struct span_counts after = counts_now();
    CHECK_EQ(after.taken - before.taken - (after.given - before.given), after.used_pages - before.used_pages);
}

TEST(aligned_spans) {
    for (size_t align = 1; align <= 16384; align *= 2) {
        uint32_t first = span_take(1, align);
        CHECK_AT(first != 0 && is_aligned(page_address(first), align * PAGE_BYTES), align);
        span_give(first);
    }
    CHECK_EQ(span_take(window.pages + 1, 1), 0);
    CHECK_EQ(span_take(1, window.pages * 2), 0);
    CHECK_EQ(span_take(window.pages - CHUNK_PAGES + 1, 1), 0);
    CHECK(!span_extend(CHUNK_PAGES, window.pages + 1));
}

/* ---- decay -------------------------------------------------------------------------------------- */

/* PAGES dirty pages that were free through one whole period. Returns how many dirty ones there are. */
static uint64_t make_dirty(uint64_t half_life_ms, uint32_t pages) {
    configure(half_life_ms);
    struct mine mine = {span_take(pages, 1), pages, 1};
    CHECK(mine.first != 0);
    write_pages(&mine, 0);
    pass(1000000); /* what was dirty before goes, as far as it ever does */
    while (counts_now().dirty_pages > KEPT_PAGES) pass(1000000);
    span_give(mine.first);
    pass(1000000); /* still used at the beginning of this period */
    CHECK(counts_now().dirty_pages >= pages);
    return counts_now().dirty_pages;
}

static void decay_in_ticks(void) {
    uint64_t dirty = make_dirty(1000, 400), kept;
    pass(LEAST_TICK_MS - 1);
    CHECK_EQ(counts_now().dirty_pages, dirty); /* too soon */
    pass(1000 / 8 - LEAST_TICK_MS);
    CHECK_EQ(counts_now().dirty_pages, dirty); /* an eighth of the half-life is a tick */
    pass(1000 - 1000 / 8 + 1);
    kept = counts_now().dirty_pages;
    CHECK_EQ(dirty - kept, ace_decay_pages(dirty, 1000, 1000));
    pass(250);
    CHECK_EQ(kept - counts_now().dirty_pages, ace_decay_pages(kept, 250, 1000));
    for (int i = 0; i < 100; i++) pass(250);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
    check_books();
}

TEST(half_is_gone_after_the_half_life) { in_child(decay_in_ticks); }

/* The fewest dirty pages of a period count, not those at its end. */
static void decay_of_used(void) {
    uint64_t dirty = make_dirty(1000, 400);
    uint32_t first = span_take(400, 1);
    uint64_t least = counts_now().dirty_pages;
    CHECK(least < 100);
    span_give(first);
    CHECK(counts_now().dirty_pages >= 400 && counts_now().dirty_pages >= dirty - KEPT_PAGES);
    dirty = counts_now().dirty_pages;
    pass(1000000);
    CHECK(dirty - counts_now().dirty_pages <= least);
    pass(1000000);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
}

TEST(what_was_used_meanwhile_stays) { in_child(decay_of_used); }

static void decay_of_much(void) {
    uint64_t dirty = make_dirty(100, 2000);
    for (; dirty > TICK_PAGES; dirty -= TICK_PAGES) {
        pass(1000000);
        CHECK_EQ(counts_now().dirty_pages, dirty - TICK_PAGES);
    }
    pass(1000000);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
    check_books();
}

TEST(a_tick_is_bounded) { in_child(decay_of_much); }

static void decay_of_little(void) {
    make_dirty(100, 100);
    for (int i = 0; i < 10; i++) pass(1000000);
    struct mine mine = {span_take(KEPT_PAGES, 1), KEPT_PAGES, 1};
    write_pages(&mine, 0);
    span_give(mine.first);
    uint64_t dirty = counts_now().dirty_pages;
    uint64_t purges = atomic_load(&os_counters.calls[OS_CALL_MADVISE_FREE]);
    CHECK(dirty > 0 && dirty <= KEPT_PAGES);
    for (int i = 0; i < 10; i++) pass(1000000);
    CHECK_EQ(counts_now().dirty_pages, dirty);
    CHECK_EQ(atomic_load(&os_counters.calls[OS_CALL_MADVISE_FREE]), purges);
}

TEST(a_little_is_kept) { in_child(decay_of_little); }

static void decay_at_once_and_never(void) {
    uint64_t dirty = make_dirty(0, 300);
    configure(ACE_NEVER);
    for (int i = 0; i < 10; i++) pass(1000000);
    CHECK_EQ(counts_now().dirty_pages, dirty);
    configure(0);
    pass(LEAST_TICK_MS);
    CHECK_EQ(counts_now().dirty_pages, 0);
    uint32_t first = span_take(300, 1);
    CHECK(span_at(first)->zero);
    span_give(first);
}

TEST(at_once_and_never) { in_child(decay_at_once_and_never); }

static void decay_backwards(void) {
    uint64_t dirty = make_dirty(1000, 400);
    atomic_fetch_sub(&clock_ms, 500000); /* a new period begins */
    pass(0);
    CHECK_EQ(counts_now().dirty_pages, dirty);
    pass(1000);
    CHECK_EQ(dirty - counts_now().dirty_pages, ace_decay_pages(dirty, 1000, 1000));
}

TEST(a_clock_that_goes_back) { in_child(decay_backwards); }

static void decay_refused(void) {
    uint64_t dirty = make_dirty(100, 300);
    fail_arm(FAIL_MADVISE, 1, true, EINVAL);
    pass(1000000);
    CHECK_EQ(fail_counted(FAIL_MADVISE), 1);
    CHECK_EQ(counts_now().dirty_pages, dirty);
    fail_disarm();
    for (int i = 0; i < 10; i++) pass(1000000);
    CHECK_EQ(fail_counted(FAIL_MADVISE), 1); /* what was refused is not asked for again */
    CHECK_EQ(counts_now().dirty_pages, dirty);
    check_books();
    uint32_t first = span_take(300, 1); /* and the span is free as before, but not known to be zero */
    CHECK(first != 0 && !span_at(first)->zero);
    span_give(first); /* until it changes */
    for (int i = 0; i < 10; i++) pass(1000000);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
    check_books();
}

TEST(a_refusal_is_remembered) { in_child(decay_refused); }

static void ask_for_huge(void) {
    uint64_t before = atomic_load(&os_counters.calls[OS_CALL_MADVISE_HUGE]);
    configure(500);
    CHECK(span_take(counts_now().fresh_pages, 1) != 0);
    CHECK_EQ(atomic_load(&os_counters.calls[OS_CALL_MADVISE_HUGE]), before);
    span_configure(&(struct span_settings){.decay_half_life_ms = 500, .huge_from_pages = 0});
    CHECK(span_take(counts_now().fresh_pages, 1) != 0);
    CHECK_EQ(atomic_load(&os_counters.calls[OS_CALL_MADVISE_HUGE]), before + 1);
}

TEST(huge_pages_are_asked_for_from_a_size_on) { in_child(ask_for_huge); }
