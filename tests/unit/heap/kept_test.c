/* kept_test.c - what a thread keeps of medium blocks, by what it costs: where the process is about to grow, and where there are others.
 *
 * Planted defects it was seen to catch:
 *   the process grows all the same; what went back counts as in use
 *                                                what_is_kept_spares_growth
 *   where the depth is set it does               what_a_fixed_depth_keeps_does_too
 *   what is kept goes back though memory is free  else_it_stays
 *   what nobody touched goes back, or where little was touched
 *                                                what_was_not_touched_stays
 *   where memory is to be small it is asked how much was touched
 *                                                to_be_small_nothing_stays
 *   one block that was touched passes for all    what_was_not_touched_stays
 *   the oldest block of a size does, or sizes count once
 *                                                the_oldest_is_not_all, many_short_ones_are_much
 *   a limit does not count                       a_limit_leaves_none
 *   nobody looks a second time, or all do each time
 *                                                it_is_looked_at_again
 *   where the kernel does not tell, nothing was  where_the_kernel_does_not_tell
 *   a thread that is alone is looked at          one_that_is_alone_is_not_looked_at
 *   of several each keeps as little as if it touched all, or goes on to keep more; nobody is told
 *                                                of_several_what_was_not_touched_is_more
 *   all of a huge page passes for touched        of_huge_pages_some_counts_as_touched
 *   where nothing adapts it is looked at all the same   where_nothing_adapts_nobody_looks
 *   who is awake beside sleepers keeps more than one that is alone   who_is_awake_keeps_no_more_than_one_alone
 */
#include "medium.h"

#include "ace/budget.h"
#include "another.h"
#include "heap/footprint.h"
#include "heap/registry.h"
#include "no_purger.h"
#include "os_counts.h"

#include <sys/mman.h>
#include <sys/syscall.h>

static bool mincore_refused, all_is_there;

int mincore(void *address, size_t bytes, unsigned char *resident) {
    if (all_is_there) {
        memset(resident, 1, bytes / os_page_bytes());
        return 0;
    }
    if (!mincore_refused) return (int)syscall(SYS_mincore, address, bytes, resident);
    errno = ENOSYS;
    return -1;
}

static uint64_t looks(void) { return calls_of(OS_CALL_MINCORE); }

static void need_a_kernel_that_tells(void) {
    const size_t bytes = os_page_bytes();
    void *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(fresh != MAP_FAILED);
    if (os_resident_bytes(fresh, bytes) != 0) SKIP("pages of memory that was never touched are said to be there");
}

/* COUNT blocks of BYTES bytes live at once. */
static void touch_and_give(size_t bytes, size_t count) {
    void *blocks[64];
    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++) {
        CHECK((blocks[i] = heap_alloc(bytes, NULL)) != NULL);
        memset(blocks[i], 'x', bytes);
    }
    for (size_t i = 0; i < count; i++) heap_free(blocks[i], NULL);
}

/* COUNT blocks of BYTES bytes are kept, and were touched or not. */
static void keep(size_t bytes, size_t count, bool touched) {
    settle(bytes, count);
    if (touched) touch_and_give(bytes, count);
    CHECK_EQ(kept_of(bytes), count);
}

/* Pages that the kernel brought in, or may have. */
static uint64_t grown_pages(void) { return counts_now().used_pages + counts_now().dirty_pages; }

/* A block, which stays, for which memory must be brought in unless what is kept goes back. */
static void grow(size_t bytes) {
    const uint64_t grown = grown_pages();
    CHECK(heap_alloc(bytes, NULL) != NULL);
    CHECK_AT(kept_bytes() == 0 || grown_pages() > grown, bytes);
}

/* What is kept becomes slabs of small blocks, medium blocks of another size and large ones before the process grows. */
static void spare(void) {
    static void *blocks[96];
    const size_t requests[] = {KIB(32), KIB(128), MIB(3)};
    for (size_t r = 0; r < sizeof requests / sizeof requests[0]; r++) {
        const size_t count = MIB(3) / requests[r];
        keep(MIB(1), 4, true);
        const uint64_t grown = grown_pages(), in_use = footprint_in_use();
        for (size_t i = 0; i < count; i++) CHECK((blocks[i] = heap_alloc(requests[r], NULL)) != NULL);
        CHECK_AT(grown_pages() == grown && kept_of(MIB(1)) == 0, requests[r]);
        CHECK_AT(footprint_in_use() <= in_use, requests[r]); /* what went back is told at once */
        for (size_t i = 0; i < count; i++) heap_free(blocks[i], NULL);
        heap_collect();
    }
}
TEST(what_is_kept_spares_growth) { IN_CHILD(spare); }

