/* huge_stretch_test.c - many chunks that are broken, treated in stretches, and chunks that are mended while they are in use. In
 * children: what was broken stays in the process.
 *
 * Planted defects it was seen to catch:
 *   no stretches, or for ever                    many_are_treated_in_stretches
 *   a stretch lies over a gap                    a_stretch_ends_at_a_gap
 *   plain memory of a stretch counts as broken   plain_memory_of_a_stretch_stays_whole
 *   what is free in part is mended, or what is not resident, or of which the kernel tells nothing   what_is_full_again_mends
 *   every one is mended, however many there are  many_are_mended_from_one_to_the_next, at_the_end_nothing_is_next
 *   whoever mends too late asks again, or loses count   what_another_mended_is_not_mended_again
 */
#include "base/bits.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "huge.h"

enum { STRETCH_CHUNKS = 32, LONE_CHUNKS = 64 };

/* Beyond some number whole stretches are treated at once: few mappings, few calls. */
static void break_many(void) {
    enum { CHUNKS = 400 };
    leave_nothing_dirty();
    struct mine mine = take_fresh(ZONE_HUGE, (CHUNKS + 1) * CHUNK_PAGES, 1);
    uint32_t first = mine.first + CHUNK_PAGES - mine.first % CHUNK_PAGES;
    uint64_t calls = calls_of(OS_CALL_MADVISE_HUGE);
    for (uint32_t i = 0; i < CHUNKS - 1; i++) {
        purge_part(first + i * CHUNK_PAGES + i % CHUNK_PAGES);
        CHECK_AT(page_chunk(first + i * CHUNK_PAGES)->broken && page_chunk(first + i * CHUNK_PAGES)->no_huge, i);
    }
    uint64_t made = calls_of(OS_CALL_MADVISE_HUGE) - calls, breaks = CHUNKS - 1;
    CHECK(made >= breaks + LONE_CHUNKS && made <= breaks + LONE_CHUNKS + CHUNKS / STRETCH_CHUNKS + 2);
    if (shows_advice()) check_advice(first + (CHUNKS - 2) * CHUNK_PAGES, "nh");
    check_books();
    /* The whole is mended by one call for each run. */
    span_give(mine.first);
    calls = calls_of(OS_CALL_MADVISE_HUGE);
    uint32_t again = span_take((CHUNKS + 1) * CHUNK_PAGES, 1, ACE_DENSE);
    CHECK_EQ(again, mine.first);
    CHECK(calls_of(OS_CALL_MADVISE_HUGE) - calls <= 3);
    for (uint32_t i = 0; i < CHUNKS - 1; i++)
        CHECK_AT(!page_chunk(first + i * CHUNK_PAGES)->broken && !page_chunk(first + i * CHUNK_PAGES)->no_huge, i);
    if (shows_advice()) check_advice(first + 5 * CHUNK_PAGES, "hg");
    calls = calls_of(OS_CALL_MADVISE_HUGE);
    purge_part(first); /* and lone chunks are treated as such again */
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls + 2);
    CHECK(!page_chunk(first + CHUNK_PAGES)->no_huge);
    check_books();
}

TEST(many_are_treated_in_stretches) { IN_CHILD(break_many); }

/* Whatever spans it is: once all is in use, and nearly all resident. */
static void mend_what_is_full(void) {
    leave_nothing_dirty();
    struct mine mine = take_fresh(ZONE_HUGE, 6 * CHUNK_PAGES, 1);
    const uint32_t end = mine.first + mine.pages, chunk = mine.first + 2 * CHUNK_PAGES - mine.first % CHUNK_PAGES;
    memset(page_address(chunk), 1, CHUNK_PAGES * PAGE_BYTES);
    CHECK(!mend(chunk)); /* nothing is broken */
    span_purging_lock();
    CHECK(span_purge_part(page_address(chunk + 3), 3 * PAGE_BYTES)); /* more than a sixteenth */
    span_purging_unlock();
    CHECK(mend(chunk)); /* in vain */
    check_broken(chunk, true);
    fail_arm(FAIL_MINCORE, 1, true, ENOSYS);
    CHECK(mend(chunk)); /* and where the kernel does not tell */
    fail_disarm();
    check_broken(chunk, true);
    memset(page_address(chunk + 3), 1, PAGE_BYTES);
    CHECK(mend(chunk));
    check_broken(chunk, false);
    CHECK(!mend(chunk));
    memset(page_address(chunk), 1, CHUNK_PAGES * PAGE_BYTES);
    purge_part(chunk);
    span_trim(mine.first, chunk + CHUNK_PAGES - 1 - mine.first);
    CHECK(!mend(chunk)); /* its last page is free */
    check_broken(chunk, true);
    const struct mine other = take_keyed(end - chunk - CHUNK_PAGES + 1, true, 2);
    CHECK_EQ(other.first, chunk + CHUNK_PAGES - 1);
    CHECK(mend(chunk));
    check_broken(chunk, false);
    check_books();
}

