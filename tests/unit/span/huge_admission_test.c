/* huge_admission_test.c - which memory gets huge pages: what is in use must be enough, and touched, and the block not much larger. In
 * children: what was taken stays in the process.
 *
 * Planted defects it was seen to catch:
 *   untouched memory counts like touched         untouched_memory_gets_none
 *   every fresh memory is looked at              untouched_memory_gets_none
 *   who touched memory once is never asked again   who_touched_memory_is_asked_again
 *   a block of any size gets them                what_is_much_larger_than_all_else_gets_none
 *   a refusal counts as untouched                without_an_answer_all_is_touched
 *   what lies before a gap is not looked at      what_lies_before_a_gap_counts
 */
#include "child.h"
#include "faults/fail_calls.h"
#include "huge.h"

static void count_what_is_used(void) {
    touch_memory();
    leave_nothing_dirty();
    take_touched(counts_now().fresh_pages);
    struct span_counts counts = counts_now();
    configure(ACE_NEVER, counts.used_pages + counts.fresh_pages + 2);
    struct mine few = take_keyed(counts.fresh_pages + 1, true, 1);
    CHECK_EQ(page_chunk(few.first)->zone, ZONE_PLAIN);
    struct mine many = take_keyed(counts_now().fresh_pages + 1, true, 2);
    CHECK_EQ(page_chunk(many.first)->zone, ZONE_HUGE);
}

TEST(what_is_used_decides) { IN_CHILD(count_what_is_used); }

/* Nobody knows how much of it will be touched. Of a block that grows all was touched so far. */
static void take_one_much_larger(void) {
    touch_memory();
    leave_nothing_dirty();
    const struct mine touched = take_touched(counts_now().fresh_pages);
    configure(ACE_NEVER, 1);
    const struct mine larger = take_keyed(2 * counts_now().used_pages + 1, true, 2);
    CHECK_EQ(page_chunk(larger.first)->zone, ZONE_PLAIN);
    span_give(larger.first);
    const uint32_t grown = span_move(touched.first, touched.pages, counts_now().fresh_pages + 1);
    CHECK_EQ(page_chunk(grown)->zone, ZONE_HUGE);
    check_books();
}

TEST(what_is_much_larger_than_all_else_gets_none) { IN_CHILD(take_one_much_larger); }

/* What is in use and was not touched would come in by huge pages; so it is looked at, and again when a quarter more is in use. */
static void ask_for_untouched(void) {
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    leave_nothing_dirty();
    configure(ACE_NEVER, 1);
    struct mine first = take_keyed(counts_now().fresh_pages + 8 * CHUNK_PAGES, false, 1); /* a word in each page */
    struct span_counts before = counts_now();
    uint64_t looks = calls_of(OS_CALL_MINCORE);
    struct mine second = take_keyed(before.fresh_pages + 1, true, 2);
    CHECK(calls_of(OS_CALL_MINCORE) > looks);
    CHECK_EQ(page_chunk(second.first)->zone, ZONE_PLAIN);
    CHECK_EQ(counts_now().huge_pages, before.huge_pages);
    looks = calls_of(OS_CALL_MINCORE);
    struct mine third = take_keyed(1 + CHUNK_PAGES, true, 3);
    CHECK_EQ(page_chunk(third.first)->zone, ZONE_PLAIN);
    CHECK_EQ(calls_of(OS_CALL_MINCORE), looks); /* too soon */
    memset(page_address(first.first), 1, first.pages * PAGE_BYTES);
    memset(page_address(second.first), 1, second.pages * PAGE_BYTES);
    struct mine fourth = take_keyed(counts_now().fresh_pages + 1, true, 4);
    CHECK(calls_of(OS_CALL_MINCORE) > looks);
    CHECK_EQ(page_chunk(fourth.first)->zone, ZONE_HUGE);
}

TEST(untouched_memory_gets_none) { IN_CHILD(ask_for_untouched); }

static void ask_again(void) {
    touch_memory();
    leave_nothing_dirty();
    configure(ACE_NEVER, 1);
    const uint64_t looks = calls_of(OS_CALL_MINCORE);
    CHECK(span_take(2 * counts_now().fresh_pages, 1, false) != 0);
    const struct mine mine = take_keyed(counts_now().fresh_pages + 1, true, 1);
    CHECK(calls_of(OS_CALL_MINCORE) > looks);
    CHECK_EQ(page_chunk(mine.first)->zone, ZONE_PLAIN);
}

TEST(who_touched_memory_is_asked_again) { IN_CHILD(ask_again); }

/* Who cannot say is taken to say that all is touched. */
static void ask_without_answer(void) {
    leave_nothing_dirty();
    take_keyed(counts_now().fresh_pages + 8 * CHUNK_PAGES, false, 1);
    configure(ACE_NEVER, 1);
    fail_arm(FAIL_MINCORE, 1, true, 0);
    struct mine mine = take_keyed(counts_now().fresh_pages + 1, true, 2);
    fail_disarm();
    CHECK_EQ(page_chunk(mine.first)->zone, ZONE_HUGE);
}

TEST(without_an_answer_all_is_touched) { IN_CHILD(ask_without_answer); }

static void ask_behind_a_gap(void) {
    leave_nothing_dirty();
    take_keyed(counts_now().fresh_pages + 192 * CHUNK_PAGES, false, 1);
    const struct mine behind = take_behind_a_gap(128 * CHUNK_PAGES, false);
    span_give(behind.first);
    configure(ACE_NEVER, 1);
    const uint64_t looks = calls_of(OS_CALL_MINCORE);
    const struct mine mine = take_keyed(counts_now().fresh_pages + 1, true, 2);
    CHECK(calls_of(OS_CALL_MINCORE) > looks);
    if (os_page_bytes() == 4096) CHECK_EQ(page_chunk(mine.first)->zone, ZONE_PLAIN);
}

TEST(what_lies_before_a_gap_counts) { IN_CHILD(ask_behind_a_gap); }
