/* extend_test.c - spans that grow where they lie: into what is free behind them, and into fresh memory; and what they return for that
 * below a hard limit, as whoever takes what is free there does.
 *
 * Planted defects it was seen to catch:
 *   what grows in place makes no room            a_span_that_grows_makes_room_below_a_limit
 *   what does not do is taken, and given back    what_does_not_do_is_left
 *   room is made for what cannot grow            no_room_is_made_in_vain
 *   room is made for what was taken, again       what_grows_needs_room_for_what_is_not_dirty
 *   what is dirty is told as growth              what_grows_needs_room_for_what_is_not_dirty
 *   it is made before, of what is taken          what_is_taken_needs_room_for_what_is_not_dirty
 */
#include "child.h"
#include "faults/fail_calls.h"
#include "spans.h"

/* A span that ends with the memory that there is so far. */
static struct mine take_last(void) {
    enum { LEAST = 250 };
    struct mine mine = take_keyed(span_end_page() + LEAST, false, 7);
    CHECK(span_extend(mine.first, mine.pages = (uint32_t)span_end_page() - mine.first));
    write_pages(&mine, 0);
    return mine;
}

/* The last span of all grows into fresh memory, again and again, and stays where it is. */
static void extend_at_the_end(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_last();
    uint32_t first = mine.first;
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

/* What is free behind it was returned, and does not do. */
static void extend_in_vain(void) {
    enum { FREE = 200 };
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_last();
    const uint32_t other = span_take(span_end_page(), 1, ACE_SPARSE), gap = other - FREE;
    CHECK_EQ(other, mine.first + mine.pages);
    span_trim(mine.first, mine.pages -= FREE);
    purge_all();
    const struct span_counts before = counts_now();
    CHECK(!span_extend(mine.first, mine.pages + FREE + 1));
    const struct span_counts after = counts_now();
    CHECK_EQ(after.retaken_pages, before.retaken_pages);
    CHECK_EQ(after.dirty_pages, before.dirty_pages);
    CHECK_EQ(after.used_pages_peak, before.used_pages_peak);
    CHECK(span_at(gap)->kind == SPAN_FREE && span_at(mine.first)->pages == mine.pages);
    check_books();
    CHECK(span_extend(mine.first, mine.pages + FREE)); /* it does for so much */
    CHECK_EQ(counts_now().retaken_pages, before.retaken_pages + FREE);
    check_zero(gap, FREE);
    check_pages(&mine, mine.pages);
    check_books();
}

TEST(what_does_not_do_is_left) { IN_CHILD(extend_in_vain); }

enum { PAGES = 100 };

/* The last span, or one behind which another BLOCKS: with four times PAGES free and dirty elsewhere, which count against a hard limit of
 * twice PAGES more than are in use. *BEFORE: what was counted then. */
static struct mine take_below_a_limit(bool blocks, struct span_counts *before) {
    configure(ACE_NEVER, UINT64_MAX);
    purge_all();
    const uint32_t free_later = span_take(4 * PAGES, 1, ACE_SPARSE);
    const struct mine mine = take_last();
    if (blocks) CHECK_EQ(span_take(span_end_page(), 1, ACE_SPARSE), mine.first + mine.pages);
    span_give(free_later);
    *before = counts_now();
    span_configure(&(struct span_settings){
        .decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX, .hard_pages = before->used_pages + 2 * PAGES});
    return mine;
}

/* Where a span cannot grow no room is made for it. */
static void extend_in_vain_below_a_limit(void) {
    struct span_counts before;
    const struct mine mine = take_below_a_limit(true, &before);
    CHECK(!span_extend(mine.first, mine.pages + PAGES));
    CHECK_EQ(counts_now().dirty_pages, before.dirty_pages);
    check_books();
}

TEST(no_room_is_made_in_vain) { IN_CHILD(extend_in_vain_below_a_limit); }

static void extend_below_a_limit(void) {
    struct span_counts before;
    const struct mine mine = take_below_a_limit(false, &before);
    CHECK(span_extend(mine.first, mine.pages + PAGES));
    CHECK(before.dirty_pages - counts_now().dirty_pages >= 3 * PAGES);
    check_books();
}

TEST(a_span_that_grows_makes_room_below_a_limit) { IN_CHILD(extend_below_a_limit); }

/* The kernel takes nothing back: what is free stays, and whoever grows goes on. */
static void extend_below_a_limit_in_vain(void) {
    struct span_counts before;
    const struct mine mine = take_below_a_limit(false, &before);
    fail_arm(FAIL_MADVISE, 1, true, EINVAL);
    CHECK(span_extend(mine.first, mine.pages + PAGES));
    CHECK(fail_failed() > 0);
    fail_disarm();
    CHECK_EQ(counts_now().returned_pages, before.returned_pages);
    check_books();
}

TEST(a_span_grows_where_no_room_can_be_made) { IN_CHILD(extend_below_a_limit_in_vain); }

/* The last span. Behind it are PAGES dirty pages, then PAGES clean ones; more dirty ones are elsewhere, and all that is held is as much as
 * a hard limit allows. *BEFORE: what was counted then. */
static struct mine take_at_the_limit(struct span_counts *before) {
    enum { ELSEWHERE = PAGES + SPAN_RESERVE_PAGES };
    configure(ACE_NEVER, UINT64_MAX);
    const uint32_t free_later = span_take(ELSEWHERE, 1, ACE_SPARSE);
    struct mine mine = take_last();
    span_trim(mine.first, mine.pages -= PAGES);
    purge_all();
    span_trim(mine.first, mine.pages -= PAGES);
    span_give(free_later);
    *before = counts_now();
    CHECK_EQ(before->dirty_pages, PAGES + ELSEWHERE);
    span_configure(&(struct span_settings){
        .decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX, .hard_pages = before->used_pages + PAGES + ELSEWHERE});
    return mine;
}

static size_t told_pages;
static void note(size_t pages) { told_pages += pages; }

/* What is dirty is held already, so it needs no room. */
static void extend_at_the_limit(void) {
    struct span_counts before;
    const struct mine mine = take_at_the_limit(&before);
    span_on_growth_beyond(0, note);
    CHECK(span_extend(mine.first, mine.pages + PAGES));
    CHECK_EQ(counts_now().returned_pages, before.returned_pages);
    CHECK_EQ(told_pages, 0);
    CHECK(span_extend(mine.first, mine.pages + 2 * PAGES));
    CHECK_EQ(counts_now().returned_pages, before.returned_pages + PAGES);
    CHECK_EQ(told_pages, PAGES);
    check_books();
}

TEST(what_grows_needs_room_for_what_is_not_dirty) { IN_CHILD(extend_at_the_limit); }

static void extend_into_both_at_the_limit(void) {
    struct span_counts before;
    const struct mine mine = take_at_the_limit(&before);
    CHECK(span_extend(mine.first, mine.pages + 2 * PAGES));
    CHECK_EQ(counts_now().returned_pages, before.returned_pages + PAGES);
    CHECK_EQ(counts_now().retaken_pages, before.retaken_pages + PAGES);
    check_books();
}

TEST(what_grows_into_dirty_pages_does_not_return_them) { IN_CHILD(extend_into_both_at_the_limit); }

static void take_both_at_the_limit(void) {
    struct span_counts before;
    const struct mine mine = take_at_the_limit(&before);
    CHECK_EQ(span_take(2 * PAGES, 1, ACE_SPARSE), mine.first + mine.pages);
    CHECK_EQ(counts_now().returned_pages, before.returned_pages + PAGES);
    CHECK_EQ(counts_now().retaken_pages, before.retaken_pages + PAGES);
    check_books();
}

TEST(what_is_taken_needs_room_for_what_is_not_dirty) { IN_CHILD(take_both_at_the_limit); }

static void extend_without_memory(void) {
    configure(ACE_NEVER, UINT64_MAX);
    struct mine mine = take_last();
    span_trim(mine.first, mine.pages -= 10);
    fail_arm(FAIL_ANY, 1, true, 0);
    CHECK(!span_extend(mine.first, mine.pages + 100000));
    CHECK_EQ(span_at(mine.first)->pages, mine.pages);
    CHECK(span_extend(mine.first, mine.pages + 10)); /* what is there can be had */
    fail_disarm();
    check_books();
}

TEST(without_memory_it_stays_as_long_as_it_was) { IN_CHILD(extend_without_memory); }
