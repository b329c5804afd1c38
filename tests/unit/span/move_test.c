/* move_test.c - spans that move: by their page tables, copied where the kernel refuses, and what is left of the destination where
 * it fails halfway. Tests run in children: what the layer knows stays in the process. */
#include "child.h"
#include "faults/fail_calls.h"
#include "kernel.h"
#include "span/pages.h"
#include "spans.h"

#include <inttypes.h>

enum {
    LONG_PAGES = 2 * CHUNK_PAGES, /* so long a span begins where it did within a chunk, and its whole chunks are moved */
    COPY_KEPT_PAGES = 128,        /* the contents of so many are copied without giving each piece back */
};

static struct page_run chunks_of(struct mine mine) { return whole_chunks((struct page_run){mine.first, mine.pages}); }

static bool is_touched(uint32_t page) { return page_chunk(page)->touched >> page % CHUNK_PAGES & 1; }

/* OLD moves to twice as many pages: the contents go along. The old pages are free; whole chunks are zero that went with their page tables,
 * or were many. */
static struct mine check_move(struct mine old, bool by_tables) {
    struct mine mine = old;
    struct span_counts before = counts_now();
    CHECK((mine.first = span_move(old.first, old.pages, mine.pages = 2 * old.pages)) != 0);
    CHECK(mine.first + mine.pages <= old.first || old.first + old.pages <= mine.first);
    const bool alike = mine.first % CHUNK_PAGES == old.first % CHUNK_PAGES;
    if (old.pages >= LONG_PAGES)
        CHECK(alike);
    else if (mine.pages >= LONG_PAGES)
        CHECK_EQ(mine.first % CHUNK_PAGES, 0);
    const struct page_run whole = chunks_of(old);
    by_tables = by_tables && alike && whole.pages != 0 && kernel_moves(); /* old kernels and emulators move nothing so */
    struct span_counts after = counts_now();
    CHECK_EQ(after.moves - before.moves, by_tables);
    CHECK_EQ(after.copies - before.copies, !by_tables);
    CHECK_EQ(after.taken - before.taken, after.given - before.given);
    CHECK_EQ(after.used_pages - before.used_pages, old.pages);
    check_pages(&mine, old.pages);
    check_books();
    const bool gone = by_tables || (whole.pages != 0 && whole.first - old.first + whole.pages > COPY_KEPT_PAGES);
    for (uint32_t page = old.first; page < old.first + old.pages; page++) {
        const bool zero = gone && page >= whole.first && page < whole.first + whole.pages;
        CHECK_AT(is_touched(page) == !zero, page);
        CHECK_AT((page_chunk(page)->returned >> page % CHUNK_PAGES & 1) == 0, page); /* not by decay */
        if (zero) check_zero(page, 1); /* free, but still mapped */
    }
    write_pages(&mine, 0);
    check_pages(&mine, mine.pages);
    return mine;
}

/* Whether each mapping of what this layer was given begins and ends with a chunk, as the kernel has it. */
static bool maps_whole_chunks(void) {
    const uintptr_t start = (uintptr_t)page_address(CHUNK_PAGES), end = (uintptr_t)page_address(span_end_page());
    FILE *file = fopen("/proc/self/maps", "re");
    CHECK(file != NULL);
    uintptr_t from, to;
    bool whole = true;
    while (whole && fscanf(file, "%" SCNxPTR "-%" SCNxPTR "%*[^\n]", &from, &to) == 2) {
        const bool starts = from > start && from < end, stops = to > start && to < end;
        whole = !(starts && from % (CHUNK_PAGES * PAGE_BYTES) != 0) && !(stops && to % (CHUNK_PAGES * PAGE_BYTES) != 0);
    }
    CHECK(fclose(file) == 0);
    return whole;
}

static uint32_t move_pages, move_from;

static void move_by_tables(void) {
    configure(ACE_NEVER, UINT64_MAX);
    span_give(take_keyed(5000, false, 1).first); /* dirty pages to move from and to */
    struct mine moved = check_move(take_keyed_at(move_from, move_pages, 4711), true);
    check_move(moved, true); /* of several mappings by now */
    CHECK(maps_whole_chunks());
}

TEST(a_moved_span_keeps_its_contents) {
    static const uint32_t sizes[] = {1, 8, 31, 32, 33, 63, 64, 65, 100, 128, 1000}, starts[] = {0, 1, 5, 31};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t k = 0; k < sizeof starts / sizeof starts[0]; k++) {
            move_pages = sizes[i];
            move_from = starts[k];
            IN_CHILD(move_by_tables);
        }
    }
}

