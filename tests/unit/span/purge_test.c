/* purge_test.c - what decay gives back and when, and giving back at once: all that is free, a part of what is used, what was
 * moved.
 *
 * Planted defects it was seen to catch:
 *   a refused purge is tried again               a_refusal_is_remembered
 *   decay ignores what is used again             what_was_used_meanwhile_stays
 *   a step has no upper bound                    a_step_is_bounded
 *   the last few pages are given back too        a_little_is_kept
 *   a tick is too short                          half_is_gone_after_the_half_life
 *   what was moved is not renewed, or marked so for ever   what_was_moved_is_healed, moves_leave_no_mappings
 *   parts are not counted                        a_part_of_a_used_span_can_be_given_back
 *   memory on its way back counts as used        what_goes_back_is_not_in_use
 *   memory on its way back is not waited for     what_goes_back_is_waited_for
 *   what is refused ends all                     what_is_refused_keeps_nothing_else
 *   what the kernel left alone is given up       what_stays_mapped_is_not_lost
 */
#include "decays.h"
#include "faults/fail_calls.h"
#include "kernel.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

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
    uint64_t due = ace_decay_pages(kept, 250, 1000), given = kept - counts_now().dirty_pages;
    CHECK(given == due || (due < CHUNK_PAGES && given == CHUNK_PAGES)); /* no less than a chunk */
    for (int i = 0; i < 100; i++) pass(250);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
    check_books();
}

TEST(half_is_gone_after_the_half_life) { IN_CHILD(decay_in_ticks); }

/* The fewest dirty pages of a period count, not those at its end. */
static void decay_of_used(void) {
    uint64_t dirty = make_dirty(1000, 400);
    uint32_t first = span_take(400, 1, ACE_SPARSE);
    uint64_t least = counts_now().dirty_pages;
    CHECK(least < 100);
    span_give(first);
    CHECK(counts_now().dirty_pages >= 400 && counts_now().dirty_pages >= dirty - KEPT_PAGES);
    dirty = counts_now().dirty_pages;
    pass(LONG_MS);
    CHECK(dirty - counts_now().dirty_pages <= least);
    for (int i = 0; i < 2; i++) pass(LONG_MS);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
}

TEST(what_was_used_meanwhile_stays) { IN_CHILD(decay_of_used); }

static void decay_of_much(void) {
    enum { SHARE = 300 };
    uint64_t dirty = make_dirty(100, 2000);
    clock_pass(LONG_MS);
    for (; dirty > SHARE; dirty -= SHARE) { /* the rest stays due */
        decay(SHARE);
        CHECK_EQ(counts_now().dirty_pages, dirty - SHARE);
    }
    pass(LONG_MS);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
    check_books();
}

TEST(a_step_is_bounded) { IN_CHILD(decay_of_much); }

static void decay_of_little(void) {
    make_dirty(100, 100);
    for (int i = 0; i < 10; i++) pass(LONG_MS);
    span_give(take_keyed(KEPT_PAGES, false, 1).first);
    uint64_t dirty = counts_now().dirty_pages, purges = calls_of(OS_CALL_MADVISE_FREE);
    CHECK(dirty > 0 && dirty <= KEPT_PAGES);
    CHECK_EQ(span_dirty_left(), 0);
    for (int i = 0; i < 10; i++) pass(LONG_MS);
    CHECK_EQ(counts_now().dirty_pages, dirty);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_FREE), purges);
}

TEST(a_little_is_kept) { IN_CHILD(decay_of_little); }

static void decay_at_once_and_never(void) {
    uint64_t dirty = make_dirty(0, 300);
    configure(ACE_NEVER, UINT64_MAX);
    for (int i = 0; i < 10; i++) pass(LONG_MS);
    CHECK_EQ(counts_now().dirty_pages, dirty);
    configure(0, UINT64_MAX);
    pass(LEAST_TICK_MS);
    CHECK_EQ(counts_now().dirty_pages, 0);
    uint32_t first = span_take(300, 1, ACE_SPARSE);
    CHECK(span_at(first)->zero);
    check_zero(first, 300);
    span_give(first);
}

TEST(at_once_and_never) { IN_CHILD(decay_at_once_and_never); }

static void decay_backwards(void) {
    uint64_t dirty = make_dirty(1000, 400);
    atomic_fetch_sub(&clock_ms, 500000); /* a new period begins */
    pass(0);
    CHECK_EQ(counts_now().dirty_pages, dirty);
    pass(1000);
    CHECK_EQ(dirty - counts_now().dirty_pages, ace_decay_pages(dirty, 1000, 1000));
}

