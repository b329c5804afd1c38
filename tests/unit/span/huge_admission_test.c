/* huge_admission_test.c - which memory gets huge pages: what is in use must be enough, and touched, and the block not much larger. In
 * children: what was taken stays in the process.
 *
 * Planted defects it was seen to catch:
 *   untouched memory counts like touched         untouched_memory_gets_none
 *   every fresh memory is looked at              untouched_memory_gets_none
 *   who touched memory once is never asked again   who_touched_memory_is_asked_again
 *   what was free at a look is never looked at     what_was_free_then_counts_once_it_is_used
 *   one page that was not touched passes for all   a_few_pages_show_nothing
 *   a block of any size gets them                what_is_much_larger_than_all_else_gets_none
 *   a refusal counts as untouched                without_an_answer_all_is_touched
 *   what lies before a gap is not looked at      what_lies_before_a_gap_counts
 *   where a part begins with free memory it is not looked at   what_is_free_does_not_hide_the_rest
 *   one byte of a huge page passes for all of it, or nothing shows what is touched   who_touches_no_more_gets_no_more
 *   a witness is mended                          a_witness_stays_one
 *   where nothing shows what is touched all is, or nothing   what_was_seen_last_stands, at_first_nothing_shows
 *   any number for who touches half of what it takes, or for no block that grows   who_touches_half_gets_few
 *   each of two looks at once grants all there is   two_that_look_at_once_get_no_more_than_one
 *   plain memory counts against it, too          plain_memory_does_not_count_as_huge
 *   what fills waits for as much in use as the rest, comes in large portions, or bears witness   slabs_that_fill_come_first
 *   what fills has huge pages before much was touched, or clean plain memory after   slabs_that_fill_come_first
 *   without more memory the rest of the other zone stays unused   the_other_zone_is_better_than_none
 *   under a limit more is brought while there is some in the other zone   under_a_limit_what_is_there_comes_first
 */
#include "child.h"
#include "faults/fail_calls.h"
#include "huge.h"

#include <sys/resource.h>

static void count_what_is_used(void) {
    touch_memory();
    leave_nothing_dirty();
    take_touched(counts_now().fresh_pages);
    struct span_counts counts = counts_now();
    configure(ACE_NEVER, counts.used_pages + counts.fresh_pages + 2);
    struct mine few = take_keyed(counts.fresh_pages + 1, true, 1);
    CHECK_EQ(page_chunk(few.first)->zone, ZONE_PLAIN);
    memset(page_address(few.first), 1, few.pages * PAGE_BYTES);
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
    CHECK_EQ(page_chunk(take_keyed(1, true, 3).first)->zone, ZONE_PLAIN); /* looks again, since there is much more in use */
    looks = calls_of(OS_CALL_MINCORE);
    struct mine third = take_keyed(1 + CHUNK_PAGES, true, 3);
    CHECK_EQ(page_chunk(third.first)->zone, ZONE_PLAIN);
    CHECK_EQ(calls_of(OS_CALL_MINCORE), looks); /* too soon */
    memset(page_address(first.first), 1, first.pages * PAGE_BYTES);
    memset(page_address(second.first), 1, second.pages * PAGE_BYTES);
    const struct mine more = take_keyed(counts_now().used_pages / 4 + 1, false, 4); /* so that it is looked again */
    memset(page_address(more.first), 1, more.pages * PAGE_BYTES);
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
    CHECK(span_take(2 * counts_now().fresh_pages, 1, ACE_SPARSE) != 0);
    const struct mine mine = take_keyed(counts_now().fresh_pages + 1, true, 1);
    CHECK(calls_of(OS_CALL_MINCORE) > looks);
    CHECK_EQ(page_chunk(mine.first)->zone, ZONE_PLAIN);
}

TEST(who_touched_memory_is_asked_again) { IN_CHILD(ask_again); }

static uint32_t take_full(void) {
    const uint32_t first = span_take(8, 1, ACE_FULL);
    CHECK(first != 0);
    return first;
}

/* Hardly anything was touched at the first look. Then some of the plain memory that was free is filled, and more of it is left. Behind it
 * lies memory with huge pages, which shows nothing. */
static void fill_what_was_free(void) {
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    leave_nothing_dirty();
    const struct mine first = take_keyed(counts_now().fresh_pages + 8 * CHUNK_PAGES, false, 1); /* a word in each page */
    const struct mine spare = take_keyed(2 * first.pages, false, 2);
    span_give(spare.first);
    purge_all();
    configure(ACE_NEVER, 1);
    const uint32_t behind = take_full();
    CHECK(page_chunk(behind)->zone == ZONE_HUGE && behind > spare.first);
    CHECK_EQ(page_chunk(take_keyed(1, true, 3).first)->zone, ZONE_PLAIN);
    const struct mine filled = take_touched(first.pages);
    CHECK(filled.first >= spare.first && filled.first < spare.first + spare.pages);
    CHECK_EQ(page_chunk(take_keyed(1, true, 4).first)->zone, ZONE_HUGE);
    check_books();
}

