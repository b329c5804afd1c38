/* gaps_test.c - free runs of pages are unmapped where a limit of the process leaves no room for a longer one, and mapped again later.
 *
 * Tests run in children, each under a limit of its own (ulimit -d).
 *
 * Planted defects it was seen to catch:
 *   nothing is unmapped                          free_runs_make_room_..., the_last_span_grows_...
 *   spans grow into gaps                         a_span_does_not_grow_into_a_gap
 *   a span that grows unmaps what it needs       what_the_last_span_grows_into_is_not_unmapped
 *   what was returned and is unmapped counts     free_runs_make_room_for_a_longer_one
 *   as used again
 *   gaps are never filled                        gaps_are_filled_before_the_window_grows
 *   a limit keeps all of a gap from being used   a_part_of_a_gap_is_filled_...
 *   a gap where something lies is tried for ever what_lies_in_a_gap_stays
 *   a hint that is passed over passes for a      gaps_are_filled_where_hints_are_passed_over
 *   place that is taken
 *   a refusal passes for such a place            what_is_refused_is_not_taken
 *   memory is unmapped in vain                   requests_without_hope_unmap_nothing
 *   a used-up window makes gaps                  a_used_up_window_makes_no_gaps
 *   a refused unmapping goes unnoticed           what_cannot_be_unmapped_stays
 *   what is held passes for touched              what_cannot_be_unmapped_is_as_it_was
 *   a filled gap passes for one mapping with     a_filled_gap_moves_with_its_neighbour
 *   its neighbours
 */
#include "child.h"
#include "faults/fail_calls.h"
#include "kernel.h"
#include "span/pages.h"
#include "spans.h"

#include <stdio.h>
#include <sys/resource.h>

enum { PIECES = 8, PIECE = 10 * CHUNK_PAGES, SLOTS = 40, THREADS = 4 };

static struct mine pieces[PIECES]; /* side by side; those with an even number are free */

static size_t data_bytes(void) {
    unsigned long kib = 0;
    char line[200];
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) SKIP("no /proc");
    while (fgets(line, sizeof line, status) != NULL && sscanf(line, "VmData: %lu kB", &kib) != 1) {}
    fclose(status);
    return kib << 10;
}

/* BYTES more may be mapped from now on; SIZE_MAX: any number. */
static void limit_data(size_t bytes) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_DATA, &limit), 0);
    if (limit.rlim_max != RLIM_INFINITY) SKIP("there is a limit already");
    limit.rlim_cur = bytes == SIZE_MAX ? RLIM_INFINITY : data_bytes() + bytes;
    CHECK_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    if (bytes == SIZE_MAX) return;
    void *probe = mmap(NULL, bytes + MIB(64), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe != MAP_FAILED) SKIP("the kernel does not keep to the limit");
}

static void start(void) {
    data_bytes(); /* stdio takes its memory */
    configure(ACE_NEVER, UINT64_MAX);
    has_gaps = true;
    const uint32_t all = span_take(PIECES * PIECE, CHUNK_PAGES, ACE_SPARSE);
    CHECK(all != 0);
    span_trim(all, PIECE);
    while (span_take(PIECE, 1, ACE_SPARSE) != all + PIECE) {} /* what would be shorter is used */
    for (uint32_t i = 0; i < PIECES; i++) {
        pieces[i] = (struct mine){all + i * PIECE, PIECE, i};
        if (i > 1) CHECK_EQ(span_take(PIECE, 1, ACE_SPARSE), pieces[i].first);
        write_pages(&pieces[i], 0);
    }
    for (size_t i = 0; i < PIECES; i += 2) span_give(pieces[i].first);
    check_books();
}

static bool is_gap(size_t page) {
    unsigned char unused[PAGE_BYTES >> 12];
    const bool gap = !page_chunk(page)->given;
    CHECK_AT((mincore(page_address(page), PAGE_BYTES, unused) != 0) == gap, page);
    if (gap) CHECK_AT(page_word(page) == 0, page);
    return gap;
}