TEST(a_clock_that_goes_back) { IN_CHILD(decay_backwards); }

static void decay_refused(void) {
    uint64_t dirty = make_dirty(100, 300);
    fail_arm(FAIL_MADVISE, 1, true, EINVAL);
    pass(LONG_MS);
    CHECK_EQ(fail_counted(FAIL_MADVISE), 3); /* the whole, and two chunks of it */
    uint64_t left = counts_now().dirty_pages;
    CHECK(left + 300 <= dirty + KEPT_PAGES); /* what was refused does not count */
    fail_disarm();
    for (int i = 0; i < 10; i++) pass(LONG_MS);
    purge_all();
    CHECK_EQ(fail_counted(FAIL_MADVISE), 3); /* what was refused is not asked for again */
    CHECK(counts_now().dirty_pages <= left);
    check_books();
    uint32_t first = span_take(300, 1, ACE_SPARSE); /* and the span is free as before, but not known to be zero */
    CHECK(first != 0 && !span_at(first)->zero);
    span_give(first); /* until it changes */
    for (int i = 0; i < 10; i++) pass(LONG_MS);
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
    check_books();
}

TEST(a_refusal_is_remembered) { IN_CHILD(decay_refused); }

/* What was moved once is mapped afresh; where the kernel neither does that nor takes it back, nobody knows what lies there. */
static void refuse_renewal(struct mine *mine, int error, struct span_counts *before, struct span_counts *after) {
    configure(ACE_NEVER, UINT64_MAX);
    *mine = take_keyed_at(0, 50, 5); /* a chunk of it is moved */
    CHECK((mine->first = span_move(mine->first, 50, 100)) != 0);
    purge_all();
    span_give(mine->first);
    *before = counts_now();
    fail_arm(FAIL_ANY, 1, true, error);
    purge_all();
    fail_disarm();
    *after = counts_now();
}

static void renewal_refused(void) {
    struct mine mine;
    struct span_counts before, after;
    NEED_MOVES();
    refuse_renewal(&mine, ENOMEM, &before, &after);
    CHECK(after.moves != 0); /* it was not copied */
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.lost_pages - before.lost_pages, before.dirty_pages - after.dirty_pages);
    CHECK(after.lost_pages >= 50);
    check_books();
    struct mine again = take_keyed(100, true, 6);
    CHECK(again.first + 100 <= mine.first || mine.first + 50 <= again.first);
    check_pages(&again, 100);
}

TEST(what_cannot_be_mapped_afresh_is_lost) { IN_CHILD(renewal_refused); }

/* Any other refusal comes before the kernel touches anything. */
static void renewal_untouched(void) {
    struct mine mine;
    struct span_counts before, after;
    refuse_renewal(&mine, EAGAIN, &before, &after);
    CHECK_EQ(after.lost_pages, before.lost_pages);
    CHECK_EQ(after.used_pages, before.used_pages);
    check_books();
    struct mine again = take_keyed(100, true, 6);
    check_pages(&again, 100);
}

TEST(what_stays_mapped_is_not_lost) { IN_CHILD(renewal_untouched); }

/* The kernel refuses the whole for the one page. */
static void purge_around_a_locked_page(void) {
    enum { CHUNKS = 4 };
    configure(500, UINT64_MAX);
    struct mine mine = take_keyed(CHUNKS * CHUNK_PAGES, false, 1);
    if (mlock(words_of(mine.first + mine.pages - 1), sizeof(uint64_t)) != 0) SKIP("no memory may be locked");
    uint64_t before = counts_now().returned_pages;
    span_give(mine.first);
    purge_all();
    uint64_t returned = counts_now().returned_pages - before;
    CHECK(returned >= (CHUNKS - 2) * CHUNK_PAGES && returned < CHUNKS * CHUNK_PAGES);
    CHECK_EQ(words_of(mine.first + CHUNK_PAGES)[0], 0);
    check_books();
}

TEST(a_locked_page_keeps_its_chunk_alone) {
    if (CHECK_SHADOWED) OMIT("their mlock does nothing");
    IN_CHILD(purge_around_a_locked_page);
}