TEST(what_was_free_then_counts_once_it_is_used) { IN_CHILD(fill_what_was_free); }

/* All was touched. What was taken since has huge pages, but for one page of the witness. */
static void leave_one_page_untouched(void) {
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    leave_nothing_dirty();
    const struct mine first = take_touched(counts_now().fresh_pages + 8 * CHUNK_PAGES);
    configure(ACE_NEVER, 1);
    const struct mine witness = take_keyed(1, true, 2);
    CHECK(page_chunk(witness.first)->witness);
    const uint32_t huge = span_take(first.pages, CHUNK_PAGES, ACE_DENSE);
    CHECK(huge != 0 && page_chunk(huge)->zone == ZONE_HUGE && !page_chunk(huge)->witness);
    CHECK_EQ(page_chunk(take_keyed(1, true, 3).first)->zone, ZONE_HUGE);
    check_books();
}

TEST(a_few_pages_show_nothing) { IN_CHILD(leave_one_page_untouched); }

/* Memory is taken five times, each time so much that it is looked again. The last of it. */
static struct mine take_five_times(bool touch) {
    struct mine mine = {0, 0, 0};
    leave_nothing_dirty();
    take_touched(counts_now().fresh_pages + 32 * CHUNK_PAGES);
    configure(ACE_NEVER, 1);
    for (uint64_t round = 0; round < 5; round++) {
        const struct span_counts now = counts_now(); /* more than there is, and by a half more in use */
        mine = take_keyed(now.fresh_pages - now.used_pages / 2 + 1, true, round); /* a word in each page */
        if (touch) memset(page_address(mine.first), 1, mine.pages * PAGE_BYTES);
    }
    check_books();
    return mine;
}

static void touch_no_more(void) {
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    CHECK_EQ(page_chunk(take_five_times(false).first)->zone, ZONE_PLAIN);
}

TEST(who_touches_no_more_gets_no_more) { IN_CHILD(touch_no_more); }

static void touch_all(void) { CHECK_EQ(page_chunk(take_five_times(true).first)->zone, ZONE_HUGE); }

TEST(who_touches_all_goes_on_to_get_them) { IN_CHILD(touch_all); }

static size_t huge_chunks(struct mine mine) {
    size_t count = 0;
    for (size_t page = mine.first; page < mine.first + mine.pages; page += CHUNK_PAGES)
        count += page_chunk(page)->zone == ZONE_HUGE && !page_chunk(page)->no_huge;
    return count;
}

/* Much memory of which half was touched: a quarter of that may have huge pages, *MOST chunks. */
static struct mine take_half_touched(size_t *most) {
    leave_nothing_dirty();
    configure(ACE_NEVER, 1);
    const struct mine mine = take_keyed(counts_now().fresh_pages + 64 * CHUNK_PAGES, false, 1); /* a word in each page */
    for (uint32_t chunk = 0; chunk < mine.pages / CHUNK_PAGES; chunk++) /* whichever are looked at */
        memset(page_address(mine.first + chunk * CHUNK_PAGES), 1, CHUNK_PAGES / 2 * PAGE_BYTES);
    *most = mine.pages / CHUNK_PAGES / 8;
    return mine;
}

/* What grows was filled so far. */
static void touch_half(void) {
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    size_t most, chunks = 0;
    const struct mine first = take_half_touched(&most);
    CHECK_EQ(page_chunk(take_keyed((most + 2) * CHUNK_PAGES, true, 2).first)->zone, ZONE_PLAIN);
    for (size_t i = 0; i < 2 * most; i++) chunks += huge_chunks(take_keyed(CHUNK_PAGES, true, 2));
    CHECK_AT(chunks >= most / 2 && chunks <= most + 1, chunks);
    const uint32_t pages = (uint32_t)counts_now().fresh_pages + 1, grown = span_move(first.first, first.pages, pages);
    CHECK(huge_chunks((struct mine){.first = grown, .pages = pages}) >= pages / CHUNK_PAGES - 3);
    check_books();
}

TEST(who_touches_half_gets_few) { IN_CHILD(touch_half); }

/* What serves instead, half of it dirty, has none. */
static void take_plain_instead(void) {
    enum { HALF = CHUNK_PAGES };
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    size_t most;
    take_half_touched(&most);
    const uint32_t first = span_take(4 * HALF, 1, ACE_SPARSE);
    for (size_t i = 0; i < 2 * most; i++) {
        span_trim(first, 3 * HALF);
        purge_all();
        span_trim(first, 2 * HALF);
        CHECK_EQ(span_take(2 * HALF, 1, ACE_DENSE), first + 2 * HALF);
        span_give(first + 2 * HALF);
        CHECK(span_extend(first, 4 * HALF));
    }
    CHECK(huge_chunks(take_keyed(2 * CHUNK_PAGES, true, 2)) != 0);
    check_books();
}

