/* collapse_test.c - huge pages for what came before there were any: which chunks are brought into one, and when. In children: what was
 * taken stays in the process.
 *
 * Planted defects it was seen to catch:
 *   what is hardly resident is collapsed           what_is_hardly_touched_stays
 *   so is a chunk of which a part is free          what_is_not_all_in_use_stays
 *   so is one that several mappings meet in        what_lies_in_several_mappings_stays
 *   what the kernel refused counts as brought in   what_was_refused_brings_nothing_in
 *   what it takes as advice alone does not         what_is_only_advised_counts_as_brought_in
 *   before any memory has huge pages               before_any_memory_has_them_nothing_is_looked_at
 *   a chunk is looked at with every take           one_is_looked_at_for_each_growth
 *   what was brought in does not count             what_was_never_touched_waits_for_more_use
 *   a system without huge pages gets some          where_the_system_wants_none
 *   nobody asks whether it wants any               where_the_system_wants_none
 *   the kernel is not asked                        the_kernel_is_told_and_asked
 *   nobody waits for who returns memory            the_kernel_is_told_and_asked
 *   who wants none any more gets some              whoever_wants_none_any_more_gets_none
 *   a child copies what it shares                  what_a_child_shares_stays
 *   what is collapsed shows nothing                what_is_collapsed_is_looked_at
 *   a witness that nobody looked at is collapsed   a_witness_is_collapsed_once_it_was_seen
 *   one that is collapsed stays a witness          a_witness_is_collapsed_once_it_was_seen
 *   where nobody looks any more it waits for ever  a_witness_is_collapsed_where_nobody_looks_any_more
 */
#include "child.h"
#include "faults/fail_calls.h"
#include "huge.h"
#include "span/pages.h"

/* CHUNKS chunks of fresh memory without huge pages, all in use; TOUCHED_BYTES of each are touched. */
static uint32_t take_plain(uint32_t chunks, size_t touched_bytes) {
    configure(ACE_NEVER, UINT64_MAX);
    const size_t end = span_end_page(); /* as the test began: what lies before is the parent's, too */
    uint32_t first;
    for (;;) {
        CHECK((first = span_take(chunks * CHUNK_PAGES, CHUNK_PAGES, ACE_SPARSE)) != 0);
        if (first >= end) break;
        memset(page_address(first), 1, chunks * CHUNK_PAGES * PAGE_BYTES); /* a program that touches what it takes */
    }
    CHECK_EQ(page_chunk(first)->zone, ZONE_PLAIN);
    for (uint32_t i = 0; i < chunks; i++) memset(page_address(first + i * CHUNK_PAGES), (int)i + 1, touched_bytes);
    return first;
}

static bool holds(uint32_t first, uint32_t chunks, size_t touched_bytes) {
    bool all = true;
    for (uint32_t i = 0; i < chunks; i++) {
        const unsigned char *bytes = page_address(first + i * CHUNK_PAGES);
        all &= bytes[0] == i + 1 && memcmp(bytes, bytes + 1, touched_bytes - 1) == 0;
        all &= block_is_zero(bytes + touched_bytes, CHUNK_PAGES * PAGE_BYTES - touched_bytes);
    }
    return all;
}

static uint32_t huge_of(uint32_t first, uint32_t chunks) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < chunks; i++) count += page_chunk(first + i * CHUNK_PAGES)->zone == ZONE_HUGE;
    return count;
}

/* Much more is in use from now on, TIMES times, and some memory has huge pages. */
static void grow(int times) {
    configure(ACE_NEVER, 0);
    if (counts_now().huge_pages == 0) CHECK(span_take(counts_now().fresh_pages + 1, 1, ACE_DENSE) != 0); /* of nothing that there was */
    for (int i = 0; i < times; i++) CHECK(span_take(counts_now().used_pages / 16 + 1, 1, ACE_DENSE) != 0);
}

static void need_collapses(void) {
    if (!os_collapses()) SKIP("the system wants no huge pages");
}

