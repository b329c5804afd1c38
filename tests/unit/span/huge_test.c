/* huge_test.c - what becomes of memory with and without huge pages: zones, what lies across their border, chunks that are broken and
 * mended, one by one and in stretches. What was asked for is read from /proc/self/smaps. Which memory gets them is
 * huge_admission_test.c. In children: what was broken stays in the process.
 *
 * Planted defects it was seen to catch:
 *   zones are merged                             zones_are_never_merged, others
 *   sparse spans are of huge pages               dense_spans_are_of_huge_pages_from_a_size_on
 *   plain memory is not advised                  dense_spans_are_of_huge_pages_from_a_size_on
 *   what is taken as a whole is not mended       a_part_breaks_and_the_whole_mends
 *   a chunk is broken again                      a_part_breaks_and_the_whole_mends
 *   the advice of who mends is the last          what_breaks_while_it_is_mended_stays_broken
 *   the start of a run is not broken, or a whole chunk at its end is   a_run_breaks_what_lies_at_its_ends
 *   no stretches, or for ever                    many_are_treated_in_stretches
 *   a stretch lies over a gap                    a_stretch_ends_at_a_gap
 *   plain memory of a stretch counts as broken   plain_memory_of_a_stretch_stays_whole
 *   what is free in part is mended, or what is not resident   what_is_full_again_mends
 *   every one is mended, however many there are  many_are_mended_from_one_to_the_next
 */
#include "base/bits.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "huge.h"
#include "kernel.h"

enum { STRETCH_CHUNKS = 32, LONE_CHUNKS = 64 };

/* ---- what the kernel was asked for --------------------------------------------------------------------------- */

static char smaps[1 << 22];

/* "hg" or "nh" where that was asked for the mapping at ADDRESS, "" where neither was; NULL without smaps. */
static const char *advice_of(uintptr_t address) {
    size_t length = 0;
    int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    for (ssize_t more; (more = read(file, smaps + length, sizeof smaps - 1 - length)) > 0;) length += (size_t)more;
    close(file);
    smaps[length] = '\0';
    uintptr_t from = 1, to = 0;
    for (char *line = smaps; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        char *rest;
        uintptr_t start = strtoul(line, &rest, 16);
        if (*rest == '-') {
            from = start;
            to = strtoul(rest + 1, NULL, 16);
        } else if (strncmp(line, "VmFlags:", 8) == 0 && address >= from && address < to) {
            char *end = strchr(line, '\n');
            if (end != NULL) *end = '\0';
            return strstr(line, " hg") ? "hg" : strstr(line, " nh") ? "nh" : "";
        }
    }
    return NULL;
}

/* Whether this kernel has huge pages, and says so. */
static bool shows_advice(void) {
    void *memory = os_map(MIB(4), MIB(2));
    const char *advice = os_avoid_huge(memory, MIB(4)) ? advice_of((uintptr_t)memory) : NULL;
    return advice != NULL && strcmp(advice, "nh") == 0;
}

static void check_advice(size_t page, const char *expected) {
    const char *advice = advice_of((uintptr_t)page_address(page));
    CHECK_AT(advice != NULL && strcmp(advice, expected) == 0, page);
}

/* PAGES pages of fresh memory of ZONE. Everything dirty was given back, and ever longer ones are asked for. */
static struct mine take_fresh(enum span_zone zone, size_t pages, uint64_t key) {
    configure(ACE_NEVER, zone == ZONE_HUGE ? 0 : UINT64_MAX);
    struct span_counts before = counts_now();
    for (;; before = counts_now()) {
        struct mine mine = take_keyed(pages, zone == ZONE_HUGE, key);
        if (counts_now().fresh_pages > before.fresh_pages) {
            CHECK_EQ(page_chunk(mine.first)->zone, zone);
            return mine;
        }
    }
}

/* ---- zones ----------------------------------------------------------------------------------------------------- */

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
        struct mine mine = take_keyed(before.fresh_pages + 1, cases[i].dense, i); /* of nothing that there was */
        struct span_counts after = counts_now();
        for (uint32_t page = mine.first; page < mine.first + mine.pages; page++)
            CHECK_AT(page_chunk(page)->zone == cases[i].zone, i);
        uint64_t fresh = after.fresh_pages - before.fresh_pages;
        CHECK_EQ(after.huge_pages - before.huge_pages, cases[i].zone == ZONE_HUGE ? fresh : 0);
        if (shown) check_advice(mine.first + mine.pages - 1, cases[i].zone == ZONE_HUGE ? "hg" : "nh"); /* the first chunk may be a witness */
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

    struct mine across = {span_take(10, 1, false), 10, 3};
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

static void purge_part(uint32_t page) {
    span_purging_lock();
    span_purge_part((char *)page_address(page) + os_page_bytes(), os_page_bytes());
    span_purging_unlock();
}

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
    uint32_t again = span_take(16 * CHUNK_PAGES, 1, true);
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
    span_give(mine.first);
    broken_meanwhile = chunk + 1;
    fail_interrupt(1, break_meanwhile);
    CHECK_EQ(span_take(8 * CHUNK_PAGES, 1, true), mine.first);
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
    uint32_t again = span_take((CHUNKS + 1) * CHUNK_PAGES, 1, true);
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

/* Whether the kernel was asked how much is resident. */
static bool mend(uint32_t chunk) {
    const uint64_t calls = calls_of(OS_CALL_MINCORE);
    span_purging_lock();
    span_mend(chunk);
    span_purging_unlock();
    return calls_of(OS_CALL_MINCORE) > calls;
}

static void check_broken(uint32_t chunk, bool broken) {
    CHECK_EQ(page_chunk(chunk)->broken, broken);
    CHECK_EQ(page_chunk(chunk)->no_huge, broken);
    if (shows_advice()) check_advice(chunk, broken ? "nh" : "hg");
}

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

static void break_many_behind_a_gap(void) {
    enum { CHUNKS = 2 * LONE_CHUNKS };
    leave_nothing_dirty();
    configure(ACE_NEVER, 0);
    const struct mine mine = take_behind_a_gap(CHUNKS * CHUNK_PAGES, true);
    const uint32_t before = mine.first % (STRETCH_CHUNKS * CHUNK_PAGES); /* as many pages of the gap are of the same stretch */
    CHECK(before != 0);
    for (uint32_t i = CHUNKS; i-- > 0;) purge_part(mine.first + i * CHUNK_PAGES + 1);
    CHECK(page_chunk(mine.first)->no_huge);
    for (uint32_t page = mine.first - before; page < mine.first; page += CHUNK_PAGES)
        CHECK_AT(!page_chunk(page)->given && !page_chunk(page)->no_huge, page);
}

TEST(a_stretch_ends_at_a_gap) { IN_CHILD(break_many_behind_a_gap); }

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
    check_books();
}

TEST(plain_memory_of_a_stretch_stays_whole) { IN_CHILD(break_many_beside_plain_memory); }

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