/* Of a size whose depth does not adapt, too. */
static void *keep_four(void *unused) {
    keep(MIB(1), 4, true);
    heap_free(heap_alloc(MIB(3), NULL), NULL);
    CHECK_EQ(kept_of(MIB(1)), 0);
    return unused;
}
static void spare_fixed(void) {
    uint16_t depths[SIZE_CLASSES] = {0};
    depths[size_class_of(MIB(1))] = 4;
    CHECK(heap_start(&(struct heap_options){
        .thread_cache_bytes = MIB(16), .decay = ACE_NEVER, .foreign = count_foreign, .bin_depth = depths}));
    run_thread(keep_four, NULL); /* with a heap that begins now */
}
TEST(what_a_fixed_depth_keeps_does_too) { IN_CHILD(spare_fixed); }

/* Where memory is free already, or little is kept, it stays. */
static void not_spare(void) {
    void *free_later = heap_alloc(MIB(2), NULL);
    keep(MIB(1), 4, true);
    heap_free(free_later, NULL);
    void *block = heap_alloc(KIB(128), NULL);
    CHECK_EQ(kept_of(MIB(1)), 4);
    heap_collect();
    heap_free(block, NULL);
    keep(MIB(1), 1, true);
    grow(MIB(3));
    CHECK_EQ(kept_of(MIB(1)), 1);
}
TEST(else_it_stays) { IN_CHILD(not_spare); }

/* ---- whether it was touched ------------------------------------------------------------------------------- */

/* Of several sizes one that was touched is little of what is kept. */
static void untouched(void) {
    for (int i = 0; i < 100; i++) {
        take_and_give(MIB(1), 2);
        take_and_give(KIB(768), 2);
        touch_and_give(KIB(128), 1);
    }
    const size_t kept = kept_bytes();
    CHECK(kept >= 2 * MIB(1) + 2 * KIB(768));
    grow(MIB(8)); /* more than lies free */
    CHECK_EQ(kept_bytes(), kept);
}
TEST(what_was_not_touched_stays) {
    need_a_kernel_that_tells();
    IN_CHILD(untouched);
}

/* Where memory is to be small, anything that is kept makes room, however little of it was touched: that is not even asked. */
static void spare_little(void) {
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX}); /* huge pages ask, too */
    keep(MIB(1), 4, false);
    heap_settings.objective = ACE_SMALL;
    const uint64_t looked = looks();
    grow(MIB(6));
    CHECK(kept_bytes() == 0 && looks() == looked);
}
TEST(to_be_small_nothing_stays) { IN_CHILD(spare_little); }

/* The oldest block of a size is not what the others are. */
static void untouched_below(void) {
    keep(MIB(1), 8, false);
    touch_and_give(MIB(1), 7);
    CHECK_EQ(kept_of(MIB(1)), 8);
    CHECK(heap_alloc(MIB(9), NULL) != NULL);
    CHECK_EQ(kept_bytes(), 0);
}
TEST(the_oldest_is_not_all) {
    need_a_kernel_that_tells();
    IN_CHILD(untouched_below);
}

/* Many short blocks are more than one long one. */
static void short_ones(void) {
    for (int i = 0; i < 100; i++) {
        take_and_give(MIB(1), 1);
        take_and_give(KIB(128), 31);
    }
    touch_and_give(KIB(128), 31);
    CHECK(kept_of(MIB(1)) == 1 && kept_of(KIB(128)) == 31);
    CHECK(heap_alloc(MIB(9), NULL) != NULL);
    CHECK_EQ(kept_bytes(), 0);
}
TEST(many_short_ones_are_much) {
    need_a_kernel_that_tells();
    IN_CHILD(short_ones);
}

/* Once the process grew by as much as nobody had touched. */
static void look_again(void) {
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX}); /* huge pages look, too */
    keep(MIB(1), 4, false);
    grow(MIB(6)); /* more than lies free */
    CHECK_EQ(kept_of(MIB(1)), 4);
    keep(MIB(1), 4, true);
    const uint64_t looked = looks();
    for (int i = 0; i < 2; i++) grow(MIB(2));
    CHECK(looks() == looked && kept_of(MIB(1)) == 4);
    grow(MIB(2));
    CHECK(looks() > looked && kept_of(MIB(1)) == 0);
}
TEST(it_is_looked_at_again) {
    need_a_kernel_that_tells();
    IN_CHILD(look_again);
}

/* Below a hard limit it is free memory. */
static void limited(void) {
    keep(MIB(1), 4, false);
    const uint64_t in_use_pages = counts_now().used_pages;
    span_configure(&(struct span_settings){
        .decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX, .hard_pages = in_use_pages + MIB(2) / PAGE_BYTES});
    take_and_give(100, 1);
    const size_t small = kept_of(100);
    CHECK(heap_alloc(MIB(4), NULL) != NULL);
    CHECK(kept_bytes() == 0 && small != 0 && kept_of(100) == small); /* the small ones stay: it was not the last resort */
}
TEST(a_limit_leaves_none) { IN_CHILD(limited); }

static void untold(void) {
    keep(MIB(1), 4, false);
    mincore_refused = true;
    grow(MIB(2));
    CHECK_EQ(kept_of(MIB(1)), 0);
}
TEST(where_the_kernel_does_not_tell) { IN_CHILD(untold); }

