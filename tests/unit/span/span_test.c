/* span_test.c - spans taken, given back, lengthened, shortened and moved at random, with time passing. After each
 * round every page of the window is looked at.
 *
 * Tests run in children: what the floor knows stays in the process.
 *
 * Planted defects it was seen to catch:
 *   no merging with the span before, or after    random_work_keeps_the_books
 *   dirty pages are not counted when taken       random_work_keeps_the_books
 *   every span claims to be zero                 random_work_keeps_the_books
 *   pages of one dirty run are counted twice     random_work_keeps_the_books
 *   one dirty page passes for all, or none does  what_is_kept_is_asked_for_before_growth
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
    mine->first = span_take(mine->pages, align, rng_below(rng, 2));
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
    CHECK(atomic_load(&zero_spans) > check_count(20000) / 200); /* there were some to find wrong */
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
        uint32_t first = span_take(1, align, align % 3 == 0);
        CHECK_AT(first != 0 && is_aligned(page_address(first), align * PAGE_BYTES), align);
        span_give(first);
    }
    CHECK_EQ(span_take(window.pages + 1, 1, false), 0);
    CHECK_EQ(span_take(1, window.pages * 2, false), 0);
    CHECK_EQ(span_take(window.pages - CHUNK_PAGES + 1, 1, false), 0);
    CHECK(!span_extend(CHUNK_PAGES, window.pages + 1));
}

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
    const uint32_t first = span_take(PAGES, 1, false);
    CHECK(asked == 1 && asked_pages == PAGES);
    span_give(first);
    CHECK(span_take(PAGES - 1, 1, false) == first && asked == 1);
    span_give(first);
    kept = span_take(PAGES + 1, 1, false); /* one of them is not dirty */
    CHECK(asked == 2 && asked_pages == PAGES + 1);
    const uint32_t given = kept;
    CHECK(span_take(PAGES + 1, 1, false) == given && asked == 3);
    CHECK(span_take(window.pages + 1, 1, false) == 0 && asked == 3);
}

TEST(what_is_kept_is_asked_for_before_growth) { IN_CHILD(grow_or_not); }

/* ---- lengthening ------------------------------------------------------------------------------------ */

/* The last span of all grows into fresh memory, again and again, and stays where it is. */
static void extend_at_the_end(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_keyed(span_end_page(), false, 7);
    uint32_t first = mine.first;
    CHECK(span_extend(first, mine.pages = (uint32_t)span_end_page() - first)); /* to the very end */
    write_pages(&mine, 0);
    uint64_t fresh = counts_now().fresh_pages;
    for (int i = 0; i < 20; i++) {
        uint32_t before = mine.pages;
        mine.pages = (uint32_t)span_end_page() - first + 100; /* what is free there, and more */
        CHECK(span_extend(first, mine.pages));
        CHECK_EQ(span_at(first)->pages, mine.pages);
        check_zero(first + before, mine.pages - before);
        write_pages(&mine, before);
        check_books();
    }
    check_pages(&mine, mine.pages);
    CHECK(counts_now().fresh_pages >= fresh + 20 * 100);
    /* Not past someone who lies in the way; and then it is as long as before. */
    uint32_t before = mine.pages;
    CHECK(span_extend(first, mine.pages = (uint32_t)span_end_page() - first));
    write_pages(&mine, before);
    struct mine other = take_keyed(span_end_page(), false, 8);
    CHECK_EQ(other.first, first + mine.pages);
    CHECK(!span_extend(first, mine.pages + 1));
    span_trim(first, mine.pages -= 5);
    CHECK(!span_extend(first, mine.pages + 6));
    CHECK_EQ(span_at(first)->pages, mine.pages);
    check_pages(&mine, mine.pages);
    check_pages(&other, other.pages);
    check_books();
}

TEST(the_last_span_grows_into_fresh_memory) { IN_CHILD(extend_at_the_end); }

static void extend_without_memory(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_keyed(span_end_page(), false, 7);
    CHECK(span_extend(mine.first, mine.pages = (uint32_t)span_end_page() - mine.first));
    span_trim(mine.first, mine.pages -= 10);
    fail_arm(FAIL_ANY, 1, true, 0);
    CHECK(!span_extend(mine.first, mine.pages + 100000));
    CHECK_EQ(span_at(mine.first)->pages, mine.pages);
    CHECK(span_extend(mine.first, mine.pages + 10)); /* what is there can be had */
    fail_disarm();
    check_books();
}

TEST(without_memory_it_stays_as_long_as_it_was) { IN_CHILD(extend_without_memory); }

/* ---- moving ----------------------------------------------------------------------------------------- */