TEST(what_is_full_again_mends) { IN_CHILD(mend_what_is_full); }

static uint32_t mended_meanwhile;
static void mend_meanwhile(void) { span_mend(mended_meanwhile); }

/* While the kernel is asked how much is resident another thread comes to the same chunk. */
static void mend_too(void) {
    leave_nothing_dirty();
    const struct mine mine = take_fresh(ZONE_HUGE, 6 * CHUNK_PAGES, 1);
    mended_meanwhile = mine.first + 2 * CHUNK_PAGES - mine.first % CHUNK_PAGES;
    purge_part(mended_meanwhile);
    check_broken(mended_meanwhile, true);
    memset(page_address(mended_meanwhile), 1, CHUNK_PAGES * PAGE_BYTES);
    const uint64_t calls = calls_of(OS_CALL_MADVISE_HUGE);
    fail_interrupt(1, mend_meanwhile);
    CHECK(mend(mended_meanwhile));
    fail_interrupt(0, NULL);
    CHECK_EQ(calls_of(OS_CALL_MADVISE_HUGE), calls + 1);
    check_broken(mended_meanwhile, false);
    CHECK(!mend(mended_meanwhile)); /* nothing is broken */
}

TEST(what_another_mended_is_not_mended_again) { IN_CHILD(mend_too); }

/* From the start of a stretch on, in both directions. */
static void mend_many(void) {
    enum { CHUNKS = LONE_CHUNKS + 4 * STRETCH_CHUNKS, STRETCH_PAGES = STRETCH_CHUNKS * CHUNK_PAGES };
    leave_nothing_dirty();
    const struct mine mine = take_fresh(ZONE_HUGE, CHUNKS * CHUNK_PAGES, 1);
    for (uint32_t at = mine.first; at < mine.first + mine.pages; at += CHUNK_PAGES) purge_part(at);
    const uint32_t start = (mine.first + mine.pages) / STRETCH_PAGES * STRETCH_PAGES - STRETCH_PAGES;
    CHECK(start > mine.first + LONE_CHUNKS * CHUNK_PAGES);
    memset(page_address(start - 2 * CHUNK_PAGES), 1, 5 * CHUNK_PAGES * PAGE_BYTES);
    static const int steps[] = {1, -1, 0, 2, 1, 2, -2, -1, -2};
    static const bool mends[] = {false, false, true, false, true, true, false, true, true};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        const uint32_t chunk = (uint32_t)((int64_t)start + steps[i] * (int64_t)CHUNK_PAGES);
        CHECK_AT(mend(chunk) == mends[i], i);
        check_broken(chunk, !mends[i]);
    }
    check_broken(start + 3 * CHUNK_PAGES, true);
    check_books();
}

TEST(many_are_mended_from_one_to_the_next) { IN_CHILD(mend_many); }

static bool is_advised(size_t page) {
    const char *advice = advice_of((uintptr_t)page_address(page));
    return advice != NULL && strcmp(advice, "nh") == 0;
}

/* Whether the kernel was told nothing of PAGE since it refused so much, and it was ADVISED or not: whether something is mapped there
 * or not. */
static void check_untold(size_t page, uint64_t refused, bool advised) {
    CHECK(atomic_load(&os_counters.refusals[OS_CALL_MADVISE_HUGE]) == refused && is_advised(page) == advised);
}

static void break_many_behind_a_gap(void) {
    enum { CHUNKS = 2 * LONE_CHUNKS };
    leave_nothing_dirty();
    configure(ACE_NEVER, 0);
    const struct mine mine = take_behind_a_gap(CHUNKS * CHUNK_PAGES, true);
    const uint32_t before = mine.first % (STRETCH_CHUNKS * CHUNK_PAGES); /* as many pages of the gap are of the same stretch */
    const uint64_t refused = atomic_load(&os_counters.refusals[OS_CALL_MADVISE_HUGE]);
    const bool advised = is_advised(mine.first - CHUNK_PAGES);
    CHECK(before != 0);
    for (uint32_t i = CHUNKS; i-- > 0;) purge_part(mine.first + i * CHUNK_PAGES + 1);
    CHECK(page_chunk(mine.first)->no_huge);
    check_untold(mine.first - CHUNK_PAGES, refused, advised);
    for (uint32_t page = mine.first - before; page < mine.first; page += CHUNK_PAGES)
        CHECK_AT(!page_chunk(page)->given && !page_chunk(page)->no_huge, page);
    CHECK(!mend(mine.first)); /* although all of it is in use: it has no neighbour but one that is broken */
    check_broken(mine.first, true);
}