static void collapse_all(void) {
    need_collapses();
    enum { CHUNKS = 3 };
    const size_t bytes = CHUNK_PAGES * PAGE_BYTES;
    const uint32_t first = take_plain(CHUNKS, bytes), end = (uint32_t)span_end_page() / CHUNK_PAGES;
    CHECK_EQ(huge_of(first, CHUNKS), 0);
    grow(20 + (int)end);
    CHECK_EQ(huge_of(first, CHUNKS), CHUNKS);
    CHECK(holds(first, CHUNKS, bytes));
    if (shows_advice())
        for (uint32_t i = 0; i < CHUNKS; i++) check_advice(first + i * CHUNK_PAGES, "hg");
    check_books();
    span_trim(first, CHUNK_PAGES + 5); /* and is given back like other memory with huge pages */
    purge_all();
    check_broken(first + CHUNK_PAGES, true);
    span_give(first);
    check_books();
}

TEST(what_came_first_gets_huge_pages) { IN_CHILD(collapse_all); }

static void collapse_none(void) {
    need_collapses();
    if (os_page_bytes() > 4096) OMIT("nothing of such pages is small");
    enum { CHUNKS = 3 };
    const size_t bytes = CHUNK_PAGES * PAGE_BYTES / 4;
    const uint32_t first = take_plain(CHUNKS, bytes);
    grow(40);
    CHECK_EQ(huge_of(first, CHUNKS), 0);
    CHECK(holds(first, CHUNKS, bytes));
    check_books();
}

TEST(what_is_hardly_touched_stays) { IN_CHILD(collapse_none); }

static void collapse_parts(void) {
    need_collapses();
    const uint32_t first = take_plain(4, CHUNK_PAGES * PAGE_BYTES), hole = first + 2 * CHUNK_PAGES - 1;
    span_trim(first, 2 * CHUNK_PAGES - 1);
    CHECK_EQ(span_take(2 * CHUNK_PAGES, CHUNK_PAGES, ACE_SPARSE), hole + 1); /* a hole of a page, which nothing fills */
    grow(40);
    CHECK_EQ(span_at(hole)->kind, SPAN_FREE);
    CHECK_EQ(page_chunk(first)->zone, ZONE_HUGE);
    CHECK_EQ(page_chunk(hole)->zone, ZONE_PLAIN);
    CHECK_EQ(page_chunk(hole + 1)->zone, ZONE_HUGE);
    check_books();
}

TEST(what_is_not_all_in_use_stays) { IN_CHILD(collapse_parts); }

/* Half of each is touched: the other half is brought in, and may be an eighth of what is in use. */
static void collapse_half(void) {
    need_collapses();
    if (os_page_bytes() > 4096) OMIT("nothing of such pages is small");
    enum { CHUNKS = 8 };
    const size_t bytes = CHUNK_PAGES * PAGE_BYTES / 2;
    const uint32_t first = take_plain(CHUNKS, bytes);
    for (int i = 0; i < 80; i++) {
        grow(1);
        const uint64_t brought = huge_of(first, CHUNKS) * (CHUNK_PAGES / 2);
        CHECK_AT(brought <= counts_now().used_pages / 8, i);
    }
    grow(20);
    CHECK_EQ(huge_of(first, CHUNKS), CHUNKS); /* by now there is enough */
    CHECK(holds(first, CHUNKS, bytes));
    check_books();
}

TEST(what_was_never_touched_waits_for_more_use) { IN_CHILD(collapse_half); }

static void look_at_none(void) {
    need_collapses();
    take_plain(3, CHUNK_PAGES * PAGE_BYTES);
    configure(ACE_NEVER, 0); /* none is wanted so far of what is taken */
    const uint64_t looks = calls_of(OS_CALL_MINCORE);
    for (int i = 0; i < 40; i++) CHECK(span_take(counts_now().used_pages / 16 + 1, 1, ACE_SPARSE) != 0);
    CHECK_EQ(calls_of(OS_CALL_MINCORE), looks);
}

TEST(before_any_memory_has_them_nothing_is_looked_at) { IN_CHILD(look_at_none); }

