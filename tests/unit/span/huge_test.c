/* huge_test.c - what becomes of memory with and without huge pages: zones, what lies across their border, chunks that are broken and
 * mended as whole spans are. Of many of them tells huge_stretch_test.c; which memory gets huge pages is huge_admission_test.c. In
 * children: what was broken stays in the process.
 *
 * Planted defects it was seen to catch:
 *   zones are merged                             zones_are_never_merged, others
 *   sparse spans are of huge pages               dense_spans_are_of_huge_pages_from_a_size_on
 *   plain memory is not advised                  dense_spans_are_of_huge_pages_from_a_size_on
 *   what is taken as a whole is not mended       a_part_breaks_and_the_whole_mends
 *   a chunk is broken again                      a_part_breaks_and_the_whole_mends
 *   the advice of who mends is the last          what_breaks_while_it_is_mended_stays_broken
 *   the advice of who moves is the last          what_breaks_while_it_is_advised_stays_broken,
 *                                                what_is_mended_while_it_is_advised_stays_whole
 *   what is mapped afresh breaks nothing         a_part_of_what_was_moved_breaks_its_huge_page
 *   the start of a run is not broken, or a whole chunk at its end is   a_run_breaks_what_lies_at_its_ends
 *   pieces end within huge pages                 pieces_of_a_purge_break_nothing_in_vain
 */
#include "base/bits.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "huge.h"
#include "kernel.h"
#include "span/pages.h"
#include "span/state.h"

/* ---- zones ----------------------------------------------------------------------------------------------------- */

/* Pages before END that huge pages were asked for. */
static uint64_t asked_before(uint32_t end) {
    uint64_t pages = 0;
    for (uint32_t page = CHUNK_PAGES; page < end; page += CHUNK_PAGES)
        pages += page_chunk(page)->zone == ZONE_HUGE && !page_chunk(page)->witness ? CHUNK_PAGES : 0;
    return pages;
}

static void zones_by_settings(void) {
    bool shown = shows_advice();
    static const struct {
        uint64_t from;
        bool dense;
        enum span_zone zone;
    } cases[] = {{1, true, ZONE_HUGE}, {UINT64_MAX, true, ZONE_PLAIN}, {0, false, ZONE_PLAIN}, {0, true, ZONE_HUGE}};
    touch_memory();
    leave_nothing_dirty();
    take_touched(2 * counts_now().fresh_pages); /* so that the first one is not much larger */
    for (size_t i = 0; i < 4; i++) {
        configure(ACE_NEVER, cases[i].from);
        struct span_counts before = counts_now();
        const uint32_t end = (uint32_t)span_end_page();
        const uint64_t asked = asked_before(end);
        struct mine mine = take_keyed(before.fresh_pages + 1, cases[i].dense, i); /* of nothing that there was */
        struct span_counts after = counts_now();
        const uint64_t collapsed = asked_before(end) - asked;
        for (uint32_t page = mine.first; page < mine.first + mine.pages; page++)
            CHECK_AT(page_chunk(page)->zone == cases[i].zone, i);
        uint64_t fresh = after.fresh_pages - before.fresh_pages;
        const uint64_t witness = cases[i].from != 0 ? CHUNK_PAGES : 0;
        CHECK_EQ(after.huge_pages - before.huge_pages - collapsed, cases[i].zone == ZONE_HUGE ? fresh - witness : 0);
        if (shown) check_advice(mine.first + mine.pages - 1, cases[i].zone == ZONE_HUGE ? "hg" : "nh");
        check_books();
        span_give(mine.first);
        leave_nothing_dirty();
        check_books();
    }
}

TEST(dense_spans_are_of_huge_pages_from_a_size_on) { IN_CHILD(zones_by_settings); }

