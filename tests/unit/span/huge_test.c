/* huge_test.c - where huge pages are asked for and where not: zones, what lies across their border, chunks that are broken and
 * mended, one by one and in stretches. What was asked for is read from /proc/self/smaps. In children: what was broken stays
 * in the process.
 *
 * Planted defects it was seen to catch:
 *   zones are merged                             zones_are_never_merged, others
 *   sparse spans are of huge pages               dense_spans_are_of_huge_pages_from_a_size_on
 *   plain memory is not advised                  dense_spans_are_of_huge_pages_from_a_size_on
 *   what is taken as a whole is not mended       a_part_breaks_and_the_whole_mends
 *   a chunk is broken again                      a_part_breaks_and_the_whole_mends
 *   the start of a run is not broken, or a whole chunk at its end is   a_run_breaks_what_lies_at_its_ends
 *   no stretches, or for ever                    many_are_treated_in_stretches
 *   untouched memory counts like touched         untouched_memory_gets_none
 *   every fresh memory is looked at              untouched_memory_gets_none
 *   who touched memory once is never asked again   who_touched_memory_is_asked_again
 *   a block of any size gets them                what_is_much_larger_than_all_else_gets_none
 *   a refusal counts as untouched                without_an_answer_all_is_touched
 *   what lies before a gap is not looked at      what_lies_before_a_gap_counts
 *   a stretch lies over a gap                    a_stretch_ends_at_a_gap
 */
#include "child.h"
#include "faults/fail_calls.h"
#include "kernel.h"
#include "spans.h"

#include <sys/mman.h>

enum { STRETCH_CHUNKS = 32, LONE_CHUNKS = 64 };

static void purge_all(void) {
    span_give(take_keyed(1, false, 1).first); /* so that there is some memory */
    span_purging_lock();
    span_purge(UINT64_MAX);
    span_purging_unlock();
}

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

/* PAGES pages, all of them touched. */
static struct mine take_touched(size_t pages) {
    const struct mine mine = take_keyed(pages, false, 1);
    memset(page_address(mine.first), 1, pages * PAGE_BYTES);
    return mine;
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
    purge_all();
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
        if (shown) check_advice(mine.first, cases[i].zone == ZONE_HUGE ? "hg" : "nh");
        check_books();
        span_give(mine.first);
        purge_all();
        check_books();
    }
}

TEST(dense_spans_are_of_huge_pages_from_a_size_on) { IN_CHILD(zones_by_settings); }

static void count_what_is_used(void) {
    touch_memory();
    purge_all();
    take_touched(counts_now().fresh_pages);
    struct span_counts counts = counts_now();
    configure(ACE_NEVER, counts.used_pages + counts.fresh_pages + 2);
    struct mine few = take_keyed(counts.fresh_pages + 1, true, 1);
    CHECK_EQ(page_chunk(few.first)->zone, ZONE_PLAIN);
    struct mine many = take_keyed(counts_now().fresh_pages + 1, true, 2);
    CHECK_EQ(page_chunk(many.first)->zone, ZONE_HUGE);
}

/* Nobody knows how much of it will be touched. Of a block that grows all was touched so far. */
static void take_one_much_larger(void) {
    touch_memory();
    purge_all();
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
    purge_all();
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
    purge_all();
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
    purge_all();
    take_keyed(counts_now().fresh_pages + 8 * CHUNK_PAGES, false, 1);
    configure(ACE_NEVER, 1);
    fail_arm(FAIL_MINCORE, 1, true, 0);
    struct mine mine = take_keyed(counts_now().fresh_pages + 1, true, 2);
    fail_disarm();
    CHECK_EQ(page_chunk(mine.first)->zone, ZONE_HUGE);
}

TEST(without_an_answer_all_is_touched) { IN_CHILD(ask_without_answer); }

TEST(what_is_used_decides) { IN_CHILD(count_what_is_used); }

/* Leaves a gap behind what is reserved: PAGES pages that have no room before it. */
static struct mine take_behind_a_gap(uint32_t pages, bool dense) {
    const uint32_t end = (uint32_t)span_end_page();
    for (uint32_t page = end; page < end + pages; page += CHUNK_PAGES) {
        void *other = mmap(page_address(page), PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (other != page_address(page)) {
            munmap(other, PAGE_BYTES);
            continue;
        }
        const struct mine behind = take_keyed(pages, dense, 7);
        CHECK(behind.first >= page + GIB(1) / PAGE_BYTES);
        return behind;
    }
    SKIP("the window is reserved whole"); /* and nobody is in the way */
}

static void ask_behind_a_gap(void) {
    purge_all();
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

/* Free spans side by side, of both zones; and one that was lengthened across the border between them. */
static void across_the_border(void) {
    purge_all();
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
    purge_all();
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
    purge_all();
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

/* A free run that is given back breaks at most what lies at its two ends. */
static void break_at_the_ends(void) {
    static const struct {
        uint32_t from, to;
        unsigned broken; /* chunks, as bits */
    } cuts[] = {{0, 32, 0}, {0, 96, 0}, {32, 96, 0}, {1, 32, 1}, {0, 31, 1}, {40, 90, 6}, {5, 100, 9}, {33, 34, 2}};
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        purge_all();
        struct mine mine = take_fresh(ZONE_HUGE, 6 * CHUNK_PAGES, 1);
        uint32_t chunk = mine.first + CHUNK_PAGES - mine.first % CHUNK_PAGES, from = chunk + cuts[i].from;
        uint32_t end = mine.first + mine.pages;
        span_trim(mine.first, from - mine.first); /* what is behind is free and dirty: */
        struct mine hole = take_keyed(cuts[i].to - cuts[i].from, true, 2);
        CHECK_EQ(hole.first, from); /* in three pieces now, the middle of which is given back */
        struct mine rest = take_keyed(end - chunk - cuts[i].to, true, 3);
        CHECK_EQ(rest.first, chunk + cuts[i].to);
        span_give(hole.first);
        purge_all();
        for (uint32_t k = 0; k < 4; k++)
            CHECK_AT(page_chunk(chunk + k * CHUNK_PAGES)->broken == (cuts[i].broken >> k & 1), i * 10 + k);
        check_books();
    }
}

TEST(a_run_breaks_what_lies_at_its_ends) { IN_CHILD(break_at_the_ends); }

/* Beyond some number whole stretches are treated at once: few mappings, few calls. */
static void break_many(void) {
    enum { CHUNKS = 400 };
    purge_all();
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

static void break_many_behind_a_gap(void) {
    enum { CHUNKS = 2 * LONE_CHUNKS };
    purge_all();
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

/* ---- what was moved ---------------------------------------------------------------------------------------------------- */

static enum span_zone moved_zone;

/* What was moved and given back is advised as its zone is, whatever mapping was there in between. */
static void heal_advice(void) {
    NEED_MOVES();
    if (!shows_advice()) SKIP("the kernel does not show what it was asked for");
    purge_all();
    struct mine mine = take_fresh(moved_zone, 200, 1);
    uint64_t moves = counts_now().moves;
    CHECK((mine.first = span_move(mine.first, 200, 300)) != 0);
    CHECK_EQ(counts_now().moves, moves + 1);
    uint32_t at = mine.first;
    enum span_zone zone = (enum span_zone)page_chunk(at)->zone;
    span_give(at);
    purge_all();
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