/* Until the memory ends with MINE, in the middle of a stretch. */
static void extend_to_the_end(struct mine *mine) {
    do {
        CHECK(span_extend(mine->first, (uint32_t)span_end_page() + CHUNK_PAGES - mine->first));
        CHECK(span_extend(mine->first, mine->pages = (uint32_t)span_end_page() - mine->first));
    } while (span_end_page() % (STRETCH_CHUNKS * CHUNK_PAGES) <= CHUNK_PAGES);
}

static void break_many_before_a_gap(void) {
    enum { CHUNKS = 2 * LONE_CHUNKS };
    leave_nothing_dirty();
    struct mine mine = take_fresh(ZONE_HUGE, CHUNKS * CHUNK_PAGES, 1);
    extend_to_the_end(&mine);
    const uint32_t end = mine.first + mine.pages;
    take_behind_a_gap(CHUNKS * CHUNK_PAGES, true);
    purge_part(mine.first);
    const uint64_t refused = atomic_load(&os_counters.refusals[OS_CALL_MADVISE_HUGE]);
    const bool advised = is_advised(end);
    for (uint32_t page = mine.first; page < end; page += CHUNK_PAGES) purge_part(page);
    CHECK(page_chunk(end - CHUNK_PAGES)->no_huge && !page_chunk(end)->given);
    check_untold(end, refused, advised);
}

TEST(a_stretch_ends_at_a_gap) {
    IN_CHILD(break_many_behind_a_gap);
    IN_CHILD(break_many_before_a_gap);
}

static void mend_at_the_end(void) {
    enum { CHUNKS = 2 * LONE_CHUNKS };
    leave_nothing_dirty();
    struct mine mine = take_fresh(ZONE_HUGE, CHUNKS * CHUNK_PAGES, 1);
    extend_to_the_end(&mine);
    const uint32_t end = mine.first + mine.pages;
    for (uint32_t page = mine.first; page < end; page += CHUNK_PAGES) purge_part(page);
    CHECK(!mend(end - CHUNK_PAGES));
    check_broken(end - CHUNK_PAGES, true);
}

TEST(at_the_end_nothing_is_next) { IN_CHILD(mend_at_the_end); }

static void break_many_beside_plain_memory(void) {
    enum { CHUNKS = 2 * LONE_CHUNKS, STRETCH_PAGES = STRETCH_CHUNKS * CHUNK_PAGES };
    leave_nothing_dirty();
    const struct mine plain = take_fresh(ZONE_PLAIN, max_size(span_end_page(), 2 * STRETCH_PAGES), 1);
    do { /* until its end and what follows are of one stretch */
        CHECK(span_extend(plain.first, (uint32_t)span_end_page() + CHUNK_PAGES - plain.first));
        CHECK(span_extend(plain.first, (uint32_t)span_end_page() - plain.first));
    } while (span_end_page() % STRETCH_PAGES == 0 || span_end_page() % STRETCH_PAGES > STRETCH_PAGES / 2);
    configure(ACE_NEVER, 0);
    const struct mine huge = take_keyed(CHUNKS * CHUNK_PAGES, true, 2);
    CHECK_EQ(huge.first, plain.first + span_at(plain.first)->pages);
    for (uint32_t i = CHUNKS; i-- > 0;) purge_part(huge.first + i * CHUNK_PAGES + 1);
    CHECK(page_chunk(huge.first + CHUNK_PAGES)->no_huge);
    const uint32_t stretch = huge.first - huge.first % STRETCH_PAGES;
    CHECK(stretch > plain.first && stretch < huge.first);
    for (uint32_t page = stretch; page < huge.first; page += CHUNK_PAGES) CHECK_AT(!page_chunk(page)->no_huge, page);
    CHECK(!mend(stretch)); /* although all of it is in use */
    CHECK(!mend(huge.first) && page_chunk(huge.first)->no_huge); /* plain memory is none that huge pages are asked for in */
    check_books();
}

TEST(plain_memory_of_a_stretch_stays_whole) { IN_CHILD(break_many_beside_plain_memory); }