/* Free spans side by side, of both zones; and one that was lengthened across the border between them. */
static void across_the_border(void) {
    leave_nothing_dirty();
    struct mine plain = take_fresh(ZONE_PLAIN, span_end_page(), 1);
    CHECK(span_extend(plain.first, plain.pages = (uint32_t)span_end_page() - plain.first));
    configure(ACE_NEVER, 0);
    struct mine huge = take_keyed(span_end_page(), true, 2);
    CHECK_EQ(huge.first, plain.first + plain.pages);
    CHECK_EQ(page_chunk(huge.first)->zone, ZONE_HUGE);
    uint32_t border = huge.first;
    span_give(huge.first);
    span_give(plain.first);
    check_books(); /* which says that no free span lies in two zones */
    CHECK_EQ(span_at(border)->kind, SPAN_FREE);
    CHECK(span_at(border - 1)->kind == SPAN_FREE || span_at(border - 1)->kind == SPAN_FREE_LAST);

    struct mine across = {span_take(10, 1, ACE_SPARSE), 10, 3};
    CHECK(across.first != 0 && page_chunk(across.first)->zone == ZONE_PLAIN);
    uint32_t last = across.first;
    while (last + 10 < border) { /* up to the border, page by page of what is free */
        struct mine next = take_keyed(1, false, 4);
        if (next.first + 1 == border) break;
        last = next.first;
        CHECK(next.first < border);
        CHECK(span_extend(next.first, border - next.first));
        across = (struct mine){next.first, border - next.first, 3};
        break;
    }
    CHECK_EQ(across.first + across.pages, border);
    for (int round = 0; round < 3; round++) {
        across.pages = border + 40 - across.first;
        CHECK(span_extend(across.first, across.pages));
        write_pages(&across, 0);
        check_pages(&across, across.pages);
        check_books();
        if (round == 1) { /* shortened across it */
            span_trim(across.first, across.pages = 3);
            check_books();
            CHECK(span_extend(across.first, across.pages = border + 40 - across.first));
        } else if (round == 2) { /* moved: two mappings at least */
            write_pages(&across, 0);
            struct mine moved = across;
            CHECK((moved.first = span_move(across.first, across.pages, across.pages + 100)) != 0);
            check_pages(&moved, across.pages);
            check_books();
            span_give(moved.first);
            break;
        }
        span_trim(across.first, across.pages = border - across.first);
    }
    leave_nothing_dirty();
    check_books();
    CHECK_EQ(counts_now().dirty_pages, 0);
}

TEST(zones_are_never_merged) { IN_CHILD(across_the_border); }

/* ---- broken and mended -------------------------------------------------------------------------------------------- */

static const struct chunk *chunk_of(const struct mine *mine, uint32_t number) {
    return page_chunk(mine->first + number * CHUNK_PAGES);
}

/* A part of a huge page that goes back breaks it, once; whoever takes the chunk as a whole mends it. */
static void break_and_mend(void) {
    bool shown = shows_advice();
    leave_nothing_dirty();
    struct mine mine = take_fresh(ZONE_HUGE, 16 * CHUNK_PAGES, 1);
    mine.first += CHUNK_PAGES - mine.first % CHUNK_PAGES; /* the next whole chunks */
    uint64_t calls = calls_of(OS_CALL_MADVISE_HUGE);
    purge_part(mine.first + 3 * CHUNK_PAGES + 5);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls + 2); /* broken, and not to be mended */
    purge_part(mine.first + 3 * CHUNK_PAGES + 9);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls + 2);
    for (uint32_t i = 0; i < 10; i++) {
        CHECK_AT(chunk_of(&mine, i)->broken == (i == 3) && chunk_of(&mine, i)->no_huge == (i == 3), i);
        if (shown) check_advice(mine.first + i * CHUNK_PAGES, i == 3 ? "nh" : "hg");
    }
    uint32_t head = mine.first;
    while (span_at(head)->kind != SPAN_USED || span_at(head)->pages != 16 * CHUNK_PAGES) head--;
    span_give(head);
    calls = calls_of(OS_CALL_MADVISE_HUGE);
    uint32_t again = span_take(16 * CHUNK_PAGES, 1, ACE_DENSE);
    CHECK_EQ(again, head);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls + 1);
    CHECK(!chunk_of(&mine, 3)->broken && !chunk_of(&mine, 3)->no_huge);
    if (shown) check_advice(mine.first + 3 * CHUNK_PAGES, "hg");
    /* Plain memory is never broken. */
    struct mine plain = take_fresh(ZONE_PLAIN, 100, 2);
    calls = calls_of(OS_CALL_MADVISE_HUGE);
    purge_part(plain.first + 50);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls);
    check_books();
}

TEST(a_part_breaks_and_the_whole_mends) { IN_CHILD(break_and_mend); }

static uint32_t broken_meanwhile;

static void break_meanwhile(void) { purge_part(broken_meanwhile); }

/* The kernel is told of a whole chunk, and before that another thread breaks it and says so. */
static void mend_too_late(void) {
    leave_nothing_dirty();
    struct mine mine = take_fresh(ZONE_HUGE, 8 * CHUNK_PAGES, 1);
    const uint32_t chunk = mine.first + CHUNK_PAGES - mine.first % CHUNK_PAGES;
    purge_part(chunk);
    span_give(span_take(1, 1, ACE_SPARSE)); /* what there was before is not looked at below */
    span_give(mine.first);
    broken_meanwhile = chunk + 1;
    fail_interrupt(1, break_meanwhile);
    CHECK_EQ(span_take(8 * CHUNK_PAGES, 1, ACE_DENSE), mine.first);
    fail_interrupt(0, NULL);
    CHECK(page_chunk(chunk)->broken && page_chunk(chunk)->no_huge);
    if (shows_advice()) check_advice(chunk, "nh");
    CHECK(!page_chunk(chunk + CHUNK_PAGES)->no_huge);
    if (shows_advice()) check_advice(chunk + CHUNK_PAGES, "hg");
}

