/* move_test.c - spans that move: by their page tables, copied where the kernel refuses, and what is left of the destination where
 * it fails halfway. Tests run in children: what the layer knows stays in the process. */
#include "child.h"
#include "faults/fail_calls.h"
#include "kernel.h"
#include "spans.h"

/* The contents of so many are copied without giving each piece back. */
enum { COPY_KEPT_PAGES = 128 };

/* Some span of PAGES pages moves to twice as many: the contents go along, the old pages are free, and zero unless they
 * are few and were copied. */
static struct mine check_move(uint32_t pages, bool by_tables) {
    struct mine mine = take_keyed(pages, true, 4711), old = mine;
    struct span_counts before = counts_now();
    CHECK((mine.first = span_move(old.first, pages, mine.pages = 2 * pages)) != 0);
    CHECK(mine.first + mine.pages <= old.first || old.first + old.pages <= mine.first);
    by_tables = by_tables && kernel_moves(); /* old kernels and emulators move nothing so */
    struct span_counts after = counts_now();
    CHECK_EQ(after.moves - before.moves, by_tables);
    CHECK_EQ(after.copies - before.copies, !by_tables);
    CHECK_EQ(after.taken - before.taken, after.given - before.given);
    CHECK_EQ(after.used_pages - before.used_pages, pages);
    check_pages(&mine, pages);
    check_books();
    const bool zero = by_tables || pages > COPY_KEPT_PAGES;
    if (zero) check_zero(old.first, old.pages); /* free, but still mapped */
    for (uint32_t page = old.first; page < old.first + pages; page++) {
        CHECK_AT((page_chunk(page)->touched >> page % CHUNK_PAGES & 1) == !zero, page);
        CHECK_AT((page_chunk(page)->returned >> page % CHUNK_PAGES & 1) == 0, page); /* not by decay */
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
    CHECK_EQ(counts_now().moves, moves + kernel_moves());
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
    NEED_MOVES();
    configure(ACE_NEVER, UINT64_MAX);
    span_give(check_move(50, true).first); /* that moves work is known before */
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

/* A span of two mappings was to move to one of PAGES pages, and the second failed. What went there before is copied back. */
static struct mine lose_second_half(uint32_t pages) {
    NEED_MOVES();
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = check_move(50, true);
    struct span_counts before = counts_now();
    fail_arm(FAIL_MREMAP, 2, true, ENOMEM);
    CHECK_EQ(span_move(mine.first, 100, pages), 0);
    fail_disarm();
    CHECK_EQ(counts_now().used_pages, before.used_pages);
    CHECK_EQ(counts_now().lost_pages, before.lost_pages + 50);
    check_pages(&mine, 100);
    check_books();
    return mine;
}

/* The pages before what is lost are free again, and those behind. */
static void move_lost_halfway(void) {
    struct mine mine = lose_second_half(300);
    uint64_t fresh = counts_now().fresh_pages;
    struct mine around[] = {take_keyed(50, false, 6), take_keyed(200, false, 7)};
    CHECK_EQ(counts_now().fresh_pages, fresh);
    for (int i = 0; i < 2; i++) check_pages(&around[i], around[i].pages);
    check_pages(&mine, 100);
}

TEST(around_a_lost_destination_all_is_free) { IN_CHILD(move_lost_halfway); }

/* What was to go to the very end of the destination: nothing is behind it. */
static void move_lost_at_the_end(void) { lose_second_half(100); }

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