static void look_once(void) {
    need_collapses();
    take_plain(40, CHUNK_PAGES * PAGE_BYTES / 4);
    grow(1);
    for (int i = 0; i < 20; i++) {
        grow(1);
        CHECK(span_take(1, 1, ACE_SPARSE) != 0);
        const uint64_t looks = calls_of(OS_CALL_MINCORE);
        for (int k = 0; k < 10; k++) CHECK(span_take(1, 1, ACE_SPARSE) != 0);
        CHECK_EQ(calls_of(OS_CALL_MINCORE), looks);
        CHECK(span_take(counts_now().used_pages / 16, 1, ACE_SPARSE) != 0 && span_take(1, 1, ACE_SPARSE) != 0);
        CHECK_EQ(calls_of(OS_CALL_MINCORE), looks + 1);
    }
}

TEST(one_is_looked_at_for_each_growth) { IN_CHILD(look_once); }

static void take_a_little_more(void) { CHECK(span_take(counts_now().used_pages / 32 + 1, 1, ACE_SPARSE) != 0); }

/* A chunk to be collapsed next, when a little more is taken; no other memory comes meanwhile. */
static uint32_t take_the_next(void) {
    const uint32_t first = take_plain(1, CHUNK_PAGES * PAGE_BYTES), end = (uint32_t)span_end_page() / CHUNK_PAGES;
    span_give(take_plain(16 * end, PAGE_BYTES)); /* what is taken below is there */
    configure(ACE_NEVER, 0);
    CHECK_EQ(page_chunk(span_take(counts_now().fresh_pages + 1, 1, ACE_DENSE))->zone, ZONE_HUGE);
    return first;
}

/* The calls by which one chunk is collapsed. */
static void collapse_one(void) {
    need_collapses();
    const uint32_t first = take_the_next();
    uint64_t calls = calls_of(OS_CALL_MADVISE_HUGE);
    const uint64_t fresh = counts_now().fresh_pages;
    span_purging_lock(); /* somebody returns memory: it waits */
    for (int i = 0; i < 4; i++) take_a_little_more();
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls);
    span_purging_unlock();
    for (int i = 0; i < 16 && page_chunk(first)->zone == ZONE_PLAIN; i++) {
        calls = calls_of(OS_CALL_MADVISE_HUGE);
        take_a_little_more();
    }
    CHECK_EQ(page_chunk(first)->zone, ZONE_HUGE);
    CHECK_EQ(counts_now().fresh_pages, fresh);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls + 2);
    check_books();
}

TEST(the_kernel_is_told_and_asked) { IN_CHILD(collapse_one); }

static void want_none(void) {
    need_collapses();
    enum { CHUNKS = 3 };
    const uint32_t first = take_plain(CHUNKS, CHUNK_PAGES * PAGE_BYTES);
    configure(ACE_NEVER, 0);
    CHECK(span_take(counts_now().fresh_pages + 1, 1, ACE_DENSE) != 0);
    const uint32_t before = huge_of(first, CHUNKS);
    configure(ACE_NEVER, UINT64_MAX);
    for (int i = 0; i < 40; i++) CHECK(span_take(counts_now().used_pages / 16 + 1, 1, ACE_SPARSE) != 0);
    CHECK_EQ(huge_of(first, CHUNKS), before);
    CHECK(before < CHUNKS);
}

TEST(whoever_wants_none_any_more_gets_none) { IN_CHILD(want_none); }

static void grow_in_child(void) {
    span_purging_reset(); /* as in the child of a fork */
    const uint32_t end = (uint32_t)span_end_page();
    const uint64_t asked = counts_now().huge_pages;
    uint64_t before = 0, after = 0;
    for (uint32_t page = CHUNK_PAGES; page < end; page += CHUNK_PAGES) before += page_chunk(page)->zone == ZONE_HUGE;
    const uint32_t own = take_plain(2, CHUNK_PAGES * PAGE_BYTES);
    grow(60);
    for (uint32_t page = CHUNK_PAGES; page < end; page += CHUNK_PAGES) after += page_chunk(page)->zone == ZONE_HUGE;
    CHECK_EQ(after, before);
    CHECK_EQ(huge_of(own, 2), 2); /* what it took itself is its own */
    CHECK(counts_now().huge_pages > asked);
}

static void share_with_child(void) {
    need_collapses();
    take_plain(6, CHUNK_PAGES * PAGE_BYTES);
    grow_in_child();
}