static size_t gap_pages(void) {
    size_t found = 0;
    for (uint32_t page = pieces[0].first; page < pieces[0].first + PIECES * PIECE; page++) found += is_gap(page);
    return found;
}

static void check_used_pieces(void) {
    for (size_t i = 1; i < PIECES; i += 2) check_pages(&pieces[i], PIECE);
    check_books();
}

static struct mine longer_than_each(void) {
    limit_data(MIB(1));
    const struct mine longer = take_keyed(3 * PIECE, false, 4711);
    check_used_pieces();
    return longer;
}

/* Takes pieces until one needs memory that was not there, which nobody returned. */
static struct mine take_brought(void) {
    for (;;) {
        const struct span_counts before = counts_now();
        const uint32_t first = span_take(PIECE, 1, ACE_SPARSE);
        CHECK(first != 0);
        if (counts_now().fresh_pages == before.fresh_pages) continue;
        CHECK_EQ(counts_now().retaken_pages, before.retaken_pages);
        return (struct mine){first, PIECE, first};
    }
}

static void make_room(void) {
    start();
    purge_all();
    span_reset_peak();
    const struct mine longer = longer_than_each();
    check_pages(&longer, longer.pages);
    const size_t unmapped = gap_pages();
    CHECK_AT(unmapped >= 3 * PIECE && unmapped <= 3 * PIECE + 2 * CHUNK_PAGES, unmapped); /* no more than is needed */
    CHECK_EQ(counts_now().retaken_pages, 0);
    CHECK_EQ(counts_now().used_pages_peak, counts_now().used_pages);
    limit_data(SIZE_MAX);
    const size_t end = span_end_page();
    take_brought();
    CHECK(span_end_page() == end && gap_pages() < unmapped);
}

TEST(free_runs_make_room_for_a_longer_one) { IN_CHILD(make_room); }

/* ---- gaps that are filled ----------------------------------------------------------------------------- */

static void fill_gaps(void) {
    start();
    longer_than_each();
    limit_data(SIZE_MAX);
    const size_t end = span_end_page();
    for (size_t left = 3; left > 0; left--) {
        const struct mine mine = take_brought();
        CHECK_EQ(span_end_page(), end);
        CHECK(mine.first >= pieces[0].first && mine.first < pieces[PIECES - 1].first);
        CHECK(span_at(mine.first)->zero);
        check_zero(mine.first, PIECE);
        write_pages(&mine, 0);
        CHECK(gap_pages() < left * PIECE);
        check_used_pieces();
    }
    take_brought();
    CHECK(span_end_page() > end);
    purge_all();
    check_used_pieces();
}

TEST(gaps_are_filled_before_the_window_grows) { IN_CHILD(fill_gaps); }

/* A limit that leaves room for what is needed, and for no more. */
static void fill_a_part(void) {
    enum { NEEDED = PIECE / 2 }; /* less than is filled otherwise; some gaps are longer */
    start();
    longer_than_each();
    limit_data(NEEDED * PAGE_BYTES + MIB(1));
    const size_t end = span_end_page(), gaps = gap_pages();
    uint32_t first = 0;
    while (gap_pages() == gaps) CHECK((first = span_take(NEEDED, 1, ACE_SPARSE)) != 0);
    CHECK_EQ(gap_pages(), gaps - NEEDED);
    CHECK_EQ(span_end_page(), end);
    check_zero(first, NEEDED);
    check_used_pieces();
}

TEST(a_part_of_a_gap_is_filled_where_a_limit_leaves_no_more) { IN_CHILD(fill_a_part); }

static void fill_gaps_without_hints(void) {
    fail_pass_over_hints(true);
    fill_gaps();
    CHECK_EQ(counts_now().lost_pages, 0);
}

TEST(gaps_are_filled_where_hints_are_passed_over) { IN_CHILD(fill_gaps_without_hints); }