TEST(plain_memory_does_not_count_as_huge) { IN_CHILD(take_plain_instead); }

static size_t most_at_once, taken_meanwhile;

static void take_meanwhile(void) {
    for (size_t i = 0; i < most_at_once; i++) taken_meanwhile += huge_chunks(take_keyed(CHUNK_PAGES, true, 2));
}

/* While the kernel is asked what was touched another thread asks, too, and takes all that there is to take. */
static void look_at_once(void) {
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    take_half_touched(&most_at_once);
    fail_interrupt(1, take_meanwhile);
    size_t chunks = huge_chunks(take_keyed(CHUNK_PAGES, true, 2));
    fail_interrupt(0, NULL);
    CHECK(taken_meanwhile >= most_at_once / 2);
    for (size_t i = 0; i < most_at_once; i++) chunks += huge_chunks(take_keyed(CHUNK_PAGES, true, 2));
    CHECK_AT(chunks + taken_meanwhile <= most_at_once + 1, chunks);
    check_books();
}

TEST(two_that_look_at_once_get_no_more_than_one) { IN_CHILD(look_at_once); }

/* From half of what the rest waits for, if so much of it was touched. */
static void fill_early(void) {
    if (os_page_bytes() > 4096) OMIT("too few words for such pages");
    leave_nothing_dirty();
    const struct mine first = take_keyed(counts_now().fresh_pages + 16 * CHUNK_PAGES, false, 1); /* a word in each page */
    configure(ACE_NEVER, 3 * counts_now().used_pages / 2);
    CHECK_EQ(page_chunk(take_full())->zone, ZONE_PLAIN);
    const uint64_t looks = calls_of(OS_CALL_MINCORE);
    CHECK_EQ(page_chunk(take_full())->zone, ZONE_PLAIN);
    CHECK_EQ(calls_of(OS_CALL_MINCORE), looks); /* too soon */
    memset(page_address(first.first), 1, first.pages * PAGE_BYTES);
    const struct mine more = take_keyed(first.pages / 4, false, 2);
    const uint64_t fresh = counts_now().fresh_pages;
    const uint32_t full = take_full();
    CHECK_EQ(page_chunk(full)->zone, ZONE_HUGE);
    CHECK_EQ(counts_now().fresh_pages - fresh, 2 * CHUNK_PAGES);
    for (uint32_t chunk = 0; chunk < 2; chunk++) CHECK(!page_chunk(full + chunk * CHUNK_PAGES)->no_huge);
    CHECK_EQ(page_chunk(take_keyed(1, true, 3).first)->zone, ZONE_PLAIN); /* there is less in use than that waits for */
    CHECK_EQ(counts_now().fresh_pages - fresh, 2 * CHUNK_PAGES);          /* and plain memory was there */
    check_pages(&more, more.pages);
    check_books();
}

TEST(slabs_that_fill_come_first) { IN_CHILD(fill_early); }

static void take_without_more(void) {
    touch_memory();
    leave_nothing_dirty();
    const struct mine plain = take_keyed(counts_now().fresh_pages + 1, false, 1); /* and some is left beside it */
    configure(ACE_NEVER, 0);
    CHECK_EQ(page_chunk(take_full())->zone, ZONE_HUGE);
    fail_arm(FAIL_ANY, 1, true, 0);
    uint32_t first;
    while (page_chunk(first = take_full())->zone == ZONE_HUGE) {}
    CHECK(first > plain.first);
    while (span_take(1, 1, ACE_FULL) != 0) {}
    fail_disarm();
    check_books();
}

TEST(the_other_zone_is_better_than_none) { IN_CHILD(take_without_more); }

/* A limit counts all that is mapped, so nothing is brought while there is some. */
static void take_under_a_limit(void) {
    touch_memory();
    leave_nothing_dirty();
    take_keyed(counts_now().fresh_pages + 1, false, 1); /* and some is left beside it */
    configure(ACE_NEVER, 0);
    struct rlimit limit, before;
    CHECK_EQ(getrlimit(RLIMIT_DATA, &before), 0);
    limit = (struct rlimit){(rlim_t)1 << 40, before.rlim_max};
    if (setrlimit(RLIMIT_DATA, &limit) != 0 || !os_is_limited()) SKIP("no limit can be set");
    const uint64_t fresh = counts_now().fresh_pages;
    while (page_chunk(take_full())->zone == ZONE_HUGE) CHECK_EQ(counts_now().fresh_pages, fresh);
    CHECK_EQ(counts_now().fresh_pages, fresh);
    CHECK_EQ(setrlimit(RLIMIT_DATA, &before), 0);
    if (os_is_limited()) SKIP("there is a limit already");
    CHECK_EQ(page_chunk(take_full())->zone, ZONE_HUGE);
    check_books();
}