TEST(what_breaks_while_it_is_mended_stays_broken) { IN_CHILD(mend_too_late); }

/* A free run that is given back breaks at most what lies at its two ends. */
static void break_at_the_ends(void) {
    static const struct {
        uint32_t from, to;
        unsigned broken; /* chunks, as bits */
    } cuts[] = {{0, 32, 0}, {0, 96, 0}, {32, 96, 0}, {1, 32, 1}, {0, 31, 1}, {40, 90, 6}, {5, 100, 9}, {33, 34, 2}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        leave_nothing_dirty();
        struct mine mine = take_fresh(ZONE_HUGE, 6 * CHUNK_PAGES, 1);
        uint32_t chunk = mine.first + CHUNK_PAGES - mine.first % CHUNK_PAGES, from = chunk + cuts[i].from;
        uint32_t end = mine.first + mine.pages;
        span_trim(mine.first, from - mine.first); /* what is behind is free and dirty: */
        struct mine hole = take_keyed(cuts[i].to - cuts[i].from, true, 2);
        CHECK_EQ(hole.first, from); /* in three pieces now, the middle of which is given back */
        struct mine rest = take_keyed(end - chunk - cuts[i].to, true, 3);
        CHECK_EQ(rest.first, chunk + cuts[i].to);
        span_give(hole.first);
        leave_nothing_dirty();
        for (uint32_t k = 0; k < 4; k++)
            CHECK_AT(page_chunk(chunk + k * CHUNK_PAGES)->broken == (cuts[i].broken >> k & 1), i * 10 + k);
        check_books();
    }
}

TEST(a_run_breaks_what_lies_at_its_ends) { IN_CHILD(break_at_the_ends); }

/* All of it is due, in pieces: what one of them leaves of a huge page, the next returns. */
static void purge_in_pieces(void) {
    enum { CHUNKS = 4 };
    static const uint32_t pieces[] = {5, CHUNK_PAGES + 5, 2 * CHUNK_PAGES - 1}, starts[] = {0, 7};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        for (size_t k = 0; k < sizeof starts / sizeof starts[0]; k++) {
            leave_nothing_dirty();
            configure(ACE_NEVER, 0);
            const struct mine mine = take_keyed_at(starts[k], CHUNKS * CHUNK_PAGES - starts[k], 1);
            const uint32_t chunk = mine.first - starts[k], end = mine.first + mine.pages;
            span_give(mine.first);
            for (uint64_t dirty = 1; dirty != 0; dirty = counts_now().dirty_pages) {
                span_purging_lock();
                CHECK(span_purge(pieces[i]).given_pages < pieces[i] + CHUNK_PAGES);
                span_purging_unlock();
            }
            for (uint32_t at = chunk; at < end; at += CHUNK_PAGES)
                CHECK_AT(page_chunk(at)->broken == (starts[k] != 0 && at == chunk), i * 10 + k);
            check_books();
        }
    }
}

TEST(pieces_of_a_purge_break_nothing_in_vain) { IN_CHILD(purge_in_pieces); }

/* ---- what was moved ---------------------------------------------------------------------------------------------------- */

static enum span_zone moved_zone;

/* What was moved and given back is advised as its zone is, whatever mapping was there in between. */
static void heal_advice(void) {
    NEED_MOVES();
    if (!shows_advice()) SKIP("the kernel does not show what it was asked for");
    leave_nothing_dirty();
    struct mine mine = take_fresh(moved_zone, 200, 1);
    uint64_t moves = counts_now().moves;
    CHECK((mine.first = span_move(mine.first, 200, 300)) != 0);
    CHECK_EQ(counts_now().moves, moves + 1);
    uint32_t at = mine.first;
    enum span_zone zone = (enum span_zone)page_chunk(at)->zone;
    span_give(at);
    leave_nothing_dirty();
    bool broken = page_chunk(at + 100)->no_huge;
    check_advice(at + 100, zone == ZONE_HUGE && !broken ? "hg" : "nh");
}

TEST(what_was_moved_is_advised_again) {
    for (int zone = 0; zone < ZONES; zone++) {
        moved_zone = (enum span_zone)zone;
        IN_CHILD(heal_advice);
    }
}

enum { SECOND_LOOK = 3, ADVISED = 7 }; /* calls of a move of three chunks: for each one that looks for locks, and the move */

/* Moves a span of three chunks to where all has huge pages; at call AT, HANDLER comes in between, for BROKEN_MEANWHILE in the second. Returns
 * the first chunk. */