/* The second try is refused for want of memory: that is no place where something lies, whose addresses would be lost. */
static void be_refused_without_hints(void) {
    const size_t bytes = CHUNK_PAGES * PAGE_BYTES;
    char *memory = os_map(3 * bytes, bytes);
    CHECK(memory != NULL);
    os_unmap(memory + bytes, bytes);
    fail_pass_over_hints(true);
    os_refusal_forget();
    fail_arm(FAIL_MMAP, 2, false, ENOMEM);
    CHECK(!os_map_at(memory + bytes, bytes));
    CHECK(fail_failed() == 1 && os_refusal.error == ENOMEM);
    fail_disarm();
    CHECK(os_map_at(memory + bytes, bytes));
}

TEST(what_is_refused_is_not_taken) { IN_CHILD(be_refused_without_hints); }

/* A kernel that did not merge the two mappings would not move them in one piece. */
static void move_filled(void) {
    NEED_MOVES();
    start();
    longer_than_each();
    limit_data(SIZE_MAX);
    const uint32_t filled = take_brought().first;
    struct mine *before = NULL;
    for (size_t i = 1; i < PIECES; i += 2)
        if (pieces[i].first + PIECE == filled) before = &pieces[i];
    if (before == NULL) return; /* it is the first of all */
    span_give(filled);
    CHECK(span_extend(before->first, PIECE + 100));
    before->pages = PIECE + 100;
    write_pages(before, PIECE);
    CHECK(pages_next_edge(before->first, before->first + before->pages) == filled);
    before->first = span_move(before->first, before->pages, before->pages + 1);
    CHECK(before->first != 0);
    check_pages(before, before->pages);
    CHECK_EQ(counts_now().lost_pages, 0);
    check_books();
}

TEST(a_filled_gap_moves_with_its_neighbour) { IN_CHILD(move_filled); }