TEST(under_a_limit_what_is_there_comes_first) { IN_CHILD(take_under_a_limit); }

/* Whoever uses it, and whatever was returned of it. */
static void keep_a_witness(void) {
    const struct mine mine = take_five_times(true);
    const size_t witness = find_witness(mine), end = mine.first + mine.pages;
    CHECK(witness < end && page_chunk(witness)->no_huge);
    CHECK(find_witness((struct mine){.first = (uint32_t)witness + CHUNK_PAGES, .pages = (uint32_t)(end - witness) - CHUNK_PAGES}) >= end);
    span_give(mine.first);
    purge_all();
    const struct mine again = take_keyed(mine.pages, true, 3);
    CHECK(again.first <= witness && witness < again.first + again.pages);
    memset(page_address(again.first), 1, again.pages * PAGE_BYTES);
    span_mend((uint32_t)witness);
    CHECK(page_chunk(witness)->witness && page_chunk(witness)->no_huge);
    check_books();
}

TEST(a_witness_stays_one) { IN_CHILD(keep_a_witness); }

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

/* The memory is looked at in sixteen parts, each of which begins with what is free. */
static void ask_where_parts_begin_free(void) {
    enum { PARTS = 16, SPANS = 128 };
    uint32_t spans[SPANS];
    leave_nothing_dirty();
    for (size_t i = 0; i < SPANS; i++) spans[i] = span_take(CHUNK_PAGES, 1, ACE_SPARSE);
    const size_t chunks = span_end_page() / CHUNK_PAGES;
    for (size_t i = 0; i < SPANS; i++) {
        bool begins = false;
        for (size_t part = 0; part < PARTS; part++) {
            const size_t first = chunks * part / PARTS;
            begins = begins || spans[i] / CHUNK_PAGES == first || (spans[i] + CHUNK_PAGES - 1) / CHUNK_PAGES == first;
        }
        if (begins) span_give(spans[i]);
    }
    configure(ACE_NEVER, 1);
    CHECK_EQ(page_chunk(take_keyed(counts_now().fresh_pages + 1, true, 2).first)->zone, ZONE_PLAIN);
}

TEST(what_is_free_does_not_hide_the_rest) { IN_CHILD(ask_where_parts_begin_free); }

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

/* What came since the last look was given back, and old memory is used instead: nothing shows whether it is touched. */
static void ask_where_nothing_shows(bool touched) {
    if (!touched && os_page_bytes() > 4096) OMIT("too few words for such pages");
    touch_memory();
    leave_nothing_dirty();
    const uint32_t pages = (uint32_t)counts_now().fresh_pages + 8 * CHUNK_PAGES;
    struct mine spare = take_keyed(2 * pages, false, 1), used = take_keyed(4 * pages, false, 2); /* a word in each page */
    if (touched) memset(page_address(used.first), 1, used.pages * PAGE_BYTES);
    span_give(spare.first);
    configure(ACE_NEVER, 1);
    const enum span_zone zone = touched ? ZONE_HUGE : ZONE_PLAIN;
    const struct mine since = take_keyed(3 * pages, true, 3);
    CHECK_EQ(page_chunk(since.first)->zone, zone);
    span_give(since.first);
    CHECK_EQ(take_keyed(2 * pages, false, 4).first, spare.first);
    const uint64_t looks = calls_of(OS_CALL_MINCORE);
    const struct mine last = take_keyed(counts_now().fresh_pages + 1, true, 5);
    CHECK_EQ(page_chunk(last.first)->zone, zone);
    CHECK(calls_of(OS_CALL_MINCORE) <= looks + 1); /* one chunk: whether it is worth a huge page (collapse_test.c) */
}
static void ask_after_touching(void) { ask_where_nothing_shows(true); }
static void ask_after_touching_nothing(void) { ask_where_nothing_shows(false); }

TEST(what_was_seen_last_stands) {
    IN_CHILD(ask_after_touching);
    IN_CHILD(ask_after_touching_nothing);
}

/* Where all had huge pages until now. */
static void ask_for_the_first_time(void) {
    if (counts_now().fresh_pages != 0) OMIT("malloc was here before");
    configure(ACE_NEVER, 0);
    take_keyed(64 * CHUNK_PAGES, true, 1);
    configure(ACE_NEVER, 1);
    const struct mine mine = take_keyed(counts_now().fresh_pages + 1, true, 2);
    CHECK_EQ(page_chunk(mine.first)->zone, ZONE_HUGE);
}

TEST(at_first_nothing_shows) { IN_CHILD(ask_for_the_first_time); }