/* What lies before the new place in its chunk is nobody's business: it is as free and as dirty as it was. */
static void leave_the_front(void) {
    NEED_MOVES();
    enum { FRONT = 5, PAGES = 3 * CHUNK_PAGES };
    configure(ACE_NEVER, UINT64_MAX);
    for (int dirty = 0; dirty < 2; dirty++) {
        struct mine mine = take_keyed_at(FRONT, PAGES, 1);
        purge_all();
        const uint32_t pages = (uint32_t)counts_now().fresh_pages; /* to where nothing was touched, and then to where some was */
        if (dirty) span_give(take_keyed_at(FRONT + CHUNK_PAGES / 2, 1, 2).first);
        const uint32_t old = mine.first;
        const uint64_t copied = PAGES - chunks_of(mine).pages;
        CHECK((mine.first = span_move(mine.first, PAGES, dirty ? pages / 2 : pages)) != 0);
        check_pages(&mine, PAGES);
        CHECK_EQ(mine.first % CHUNK_PAGES, FRONT);
        for (uint32_t page = mine.first - FRONT; page < mine.first && page >= old + PAGES; page++)
            CHECK_AT(!is_touched(page) && (page_chunk(page)->used >> page % CHUNK_PAGES & 1) == 0, page);
        CHECK(counts_now().dirty_pages <= copied + (dirty != 0));
        check_books();
        span_give(mine.first);
    }
}

TEST(before_a_long_span_nothing_is_touched) { IN_CHILD(leave_the_front); }

static int move_error;

static void move_refused(void) {
    configure(ACE_NEVER, UINT64_MAX);
    fail_arm(FAIL_MREMAP, 1, true, move_error);
    for (uint32_t pages = 1; pages < 600; pages = pages * 2 + 1) span_give(check_move(take_keyed(pages, true, 4711), false).first);
    CHECK_EQ(counts_now().moves, 0);
    CHECK(fail_counted(FAIL_MREMAP) >= 1);
}

/* A span of two mappings, neither of which is much: together they are, and the second is given back as it is copied. */
static void copy_two_mappings(void) {
    NEED_MOVES();
    enum { HALF = 3 * CHUNK_PAGES };
    configure(ACE_NEVER, UINT64_MAX);
    const struct mine mine = check_move(take_keyed_at(0, HALF, 4711), true);
    struct mine copied = mine;
    fail_arm(FAIL_MREMAP, 1, true, EINVAL);
    CHECK((copied.first = span_move(mine.first, 2 * HALF, 2 * HALF + 1)) != 0);
    fail_disarm();
    check_pages(&copied, 2 * HALF);
    for (uint32_t i = 0; i < 2 * HALF; i++) CHECK_AT(is_touched(mine.first + i) == (i < HALF), i);
    check_zero(mine.first + HALF, HALF);
    check_books();
}

TEST(copies_of_several_mappings_count_together) { IN_CHILD(copy_two_mappings); }

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
    enum { PAGES = 100 };
    configure(ACE_NEVER, UINT64_MAX);
    span_give(check_move(take_keyed_at(0, PAGES, 4711), true).first); /* that moves work is known before */
    struct mine mine = take_keyed_at(move_from, PAGES, 5);
    struct span_counts before = counts_now();
    fail_arm(FAIL_MREMAP, 1, true, ENOMEM);
    CHECK_EQ(span_move(mine.first, PAGES, 2 * PAGES), 0);
    fail_disarm();
    struct span_counts after = counts_now();
    CHECK_EQ(after.used_pages, before.used_pages);
    CHECK_EQ(after.taken - after.given, before.taken - before.given);
    CHECK_EQ(after.lost_pages, before.lost_pages + CHUNK_PAGES); /* for ever: not what is behind it, where nothing was moved to */
    CHECK_EQ(span_at(mine.first)->pages, PAGES);
    check_pages(&mine, PAGES);
    check_books();
    struct mine copied = {span_move(mine.first, PAGES, 2 * PAGES), PAGES, 5};
    CHECK(copied.first != 0);
    check_pages(&copied, PAGES);
    CHECK_EQ(counts_now().copies, after.copies + 1); /* and nothing is moved ever after */
}

TEST(a_lost_destination_is_never_used) {
    for (move_from = 0; move_from < CHUNK_PAGES; move_from += 7) IN_CHILD(move_lost);
}