TEST(what_a_child_shares_stays) { IN_CHILD(share_with_child); }

/* What was collapsed was touched, and goes on to show that. */
static void show_what_is_collapsed(void) {
    need_collapses();
    if (os_page_bytes() > 4096) OMIT("nothing of such pages is small");
    enum { CHUNKS = 12 };
    const uint32_t first = take_plain(CHUNKS, CHUNK_PAGES * PAGE_BYTES);
    grow(40);
    CHECK_EQ(huge_of(first, CHUNKS), CHUNKS);
    take_plain(1, PAGE_BYTES / 16);
    const uint64_t looks = calls_of(OS_CALL_MINCORE);
    configure(ACE_NEVER, 1);
    CHECK(span_take(CHUNK_PAGES, 1, ACE_DENSE) != 0);
    CHECK(calls_of(OS_CALL_MINCORE) >= looks + 2); /* some of both are looked at */
}

TEST(what_is_collapsed_is_looked_at) { IN_CHILD(show_what_is_collapsed); }

static void grow_unseen(int times) {
    for (int i = 0; i < times; i++) CHECK(span_take(counts_now().used_pages / 32 + 1, 1, ACE_GROWN) != 0);
}

static bool nobody_looks; /* any more: all may have huge pages */

/* All was touched, so that what comes then has huge pages, but for the witness. */
static void collapse_a_witness(void) {
    need_collapses();
    if (os_page_bytes() > 4096) OMIT("nothing of such pages is small");
    leave_nothing_dirty();
    take_touched(counts_now().fresh_pages + 8 * CHUNK_PAGES);
    configure(ACE_NEVER, 1);
    const struct mine mine = take_keyed(counts_now().fresh_pages + 1, true, 2);
    const uint32_t witness = (uint32_t)find_witness(mine);
    CHECK(witness < mine.first + mine.pages);
    CHECK_EQ(page_chunk(witness)->used, UINT32_MAX);
    memset(page_address(witness), 1, CHUNK_PAGES * PAGE_BYTES);
    grow_unseen(64);
    CHECK(page_chunk(witness)->witness);
    if (nobody_looks) configure(ACE_NEVER, 0);
    CHECK(span_take(1, 1, ACE_DENSE) != 0); /* now it is looked at, otherwise */
    CHECK(page_chunk(witness)->witness);
    grow_unseen(64);
    CHECK(!page_chunk(witness)->witness);
    check_broken(witness, false);
    CHECK(holds(witness, 1, CHUNK_PAGES * PAGE_BYTES));
    purge_part(witness); /* like other memory with huge pages */
    check_broken(witness, true);
    check_books();
}

TEST(a_witness_is_collapsed_once_it_was_seen) { IN_CHILD(collapse_a_witness); }

TEST(a_witness_is_collapsed_where_nobody_looks_any_more) {
    nobody_looks = true;
    IN_CHILD(collapse_a_witness);
}

/* A kernel that takes no advice at all: what was to be collapsed is as it was. */
static void collapse_in_vain(void) {
    need_collapses();
    enum { CHUNKS = 3 };
    const uint32_t first = take_plain(CHUNKS, CHUNK_PAGES * PAGE_BYTES);
    fail_arm(FAIL_MADVISE, 1, true, EINVAL);
    grow(40);
    fail_disarm();
    CHECK(holds(first, CHUNKS, CHUNK_PAGES * PAGE_BYTES));
    span_give(first);
    purge_all();
    check_books();
}

TEST(a_kernel_that_takes_no_advice) { IN_CHILD(collapse_in_vain); }

static struct {
    uint64_t collapses, missing_bytes;
    bool nothing_before, all_before; /* each was told that nothing had been brought in so far, or all that lacked so far */
} told = {.nothing_before = true, .all_before = true};

static void note_collapse(const struct ace_decision *decision) {
    if (decision->reason != ACE_REASON_RESIDENT) return;
    told.collapses++;
    told.missing_bytes += decision->inputs[0];
    told.nothing_before &= decision->inputs[1] == decision->inputs[0];
    told.all_before &= decision->inputs[1] == told.missing_bytes;
}