static uint32_t move_interrupted(unsigned long at, void (*handler)(void)) {
    NEED_MOVES();
    enum { MOVED = 3 * CHUNK_PAGES };
    leave_nothing_dirty();
    struct mine mine = take_keyed_at(0, MOVED, 1);
    CHECK((mine.first = span_move(mine.first, MOVED, MOVED + 1)) != 0); /* whether the kernel moves is found out at first */
    const struct mine all = take_fresh(ZONE_HUGE, 8 * CHUNK_PAGES, 1);
    const uint32_t chunk = (uint32_t)round_up(all.first, CHUNK_PAGES);
    span_give(all.first);
    broken_meanwhile = chunk + CHUNK_PAGES + 1;
    fail_interrupt(at, handler);
    mine.first = span_move(mine.first, MOVED, 6 * CHUNK_PAGES);
    fail_interrupt(0, NULL);
    CHECK_EQ(mine.first, chunk);
    check_pages(&mine, MOVED);
    return chunk;
}

static void check_three(uint32_t chunk, bool second_is_broken) {
    for (uint32_t i = 0; i < 3; i++) check_broken(chunk + i * CHUNK_PAGES, i == 1 && second_is_broken);
}

/* The kernel is told of the new place, and before that another thread breaks a chunk there and says so: for a whole stretch, or for
 * its own pages in the chunk. */
static void advise_too_late(void) { check_three(move_interrupted(ADVISED, break_meanwhile), true); }

TEST(what_breaks_while_it_is_advised_stays_broken) { IN_CHILD(advise_too_late); }

static void mend_meanwhile(void) { huge_mend(broken_meanwhile - 1, CHUNK_PAGES); }

static void break_and_mend_meanwhile(void) {
    break_meanwhile();
    fail_interrupt(ADVISED + 1 - SECOND_LOOK, mend_meanwhile); /* the first chunk was advised */
}

/* A chunk breaks before something is moved there, and is mended as the kernel is about to be told. */
static void avoid_too_late(void) { check_three(move_interrupted(SECOND_LOOK, break_and_mend_meanwhile), false); }

TEST(what_is_mended_while_it_is_advised_stays_whole) { IN_CHILD(avoid_too_late); }

/* Behind a block that was moved lies its reserve, which was not, and behind that in the same huge page a span in use. When the block is
 * free all of it is mapped afresh, as one mapping with that span's. */
static void return_what_was_moved(void) {
    NEED_MOVES();
    enum { MOVED = 3 * CHUNK_PAGES, PLACE = 5 * CHUNK_PAGES + 5 };
    leave_nothing_dirty();
    const struct mine all = take_fresh(ZONE_HUGE, 16 * CHUNK_PAGES, 1);
    span_trim(all.first, 2 * CHUNK_PAGES - all.first % CHUNK_PAGES);
    struct mine mine = take_keyed(MOVED, true, 2);
    const uint32_t place = take_keyed(PLACE, true, 3).first;
    const struct mine behind = take_keyed(CHUNK_PAGES - 5, true, 4);
    CHECK(mine.first % CHUNK_PAGES == 0 && place == mine.first + MOVED && behind.first == place + PLACE);
    span_give(place);
    CHECK_EQ(mine.first = span_move(mine.first, MOVED, PLACE), place);
    CHECK(pages_any_moved(place, MOVED) && !pages_any_moved(place + MOVED, PLACE - MOVED));
    check_pages(&mine, MOVED);
    span_give(place);
    purge_all();
    CHECK(!pages_any_moved(place, PLACE));
    check_pages(&behind, behind.pages);
    check_broken(behind.first - behind.first % CHUNK_PAGES, true);
    CHECK(!span_may_be_huge(behind.first) && span_may_be_huge(place));
    check_books();
}

TEST(a_part_of_what_was_moved_breaks_its_huge_page) { IN_CHILD(return_what_was_moved); }

/* A kernel without huge pages is asked once, and all works as it did. */
static void without_huge_pages(void) {
    fail_arm(FAIL_MADVISE, 1, true, EINVAL);
    configure(ACE_NEVER, 0);
    struct mine mine = take_keyed(1000, true, 1);
    unsigned long asked = fail_counted(FAIL_MADVISE);
    CHECK(asked <= 2); /* and perhaps to bring pages in */
    CHECK(take_keyed(span_end_page(), true, 2).first != 0 && take_keyed(span_end_page(), false, 3).first != 0);
    CHECK_EQ(fail_counted(FAIL_MADVISE), asked);
    fail_disarm();
    check_pages(&mine, mine.pages);
    check_books();
}

TEST(a_kernel_without_them_is_asked_once) { IN_CHILD(without_huge_pages); }