/* Of the longest run nothing goes; it comes first. */
static void purge_beside_locked(void) {
    enum { CHUNKS = 4, OTHERS = 40 };
    configure(ACE_NEVER, UINT64_MAX);
    struct mine locked = take_keyed(CHUNKS * CHUNK_PAGES, false, 1), between = take_keyed(1, false, 2), other = take_keyed(OTHERS, false, 3);
    for (uint32_t page = 0; page < locked.pages; page += CHUNK_PAGES / 2)
        if (mlock(words_of(locked.first + page), sizeof(uint64_t)) != 0) SKIP("no memory may be locked");
    const uint64_t before = counts_now().returned_pages;
    span_give(locked.first);
    span_give(other.first);
    purge_all();
    CHECK(counts_now().returned_pages - before >= OTHERS);
    CHECK_EQ(counts_now().dirty_pages, 0); /* what was refused is none */
    check_pages(&between, 1);
    check_books();
}

TEST(what_is_refused_keeps_nothing_else) {
    if (CHECK_SHADOWED) OMIT("their mlock does nothing");
    IN_CHILD(purge_beside_locked);
}

/* ---- at once ---------------------------------------------------------------------------------------------- */

static void purge_everything(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine kept = take_keyed(1, false, 9), spans[40];
    for (uint32_t i = 0; i < 40; i++) spans[i] = take_keyed(1 + i, false, i);
    for (uint32_t i = 0; i < 40; i += 2) span_give(spans[i].first);
    span_give(take_keyed(3000, false, 1).first);
    struct span_counts before = counts_now();
    CHECK(before.dirty_pages >= 400);
    purge_all();
    struct span_counts after = counts_now();
    CHECK_EQ(after.dirty_pages, 0); /* a little, too */
    CHECK_EQ(after.returned_pages - before.returned_pages, before.dirty_pages);
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.taken, before.taken);
    check_books();
    check_pages(&kept, 1);
    for (uint32_t i = 1; i < 40; i += 2) check_pages(&spans[i], spans[i].pages);
    uint64_t purges = calls_of(OS_CALL_MADVISE_FREE);
    purge_all();
    CHECK_EQ(calls_of(OS_CALL_MADVISE_FREE), purges); /* there is nothing left */
    uint32_t first = span_take(3000, 1, ACE_SPARSE);
    CHECK(span_at(first)->zero);
    check_zero(first, 3000);
    CHECK(counts_now().retaken_pages - before.retaken_pages >= 2000);
}

TEST(all_that_is_free_can_be_given_back) { IN_CHILD(purge_everything); }

static uint64_t used_meanwhile;
static void look_at_used(void) { used_meanwhile = counts_now().used_pages; }

/* A limit must not refuse an allocation for what is about to be free memory. */
static void purge_unused(void) {
    configure(ACE_NEVER, UINT64_MAX);
    span_give(take_keyed(300, false, 1).first);
    const struct span_counts before = counts_now();
    CHECK(before.dirty_pages >= 300);
    used_meanwhile = UINT64_MAX;
    fail_interrupt(1, look_at_used);
    purge_all();
    CHECK_EQ(used_meanwhile, before.used_pages);
    CHECK_EQ(counts_now().used_pages, before.used_pages);
    CHECK_EQ(counts_now().used_pages_peak, before.used_pages_peak);
    check_books();
}

TEST(what_goes_back_is_not_in_use) { IN_CHILD(purge_unused); }

static struct {
    _Atomic enum { WAITS, TAKES, TOOK } stage;
    uint32_t pages, first;
} taker;

static void *take_when_told(void *unused) {
    while (atomic_load(&taker.stage) == WAITS) sched_yield();
    taker.first = span_take(taker.pages, 1, ACE_SPARSE);
    atomic_store(&taker.stage, TOOK);
    return unused;
}

/* The kernel has no more from now on, and what would do is just on its way there. */
static void let_it_take(void) {
    const struct rlimit none = {1 << 16, RLIM_INFINITY}; /* 0 is none, for some kernels */
    CHECK_EQ(setrlimit(RLIMIT_DATA, &none), 0);
    atomic_store(&taker.stage, TAKES);
    for (int i = 0; i < 20 && atomic_load(&taker.stage) != TOOK; i++) os_sleep_ms(5);
}

static void take_what_goes_back(void) {
    pthread_t thread;
    configure(ACE_NEVER, UINT64_MAX);
    taker.pages = (uint32_t)counts_now().fresh_pages + 1000; /* longer than any other free run */
    span_give(take_keyed(taker.pages, false, 1).first);
    CHECK_EQ(pthread_create(&thread, NULL, take_when_told, NULL), 0);
    fail_interrupt(1, let_it_take);
    purge_all();
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(taker.first != 0);
    check_books();
}