static void put_something_there(void) {
    start();
    longer_than_each();
    limit_data(SIZE_MAX);
    char *others[PIECES / 2] = {NULL};
    for (size_t i = 0; i < PIECES; i += 2) {
        if (!is_gap(pieces[i].first + CHUNK_PAGES)) continue;
        char *place = page_address(pieces[i].first + CHUNK_PAGES);
        CHECK(mmap(place, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == place);
        memset(place, 'x', PAGE_BYTES);
        others[i / 2] = place;
    }
    for (uint64_t tries = 1; tries <= 3; tries++) {
        take_brought();
        CHECK_EQ(counts_now().lost_pages, tries * PIECE);
    }
    for (size_t i = 0; i < PIECES / 2; i++)
        if (others[i] != NULL) CHECK_AT(others[i][0] == 'x' && memcmp(others[i], others[i] + 1, PAGE_BYTES - 1) == 0, i);
    check_used_pieces();
}

TEST(what_lies_in_a_gap_stays) { IN_CHILD(put_something_there); }

/* ---- what grows --------------------------------------------------------------------------------------- */

static void grow_beside_a_gap(void) {
    start();
    longer_than_each();
    limit_data(SIZE_MAX);
    for (size_t i = 1; i + 1 < PIECES; i += 2)
        if (is_gap(pieces[i + 1].first)) CHECK_AT(!span_extend(pieces[i].first, PIECE + 1), i);
    check_used_pieces();
}

TEST(a_span_does_not_grow_into_a_gap) { IN_CHILD(grow_beside_a_gap); }

/* It ends where the window does. */
static struct mine last_span(void) {
    struct mine last = take_keyed(span_end_page(), false, 7);
    CHECK(span_extend(last.first, span_end_page() - last.first));
    write_pages(&last, last.pages);
    last.pages = span_at(last.first)->pages;
    write_pages(&last, 0);
    return last;
}

static void grow_at_the_end(void) {
    start();
    const struct mine last = last_span();
    limit_data(MIB(1));
    CHECK(span_extend(last.first, last.pages + 2 * PIECE));
    CHECK(gap_pages() >= 2 * PIECE);
    check_zero(last.first + last.pages, 2 * PIECE);
    check_pages(&last, last.pages);
    check_used_pieces();
}

TEST(the_last_span_grows_where_others_are_free) { IN_CHILD(grow_at_the_end); }

/* What is free right behind it is the longest run of all, and not enough. */
static void grow_into_what_is_free_at_the_end(void) {
    start();
    const struct mine last = last_span();
    CHECK(span_extend(last.first, last.pages + 3 * PIECE));
    span_trim(last.first, last.pages);
    limit_data(MIB(1));
    const size_t wanted = span_end_page() - last.first + PIECE;
    CHECK(span_extend(last.first, wanted));
    CHECK(gap_pages() >= PIECE);
    check_zero(last.first + last.pages, (uint32_t)wanted - last.pages);
    check_pages(&last, last.pages);
    check_used_pieces();
}

TEST(what_the_last_span_grows_into_is_not_unmapped) { IN_CHILD(grow_into_what_is_free_at_the_end); }

/* ---- what cannot be ----------------------------------------------------------------------------------- */

static void ask_for_too_much(void) {
    start();
    limit_data(MIB(1));
    const struct span_counts counts = counts_now();
    const size_t free_pages = span_end_page() - CHUNK_PAGES - counts.used_pages;
    CHECK_EQ(span_take(free_pages + MIB(2) / PAGE_BYTES, 1, ACE_SPARSE), 0);
    CHECK_EQ(span_take(window.pages / 2, 1, ACE_SPARSE), 0);
    CHECK_EQ(gap_pages(), 0);
    check_used_pieces();
}

TEST(requests_without_hope_unmap_nothing) { IN_CHILD(ask_for_too_much); }

/* What is free in parts of chunks counts as hope, but cannot be unmapped. */
static void grow_in_vain(void) {
    enum { HALF = CHUNK_PAGES / 2, TAKEN = 3 * PIECE / HALF, WANTED = PIECE + 4 * CHUNK_PAGES };
    uint32_t halves[TAKEN];
    start();
    const struct mine last = last_span();
    for (size_t i = 0; i < TAKEN; i++) CHECK((halves[i] = span_take(HALF, 1, ACE_SPARSE)) != 0);
    for (size_t i = 0; i < TAKEN; i++)
        if (halves[i] / HALF % 2 != 0) span_give(halves[i]);
    limit_data(MIB(1));
    CHECK(!span_extend(last.first, last.pages + WANTED));
    CHECK_EQ(gap_pages(), PIECE);
    CHECK_EQ(span_at(last.first)->pages, last.pages);
    check_pages(&last, last.pages);
    check_used_pieces();
}

TEST(what_can_be_unmapped_may_not_do) { IN_CHILD(grow_in_vain); }

static void refuse_to_unmap(void) {
    start();
    limit_data(MIB(1));
    fail_arm(FAIL_MUNMAP, 1, true, ENOMEM);
    CHECK_EQ(span_take(3 * PIECE, 1, ACE_SPARSE), 0);
    CHECK(fail_failed() != 0);
    fail_disarm();
    CHECK_EQ(gap_pages(), 0);
    check_used_pieces();
    longer_than_each();
}

TEST(what_cannot_be_unmapped_stays) { IN_CHILD(refuse_to_unmap); }

/* Clean free pages, dirty ones, and those that the kernel would not take back. */
static void refuse_to_unmap_clean(void) {
    static struct chunk before[PIECES * PIECE / CHUNK_PAGES];
    start();
    fail_arm(FAIL_MADVISE, 1, false, EINVAL);
    purge_all();
    fail_disarm();
    const uint32_t dirtied = span_take(5, 1, ACE_SPARSE);
    write_pages(&(struct mine){dirtied, 5, 8}, 0);
    span_give(dirtied);
    const struct span_counts counts = counts_now();
    CHECK(counts.returned_pages > 2 * PIECE && counts.dirty_pages >= 5);
    const struct chunk *chunks = page_chunk(pieces[0].first);
    memcpy(before, chunks, sizeof before);
    limit_data(MIB(1));
    fail_arm(FAIL_MUNMAP, 1, true, ENOMEM);
    CHECK_EQ(span_take(3 * PIECE, 1, ACE_SPARSE), 0);
    CHECK(fail_failed() != 0);
    fail_disarm();
    CHECK_EQ(counts_now().dirty_pages, counts.dirty_pages);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        CHECK_AT(chunks[i].used == before[i].used && chunks[i].touched == before[i].touched, i);
        CHECK_AT(chunks[i].returned == before[i].returned && chunks[i].refused == before[i].refused, i);
    }
    check_used_pieces();
    longer_than_each();
}