/* Old kernels and emulators move nothing by page tables. */
static bool can_move(void) {
    char *from = os_map(PAGE_BYTES, PAGE_BYTES), *to = os_map(PAGE_BYTES, PAGE_BYTES);
    CHECK(from != NULL && to != NULL);
    return os_move(from, to, PAGE_BYTES) == OS_MOVED;
}

/* The contents of so many are copied without giving each piece back. */
enum { COPY_KEPT_PAGES = 128 };

/* Some span of PAGES pages moves to twice as many: the contents go along, the old pages are free, and zero unless they
 * are few and were copied. */
static struct mine check_move(uint32_t pages, bool by_tables) {
    struct mine mine = take_keyed(pages, true, 4711), old = mine;
    struct span_counts before = counts_now();
    CHECK((mine.first = span_move(old.first, pages, mine.pages = 2 * pages)) != 0);
    CHECK(mine.first + mine.pages <= old.first || old.first + old.pages <= mine.first);
    if (by_tables && !can_move()) by_tables = false;
    struct span_counts after = counts_now();
    CHECK_EQ(after.moves - before.moves, by_tables);
    CHECK_EQ(after.copies - before.copies, !by_tables);
    CHECK_EQ(after.taken - before.taken, after.given - before.given);
    CHECK_EQ(after.used_pages - before.used_pages, pages);
    check_pages(&mine, pages);
    check_books();
    const bool returned = by_tables || pages > COPY_KEPT_PAGES;
    if (returned) check_zero(old.first, old.pages); /* free, but still mapped */
    for (uint32_t page = old.first; page < old.first + pages; page++) {
        CHECK_AT((page_chunk(page)->touched >> page % CHUNK_PAGES & 1) == !returned, page);
        CHECK_AT((page_chunk(page)->returned >> page % CHUNK_PAGES & 1) == returned, page);
    }
    write_pages(&mine, 0);
    check_pages(&mine, mine.pages);
    return mine;
}

static uint32_t move_pages;

static void move_by_tables(void) {
    configure(ACE_NEVER, UINT64_MAX);
    span_give(take_keyed(5000, false, 1).first); /* dirty pages to move from and to */
    struct mine moved = check_move(move_pages, true);
    struct mine again = moved; /* in pieces, since it is not of one mapping any more */
    uint64_t moves = counts_now().moves;
    CHECK((again.first = span_move(moved.first, moved.pages, again.pages = moved.pages + 1)) != 0);
    CHECK_EQ(counts_now().moves, moves + can_move());
    check_pages(&again, moved.pages);
    span_give(again.first);
    check_books();
}

TEST(a_moved_span_keeps_its_contents) {
    static const uint32_t sizes[] = {1, 8, 31, 32, 33, 100, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        move_pages = sizes[i];
        IN_CHILD(move_by_tables);
    }
}

static int move_error;

static void move_refused(void) {
    configure(ACE_NEVER, UINT64_MAX);
    fail_arm(FAIL_MREMAP, 1, true, move_error);
    for (uint32_t pages = 1; pages < 600; pages = pages * 2 + 1) span_give(check_move(pages, false).first);
    CHECK_EQ(counts_now().moves, 0);
    CHECK(fail_counted(FAIL_MREMAP) >= 1);
}

/* ENOMEM is another matter: the destination may be gone, which the shim does not do. */
TEST(a_span_that_cannot_be_moved_is_copied) {
    const int errors[] = {EINVAL, ENOSYS, EPERM};
    for (size_t i = 0; i < 3; i++) {
        move_error = errors[i];
        IN_CHILD(move_refused);
    }
}

/* The kernel was out of memory, and who knows what lies at the destination: nothing is lost but its addresses. */
static void move_lost(void) {
    configure(ACE_NEVER, UINT64_MAX);
    span_give(check_move(50, true).first); /* that moves work is known before */
    if (counts_now().moves == 0) return;
    struct mine mine = take_keyed(50, true, 5);
    struct span_counts before = counts_now();
    fail_arm(FAIL_MREMAP, 1, true, ENOMEM);
    CHECK_EQ(span_move(mine.first, 50, 100), 0);
    fail_disarm();
    struct span_counts after = counts_now();
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.taken - after.given, before.taken - before.given);
    CHECK_EQ(after.lost_pages, before.lost_pages + 50); /* for ever: not what is behind it, where nothing was to go */
    CHECK_EQ(span_at(mine.first)->pages, 50);
    check_pages(&mine, 50);
    check_books();
    struct mine copied = {span_move(mine.first, 50, 100), 50, 5};
    CHECK(copied.first != 0);
    check_pages(&copied, 50);
    CHECK_EQ(counts_now().copies, after.copies + 1); /* and nothing is moved ever after */
}