TEST(what_goes_back_is_waited_for) {
    if (CHECK_SHADOWED) OMIT("shadow memory is beyond any limit");
    IN_CHILD(take_what_goes_back);
}

static void purge_a_part(void) {
    configure(ACE_NEVER, UINT64_MAX);
    size_t page = os_page_bytes();
    struct mine mine = take_keyed(10, false, 3);
    char *start = page_address(mine.first);
    memset(start, 'x', 10 * PAGE_BYTES);
    struct span_counts before = counts_now();
    span_purging_lock();
    CHECK(span_purge_part(start + page, page));
    CHECK(span_purge_part(start + PAGE_BYTES + page, 3 * PAGE_BYTES));
    CHECK_EQ(counts_now().part_bytes - before.part_bytes, page + 3 * PAGE_BYTES);
    fail_arm(FAIL_MADVISE, 1, true, EINVAL);
    CHECK(!span_purge_part(start + 6 * PAGE_BYTES, page));
    fail_disarm();
    span_purging_unlock();
    CHECK_EQ(counts_now().part_bytes - before.part_bytes, page + 3 * PAGE_BYTES);
    CHECK_EQ(counts_now().used_pages, before.used_pages);
    for (size_t at = 0; at < 10 * PAGE_BYTES; at += page) {
        bool given = at == page || (at >= PAGE_BYTES + page && at < 4 * PAGE_BYTES + page);
        if (given)
            CHECK_AT(block_is_zero(start + at, page), at);
        else
            CHECK_AT(start[at] == 'x' && memcmp(start + at, start + at + 1, page - 1) == 0, at);
    }
    span_give(mine.first);
    CHECK_EQ(counts_now().dirty_pages, before.dirty_pages + 10);
    check_books();
}

TEST(a_part_of_a_used_span_can_be_given_back) { IN_CHILD(purge_a_part); }

/* ---- what was moved ----------------------------------------------------------------------------------------- */

/* What a move mapped is mapped anew when it is given back: then it is one with its neighbours, and moves again. */
static void heal_what_was_moved(void) {
    NEED_MOVES();
    configure(ACE_NEVER, UINT64_MAX);
    for (int round = 0; round < 20; round++) {
        struct mine mine[30];
        for (uint32_t i = 0; i < 30; i++) mine[i] = take_keyed(2 * CHUNK_PAGES + i, true, i);
        struct span_counts before = counts_now();
        for (uint32_t i = 0; i < 30; i++) {
            CHECK((mine[i].first = span_move(mine[i].first, mine[i].pages, mine[i].pages + 5)) != 0);
            check_pages(&mine[i], mine[i].pages);
        }
        struct span_counts after = counts_now();
        CHECK_AT(after.moves - before.moves == 30, round); /* 600 in all: more than may be at a time */
        for (uint32_t i = 0; i < 30; i++) span_give(mine[i].first);
        purge_all();
        CHECK_EQ(counts_now().dirty_pages, 0);
        for (uint32_t page = CHUNK_PAGES; page < span_end_page(); page++)
            CHECK_AT(!(page_chunk(page)->moved >> page % CHUNK_PAGES & 1), page);
        check_books();
    }
}

TEST(what_was_moved_is_healed) { IN_CHILD(heal_what_was_moved); }

static size_t mappings(void) {
    static char text[1 << 16];
    size_t lines = 0;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    for (ssize_t got; (got = read(file, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < got; i++) lines += text[i] == '\n';
    close(file);
    return lines;
}

static void count_mappings(void) {
    configure(ACE_NEVER, UINT64_MAX);
    span_give(take_keyed(8000, true, 1).first);
    purge_all();
    size_t before = mappings();
    for (int round = 0; round < 10; round++) {
        struct mine mine[30];
        for (uint32_t i = 0; i < 30; i++) mine[i] = take_keyed(2 * CHUNK_PAGES + i, true, i);
        for (uint32_t i = 0; i < 30; i++)
            CHECK((mine[i].first = span_move(mine[i].first, mine[i].pages, mine[i].pages + 5)) != 0);
        for (uint32_t i = 0; i < 30; i++) span_give(mine[i].first);
        purge_all();
    }
    CHECK_AT(mappings() <= before + 8, mappings() - before);
}

TEST(moves_leave_no_mappings) {
    if (CHECK_SHADOWED) OMIT("shadow memory is mapped, too");
    IN_CHILD(count_mappings);
}