/* A span of two mappings, HALF pages each, was to move to one of PAGES pages, and chunk LOST of it failed. What went there before is copied
 * back. */
static struct mine lose_chunk(uint32_t lost, uint32_t half, uint32_t pages) {
    NEED_MOVES();
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = check_move(take_keyed_at(0, half, 4711), true);
    struct span_counts before = counts_now();
    fail_arm(FAIL_MREMAP, lost + 1, true, ENOMEM);
    CHECK_EQ(span_move(mine.first, 2 * half, pages), 0);
    fail_disarm();
    CHECK_EQ(counts_now().used_pages, before.used_pages);
    CHECK_EQ(counts_now().lost_pages, before.lost_pages + CHUNK_PAGES);
    check_pages(&mine, 2 * half);
    for (uint32_t page = mine.first; page < mine.first + mine.pages; page++) CHECK_AT(is_touched(page), page);
    check_books();
    return mine;
}

static uint32_t lost_chunk;

/* The pages before what is lost are free again, and those behind. */
static void move_lost_midway(void) {
    const uint32_t before = lost_chunk * CHUNK_PAGES;
    struct mine mine = lose_chunk(lost_chunk, LONG_PAGES, 5 * LONG_PAGES);
    uint64_t fresh = counts_now().fresh_pages;
    struct mine around[] = {take_keyed(before, false, 6), take_keyed(5 * LONG_PAGES - CHUNK_PAGES - before, false, 7)};
    CHECK_EQ(counts_now().fresh_pages, fresh);
    for (int i = 0; i < 2; i++) check_pages(&around[i], around[i].pages);
    check_pages(&mine, 2 * LONG_PAGES);
}

/* The first of a mapping, and the second, which comes after a chunk of it was moved. */
TEST(around_a_lost_destination_all_is_free) {
    for (lost_chunk = 1; lost_chunk < 4; lost_chunk++) IN_CHILD(move_lost_midway);
}

/* What was to go to the very end of the destination: nothing is behind it. */
static void move_lost_at_the_end(void) { lose_chunk(2 * LONG_PAGES / CHUNK_PAGES - 1, LONG_PAGES, 2 * LONG_PAGES); }

TEST(the_end_of_a_destination_may_be_lost) { IN_CHILD(move_lost_at_the_end); }

/* So many that each piece is given back where it was, once it is copied back. */
static void much_is_brought_back(void) { lose_chunk(2 * COPY_KEPT_PAGES / CHUNK_PAGES, 2 * COPY_KEPT_PAGES, 4 * COPY_KEPT_PAGES); }

TEST(what_is_brought_back_may_be_much) { IN_CHILD(much_is_brought_back); }

/* The kernel does not join all mappings that look alike, and of several it may move some and then fail: each chunk goes by itself. */
static void move_by_chunks(void) {
    NEED_MOVES();
    enum { CHUNKS = 6 };
    configure(ACE_NEVER, UINT64_MAX);
    span_give(check_move(take_keyed_at(0, LONG_PAGES, 4711), true).first); /* that moves work is known before */
    const struct mine mine = take_keyed_at(0, CHUNKS * CHUNK_PAGES, 5);
    const uint64_t calls = calls_of(OS_CALL_MREMAP), edges = pages_edges();
    check_move(mine, true);
    CHECK_EQ(calls_of(OS_CALL_MREMAP), calls + CHUNKS);
    CHECK_AT(pages_edges() < edges + CHUNKS, (size_t)(pages_edges() - edges)); /* what lay in one mapping passes for one again */
    check_books();
}

TEST(each_chunk_is_moved_by_itself) { IN_CHILD(move_by_chunks); }

static uint32_t unmapped_meanwhile;

static void unmap_meanwhile(void) { CHECK_EQ(munmap(page_address(unmapped_meanwhile), CHUNK_PAGES * PAGE_BYTES), 0); }

static struct {
    uint32_t chunk; /* of the destination */
    bool again;     /* whether there is no memory later, either */
} renewed;

/* The kernel was out of memory after it had unmapped one chunk of the destination, which is mapped anew: it is copied there, with what
 * comes behind it. */