TEST(a_lost_destination_is_never_used) { IN_CHILD(move_lost); }

/* What went there before is copied back, and those pages are free again; so are those behind. */
static void move_lost_halfway(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = check_move(50, true); /* of two mappings now */
    if (counts_now().moves == 0) return;
    struct span_counts before = counts_now();
    fail_arm(FAIL_MREMAP, 2, true, ENOMEM);
    CHECK_EQ(span_move(mine.first, 100, 300), 0);
    fail_disarm();
    struct span_counts after = counts_now();
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.lost_pages, before.lost_pages + 50);
    check_pages(&mine, 100);
    check_books();
    uint64_t fresh = counts_now().fresh_pages;
    struct mine around[] = {take_keyed(50, false, 6), take_keyed(200, false, 7)};
    CHECK_EQ(counts_now().fresh_pages, fresh);
    for (int i = 0; i < 2; i++) check_pages(&around[i], around[i].pages);
    check_pages(&mine, 100);
}

TEST(around_a_lost_destination_all_is_free) { IN_CHILD(move_lost_halfway); }

/* What was to go to the very end of the destination: nothing is behind it. */
static void move_lost_at_the_end(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = check_move(50, true); /* of two mappings now */
    if (counts_now().moves == 0) return;
    struct span_counts before = counts_now();
    fail_arm(FAIL_MREMAP, 2, true, ENOMEM);
    CHECK_EQ(span_move(mine.first, 100, 100), 0);
    fail_disarm();
    CHECK_EQ(counts_now().used_pages, before.used_pages);
    CHECK_EQ(counts_now().lost_pages, before.lost_pages + 50);
    check_pages(&mine, 100);
    check_books();
}

TEST(the_end_of_a_destination_may_be_lost) { IN_CHILD(move_lost_at_the_end); }

static void move_without_memory(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_keyed(50, true, 5);
    struct span_counts before = counts_now();
    fail_arm(FAIL_ANY, 1, true, 0);
    CHECK_EQ(span_move(mine.first, 50, counts_now().fresh_pages + 1), 0);
    fail_disarm();
    CHECK_EQ(counts_now().used_pages, before.used_pages);
    check_pages(&mine, 50);
    CHECK_EQ(span_move(mine.first, 50, window.pages + 1), 0);
    check_pages(&mine, 50);
    check_books();
}

TEST(without_memory_a_span_stays) { IN_CHILD(move_without_memory); }

/* Pages that would not go back to the kernel are not said to be zero. */
static void move_and_keep(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_keyed(50, true, 5);
    fail_arm(FAIL_ANY, 1, true, EINVAL);
    struct mine moved = mine;
    CHECK((moved.first = span_move(mine.first, 50, 60)) != 0);
    fail_disarm();
    check_pages(&moved, 50);
    CHECK(!(page_chunk(mine.first)->returned >> mine.first % CHUNK_PAGES & 1));
    CHECK(page_chunk(mine.first)->touched >> mine.first % CHUNK_PAGES & 1);
    check_books();
}

TEST(what_was_copied_and_stayed_is_dirty) {
    span_give(take_keyed(1000, false, 1).first); /* no fresh memory is needed then */
    IN_CHILD(move_and_keep);
}

/* Of a span that holds less than it is long only that goes along. */
static void move_what_is_held(void) {
    configure(ACE_NEVER, UINT64_MAX);
    for (int refused = 0; refused < 2; refused++) {
        if (refused) fail_arm(FAIL_MREMAP, 1, true, EINVAL);
        struct mine mine = take_keyed(100, true, 5), moved = mine;
        uint64_t purged = atomic_load(&os_counters.purged_bytes), copies = counts_now().copies;
        CHECK((moved.first = span_move(mine.first, 40, 150)) != 0);
        const bool copied = counts_now().copies != copies;
        check_pages(&moved, 40);
        /* What was copied, and perhaps the new one's reserve. */
        CHECK(atomic_load(&os_counters.purged_bytes) - purged <= 150 * PAGE_BYTES);
        for (uint32_t i = 0; i < 100; i++) { /* what was behind it is still there, and dirty */
            uint32_t page = mine.first + i;
            CHECK_AT((page_chunk(page)->touched >> page % CHUNK_PAGES & 1) == (copied || i >= 40), i);
        }
        if (!copied) check_zero(mine.first, 40);
        check_books();
    }
    fail_disarm();
}

TEST(only_what_is_held_is_moved) { IN_CHILD(move_what_is_held); }

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