/* ---- several threads ---------------------------------------------------------------------------------------- */

/* BODY, in a process that has a second thread with a heap. */
static void beside_another(void (*body)(void)) {
    start_another();
    body();
    end_another();
}

static struct ace_decision told[8];
static size_t times_told;
static void remember(const struct ace_decision *decision) {
    if (decision->reason != ACE_REASON_TOUCHED && decision->reason != ACE_REASON_HARDLY_TOUCHED) return;
    CHECK(times_told < sizeof told / sizeof told[0]);
    told[times_told++] = *decision;
}

/* A step after the other, from FROM to TO, since the last time. */
static void see_told(uint64_t from, uint64_t to) {
    for (size_t i = 0; i < times_told; i++) {
        CHECK(told[i].from == from && told[i].to == (to > from ? 2 * from : from / 2));
        CHECK_EQ(told[i].reason, to > from ? ACE_REASON_HARDLY_TOUCHED : ACE_REASON_TOUCHED);
        CHECK_EQ(told[i].thread_id, counter_read(&own()->thread_id));
        CHECK(told[i].inputs[1] <= told[i].inputs[0]);
        from = told[i].to;
    }
    CHECK_EQ(from, to);
    times_told = 0;
}

/* Slow paths of other sizes, with their looks, among those that take and give blocks of 1 MiB. */
static void work(size_t turns, bool touch) {
    for (size_t i = 0; i < turns; i++) {
        (touch ? touch_and_give : take_and_give)(MIB(1), 8);
        for (int slow = 0; slow < 64; slow++) heap_free(heap_alloc(MIB(2), NULL), NULL); /* so that depths follow the budget */
    }
}

/* What it keeps goes back before the process grows, so it may keep much anyway. */
static void alone(void) {
    heap_settings.keeper = remember;
    work(100, false);
    CHECK_EQ(kept_of(MIB(1)), 8);
    CHECK_EQ(times_told, 0);
}
TEST(one_that_is_alone_is_not_looked_at) { IN_CHILD(alone); }

static void touch_or_not(void) {
    heap_settings.keeper = remember;
    work(2, false); /* fewer slow paths than from a look to the next */
    CHECK_AT(kept_bytes() <= MIB(2) + MIB(2) / 2, kept_bytes()); /* nobody knows yet */
    work(200, false);
    CHECK_EQ(kept_of(MIB(1)), 8);
    see_told(1, 16);
    work(400, true);
    CHECK_AT(kept_bytes() <= MIB(2) + MIB(2) / 2, kept_bytes());
    see_told(16, 1);
}
static void several(void) { beside_another(touch_or_not); }
TEST(of_several_what_was_not_touched_is_more) {
    need_a_kernel_that_tells();
    IN_CHILD(several);
}

/* All that lies on a huge page is there, touched or not. */
static void work_on_huge_pages(void) {
    all_is_there = true;
    heap_settings.keeper = remember;
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .huge_from_pages = 0, .objective = ACE_BALANCED});
    while (counts_now().huge_pages == 0) CHECK(heap_alloc(MIB(1), NULL) != NULL); /* and stays, as far as there are other pages */
    work(200, false);
    see_told(1, 4);
}
static void several_on_huge_pages(void) { beside_another(work_on_huge_pages); }
TEST(of_huge_pages_some_counts_as_touched) { IN_CHILD(several_on_huge_pages); }

static void keep_where_nothing_adapts(void) {
    heap_settings.fixed = true;
    heap_settings.keeper = remember;
    work(200, false);
    CHECK(times_told == 0 && own()->medium_touched == ACE_TOUCHED_UNKNOWN);
}
static void several_where_nothing_adapts(void) { beside_another(keep_where_nothing_adapts); }
TEST(where_nothing_adapts_nobody_looks) { IN_CHILD(several_where_nothing_adapts); }

/* What it keeps costs little, so it may keep sixteen times as much; the other sleeps, and has no share. */
static void keep_beside_a_sleeper(void) {
    enum { COUNT = 16 };
    heap_settings.keeper = remember;
    counter_set(&heap_settings.thread_cache_bytes, MIB(64)); /* which is not what bounds it */
    registry_note_sleepers(1);
    work(200, false);
    see_told(1, 16);
    for (int i = 0; i < 40; i++)
        for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++) take_and_give(slab_classes[class].block_bytes, COUNT);
    const uint64_t sized_bytes = counter_read(&own()->medium_depth.bytes);
    CHECK_AT(sized_bytes > MIB(24) && sized_bytes <= MIB(32), sized_bytes); /* of 64 that its share would be */
}
static void one_and_a_sleeper(void) { beside_another(keep_beside_a_sleeper); }
TEST(who_is_awake_keeps_no_more_than_one_alone) {
    need_a_kernel_that_tells();
    IN_CHILD(one_and_a_sleeper);
}