static void move_to_renewed(void) {
    NEED_MOVES();
    enum { MOVED = 4 * CHUNK_PAGES, CALLS = 2 }; /* for each chunk, one that looks for locks and the move itself */
    configure(ACE_NEVER, UINT64_MAX);
    span_give(check_move(take_keyed_at(0, LONG_PAGES, 4711), true).first); /* that moves work is known before */
    struct mine mine = take_keyed_at(0, MOVED, 5);
    const struct mine all = take_keyed_at(0, (uint32_t)counts_now().fresh_pages + CHUNK_PAGES, 6);
    span_give(all.first);
    unmapped_meanwhile = all.first + renewed.chunk * CHUNK_PAGES;
    fail_arm(FAIL_MREMAP, renewed.chunk + 1, renewed.again, ENOMEM);
    fail_interrupt(CALLS * (renewed.chunk + 1), unmap_meanwhile);
    const uint64_t lost = counts_now().lost_pages;
    struct mine moved = mine;
    moved.first = span_move(mine.first, MOVED, all.pages - CHUNK_PAGES);
    CHECK(moved.first != 0 || renewed.again);
    CHECK(fail_failed() > 0);
    fail_disarm();
    fail_interrupt(0, NULL);
    CHECK_EQ(counts_now().lost_pages - lost, moved.first != 0 ? 0 : CHUNK_PAGES); /* the next that fails is not unmapped, which nobody can tell */
    check_pages(moved.first != 0 ? &moved : &mine, MOVED);
    check_books();
}

TEST(what_was_unmapped_is_mapped_anew) {
    for (renewed.chunk = 0; renewed.chunk < 2; renewed.chunk++)
        for (int again = 0; again < 2; again++) {
            renewed.again = again != 0;
            IN_CHILD(move_to_renewed);
        }
}

static void move_without_memory(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_keyed_at(move_from, move_pages, 5);
    struct span_counts before = counts_now();
    fail_arm(FAIL_ANY, 1, true, 0);
    CHECK_EQ(span_move(mine.first, move_pages, counts_now().fresh_pages + 1), 0);
    fail_disarm();
    CHECK_EQ(counts_now().used_pages, before.used_pages);
    check_pages(&mine, move_pages);
    CHECK_EQ(span_move(mine.first, move_pages, window.pages + 1), 0);
    CHECK_EQ(span_move(mine.first, move_pages, window.pages), 0);
    check_pages(&mine, move_pages);
    check_books();
}

TEST(without_memory_a_span_stays) {
    move_from = 5;
    for (move_pages = 50; move_pages < 2 * LONG_PAGES; move_pages += LONG_PAGES) IN_CHILD(move_without_memory);
}

/* Pages that would not go back to the kernel are not said to be zero. */
static void move_and_keep(void) {
    enum { PAGES = 300 };
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_keyed(PAGES, true, 5);
    fail_arm(FAIL_ANY, 1, true, EINVAL);
    struct mine moved = mine;
    CHECK((moved.first = span_move(mine.first, PAGES, PAGES + 10)) != 0);
    fail_disarm();
    check_pages(&moved, PAGES);
    for (uint32_t page = mine.first; page < mine.first + PAGES; page++) {
        CHECK_AT(!(page_chunk(page)->returned >> page % CHUNK_PAGES & 1), page);
        CHECK_AT(is_touched(page), page);
    }
    check_books();
}

TEST(what_was_copied_and_stayed_is_dirty) {
    span_give(take_keyed(1000, false, 1).first); /* no fresh memory is needed then */
    IN_CHILD(move_and_keep);
}

/* Of a span that holds less than it is long only that goes along. */
static void move_what_is_held(void) {
    enum { PAGES = 250, HELD = 100, MOVED = 3 * CHUNK_PAGES, LATER = 350 };
    configure(ACE_NEVER, UINT64_MAX);
    for (int refused = 0; refused < 2; refused++) {
        if (refused) fail_arm(FAIL_MREMAP, 1, true, EINVAL);
        struct mine mine = take_keyed_at(0, PAGES, 5), moved = mine;
        uint64_t purged = atomic_load(&os_counters.purged_bytes), copies = counts_now().copies;
        CHECK((moved.first = span_move(mine.first, HELD, LATER)) != 0);
        const bool copied = counts_now().copies != copies;
        check_pages(&moved, HELD);
        /* Perhaps the new one's reserve. */
        CHECK(atomic_load(&os_counters.purged_bytes) - purged <= LATER * PAGE_BYTES);
        for (uint32_t i = 0; i < PAGES; i++) /* what was behind it is still there, and dirty */
            CHECK_AT(is_touched(mine.first + i) == (copied || i >= MOVED), i);
        if (!copied) check_zero(mine.first, MOVED);
        check_books();
    }
    fail_disarm();
}

TEST(only_what_is_held_is_moved) { IN_CHILD(move_what_is_held); }