TEST(what_cannot_be_unmapped_is_as_it_was) { IN_CHILD(refuse_to_unmap_clean); }

HELPER(use_up_a_small_window) {
    enum { MOST = 64, PAGES = 2 * CHUNK_PAGES };
    static uint32_t taken[MOST];
    size_t count = 0;
    CHECK_EQ(window.pages * PAGE_BYTES, MIB(64));
    configure(ACE_NEVER, UINT64_MAX);
    while (count < MOST && (taken[count] = span_take(PAGES, 1, ACE_SPARSE)) != 0) count++;
    CHECK(count > 4 && count < MOST);
    for (size_t i = 0; i + 2 < count; i += 2) span_give(taken[i]); /* behind the last some is free */
    os_refusal.error = ENOMEM; /* of another time */
    CHECK_EQ(span_take(PAGES + 1, 1, ACE_SPARSE), 0);
    for (size_t i = 0; i < count; i++) CHECK_AT(!is_gap(taken[i]), i);
}

static void become_one_with_a_small_window(void) {
    CHECK_EQ(setenv("HAKMEM_WINDOW", "64M", 1), 0);
    become_helper("use_up_a_small_window");
}

TEST(a_used_up_window_makes_no_gaps) { IN_CHILD(become_one_with_a_small_window); }

/* ---- at random; threads last, since ThreadSanitizer lets no child of a process with threads start some -- */

static _Atomic size_t refused;

static void *work(void *argument) {
    struct rng rng = {check_now.seed * 1000 + (uintptr_t)argument};
    struct mine slots[SLOTS] = {{0}};
    for (size_t i = 0; i < check_count(argument == NULL ? 4000 : 1000); i++) {
        struct mine *mine = &slots[rng_below(&rng, SLOTS)];
        if (mine->pages != 0) {
            check_pages(mine, mine->pages);
            const uint32_t more = mine->pages + 1 + (uint32_t)rng_below(&rng, 100);
            if (rng_below(&rng, 3) == 0 && span_extend(mine->first, more)) {
                const uint32_t before = mine->pages;
                mine->pages = more;
                write_pages(mine, before);
                continue;
            }
            const uint32_t to = rng_below(&rng, 4) == 0 ? span_move(mine->first, mine->pages, more) : 0;
            if (to != 0) check_pages(&(struct mine){to, mine->pages, mine->key}, mine->pages);
            span_give(to != 0 ? to : mine->first);
            mine->pages = 0;
        } else {
            const uint32_t pages = 1 + (uint32_t)rng_below(&rng, rng_below(&rng, 4) ? 50 : 800);
            const uint32_t first = span_take(pages, (size_t)1 << rng_below(&rng, 7), (enum ace_fill)rng_below(&rng, ACE_GROWN + 1));
            refused += first == 0;
            if (first == 0) continue;
            *mine = (struct mine){first, pages, rng_next(&rng)};
            if (span_at(first)->zero) check_zero(first, pages);
            write_pages(mine, 0);
        }
        if (i % 100 == 0) purge_all();
        if (argument == NULL && i % 50 == 0) check_books();
    }
    for (size_t i = 0; i < SLOTS; i++)
        if (slots[i].pages != 0) span_give(slots[i].first);
    return NULL;
}

static void work_under_a_limit(void) {
    touch_memory();
    start();
    configure(ACE_NEVER, counts_now().used_pages + 2 * PIECE); /* both zones */
    limit_data(MIB(100));
    work(NULL);
    CHECK(refused > 0 && gap_pages() > 0);
    check_used_pieces();
}

TEST(random_work_under_a_limit) { IN_CHILD(work_under_a_limit); }

static void work_together(void) {
    pthread_t threads[THREADS];
    start();
    for (uintptr_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    limit_data(MIB(CHECK_SHADOWED ? 800 : 200)); /* what a sanitizer keeps of each page counts, too */
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    check_used_pieces();
}

TEST(threads_under_a_limit) { IN_CHILD(work_together); }