static unsigned long refused_from; /* of the two calls that collapse a chunk */

/* Half of each is touched. All memory that is taken meanwhile was there. */
static void collapse_halves_in_vain(void) {
    need_collapses();
    if (os_page_bytes() > 4096) OMIT("nothing of such pages is small");
    enum { CHUNKS = 8 };
    const uint32_t first = take_plain(CHUNKS, CHUNK_PAGES * PAGE_BYTES / 2);
    configure(ACE_NEVER, 0);
    CHECK(span_take(counts_now().fresh_pages + 1, 1, ACE_DENSE) != 0);
    span_give(take_plain(8 * (uint32_t)span_end_page() / CHUNK_PAGES, PAGE_BYTES));
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .keeper = note_collapse});
    for (int i = 0; i < 60 && huge_of(first, CHUNKS) < CHUNKS; i++) {
        fail_arm(FAIL_MADVISE, refused_from, refused_from == 1, EINVAL);
        take_a_little_more();
    }
    fail_disarm();
    CHECK_AT(told.collapses > 1, told.collapses);
    CHECK(refused_from == 1 ? told.nothing_before : told.all_before);
    CHECK(holds(first, CHUNKS, CHUNK_PAGES * PAGE_BYTES / 2));
    check_books();
}

TEST(what_was_refused_brings_nothing_in) {
    refused_from = 1;
    IN_CHILD(collapse_halves_in_vain);
}

/* As before Linux 6.1: khugepaged brings the rest in, later. */
TEST(what_is_only_advised_counts_as_brought_in) {
    refused_from = 2;
    IN_CHILD(collapse_halves_in_vain);
}

/* A mapping begins within the second of three chunks, as far as is known. */
static void collapse_over_an_edge(void) {
    need_collapses();
    const uint32_t first = take_plain(3, CHUNK_PAGES * PAGE_BYTES);
    pages_mark_moved(first + CHUNK_PAGES + 3, CHUNK_PAGES - 3, true);
    grow(40);
    CHECK_EQ(page_chunk(first)->zone, ZONE_HUGE);
    CHECK_EQ(page_chunk(first + CHUNK_PAGES)->zone, ZONE_PLAIN);
    CHECK_EQ(page_chunk(first + 2 * CHUNK_PAGES)->zone, ZONE_HUGE);
    check_books();
}

TEST(what_lies_in_several_mappings_stays) { IN_CHILD(collapse_over_an_edge); }

/* Linux before 6.1 knows the first advice, not the second: khugepaged may do it later. */
static void collapse_by_an_old_kernel(void) {
    need_collapses();
    const uint32_t first = take_the_next();
    for (int i = 0; i < 16 && page_chunk(first)->zone == ZONE_PLAIN; i++) {
        fail_arm(FAIL_MADVISE, 2, false, EINVAL);
        take_a_little_more();
        CHECK_EQ(fail_failed(), page_chunk(first)->zone == ZONE_HUGE);
    }
    fail_disarm();
    CHECK_EQ(page_chunk(first)->zone, ZONE_HUGE);
    CHECK(holds(first, 1, CHUNK_PAGES * PAGE_BYTES));
    if (shows_advice()) check_advice(first, "hg");
    span_give(first);
    purge_all();
    check_books();
}

TEST(a_kernel_that_cannot_collapse) { IN_CHILD(collapse_by_an_old_kernel); }

/* Whether the system wants huge pages is read when it is needed first. */
static void collapse_without_setting(void) {
    enum { CHUNKS = 3 };
    const uint32_t first = take_plain(CHUNKS, CHUNK_PAGES * PAGE_BYTES);
    fail_arm(FAIL_OPEN, 1, true, ENOENT);
    grow(40);
    CHECK(fail_failed() > 0);
    fail_disarm();
    CHECK_EQ(huge_of(first, CHUNKS), 0);
    CHECK(!os_collapses());
}

TEST(where_the_system_wants_none) {
    CHECK(os_setting_wants_huge("always [madvise] never\n") && os_setting_wants_huge("[always] madvise never\n"));
    CHECK(!os_setting_wants_huge("always madvise [never]\n"));
    IN_CHILD(collapse_without_setting);
}
