/* half_life_test.c - how the half-life of decay follows the program: src/span/purge.c by the rule of src/ace/decay.c.
 *
 * Planted defects it was seen to catch:
 *   a window is one half-life                    what_comes_back_every_few_half_lives_stays
 *   a sleeper waits for its windows              of_a_sleeper_all_goes_at_once
 *   what is used again is not counted            the_half_life_follows_the_program
 *   it is never quiet                            the_half_life_follows_the_program
 *   any option sets it                           another_option_leaves_it_as_it_is
 *   moved pages pass for returned ones           where_a_block_moved_from_is_no_reason
 *   one rise counts at each tick                 a_rise_counts_once_and_soon
 */
#include "decays.h"

enum { PEAK_PAGES = 1000 };

static uint64_t half_life(void) { return counts_now().half_life_ms; }

/* Until a peak is expected no longer, and three more half-lives. */
static void outlast_a_peak(void) {
    const uint64_t step_ms = half_life() / 8 + LEAST_TICK_MS, half_lives_ms = 3 * half_life();
    for (uint64_t ms = 0; ms < 2 * WINDOW_HALF_LIVES * 500 + half_lives_ms; ms += step_ms) pass(step_ms);
}

/* A server's peaks, each long before two windows are over. */
static void decay_between_peaks(void) {
    configure(500, UINT64_MAX);
    span_give(take_keyed(PEAK_PAGES, false, 1).first);
    for (int i = 0; i < 20; i++) {
        uint64_t returned = counts_now().returned_pages;
        struct mine peak = take_keyed(PEAK_PAGES, false, i);
        for (int k = 0; k < 10; k++) pass(50);
        span_give(peak.first);
        for (int k = 0; k < 40; k++) pass(100);
        CHECK_AT(i < 3 || counts_now().returned_pages == returned, i);
    }
    CHECK_EQ(half_life(), 500);
    CHECK(counts_now().dirty_pages >= PEAK_PAGES);
    outlast_a_peak();
    CHECK(counts_now().dirty_pages <= PEAK_PAGES / 4);
}

TEST(what_comes_back_every_few_half_lives_stays) { IN_CHILD(decay_between_peaks); }

static void decay_of_sleeper(void) {
    configure(500, UINT64_MAX);
    purge_all();
    span_give(take_keyed(PEAK_PAGES, false, 1).first);
    decay_at(SPAN_PACE_IDLE, UINT64_MAX);
    uint64_t dirty = counts_now().dirty_pages;
    clock_pass(500);
    for (int i = 0; i < LOOKS; i++) decay_at(SPAN_PACE_IDLE, UINT64_MAX);
    CHECK_EQ(dirty - counts_now().dirty_pages, ace_decay_pages(dirty, 500, 500));
}

TEST(of_a_sleeper_all_goes_at_once) { IN_CHILD(decay_of_sleeper); }

/* What was free for so long that all of it went is used again: of PAGES pages as many as are said. */
static void peak(uint32_t pages, uint32_t used_again) {
    uint64_t retaken = counts_now().retaken_pages;
    span_give(take_keyed(pages, false, 1).first);
    pass(1); /* no tick: the peak ends in this period */
    while (span_dirty_left() != 0) pass(half_life() * 30);
    CHECK(counts_now().retaken_pages - retaken <= pages);
    struct mine again = take_keyed(used_again, false, 2);
    pass(half_life() / 8 + LEAST_TICK_MS);
    span_give(again.first);
    while (span_dirty_left() != 0) pass(half_life() / 2 + LEAST_TICK_MS);
}

static void half_life_of_a_wave(void) {
    configure(500, UINT64_MAX);
    purge_all();
    uint64_t seen = half_life(), changes = 0;
    CHECK_EQ(seen, 500);
    for (int i = 0; i < 40 && half_life() < 500 * ACE_HALF_LIFE_GROWTH; i++) {
        span_give(take_keyed(PEAK_PAGES, false, 1).first);
        outlast_a_peak();
        changes += half_life() > seen;
        CHECK(half_life() == seen || half_life() == seen * 4 || half_life() == 500 * ACE_HALF_LIFE_GROWTH);
        seen = half_life();
    }
    CHECK_EQ(half_life(), 500 * ACE_HALF_LIFE_GROWTH);
    CHECK_EQ(changes, 3);
    span_give(take_keyed(PEAK_PAGES, false, 1).first);
    outlast_a_peak(); /* longer it never gets */
    CHECK_EQ(half_life(), 500 * ACE_HALF_LIFE_GROWTH);
    /* It takes a quarter after each four half-lives in which nothing was used again. */
    pass(half_life());
    uint64_t quiet = 0;
    while (half_life() > 500) {
        uint64_t before = half_life();
        for (quiet = 0; half_life() == before; quiet += before / 8) {
            pass(before / 8);
            CHECK(quiet <= 6 * before);
        }
        CHECK_EQ(half_life(), before / 4 < 500 ? 500 : before / 4);
        CHECK(before == 500 * ACE_HALF_LIFE_GROWTH || quiet >= 4 * before - before / 4);
    }
    for (int k = 0; k < 100; k++) pass(1000);
    CHECK_EQ(half_life(), 500);
}

TEST(the_half_life_follows_the_program) { IN_CHILD(half_life_of_a_wave); }

/* Takes again what was returned, in parts over several ticks. */
static void rise(void) {
    enum { PARTS = 4, PART_PAGES = PEAK_PAGES / PARTS };
    uint32_t taken[PARTS];
    for (int i = 0; i < PARTS; i++) {
        taken[i] = take_keyed(PART_PAGES, false, 1).first;
        pass(half_life() / 8 + LEAST_TICK_MS);
    }
    for (int i = 0; i < PARTS; i++) span_give(taken[i]);
    while (span_dirty_left() != 0) pass(half_life() / 2 + LEAST_TICK_MS);
}

static void half_life_of_a_rise(void) {
    configure(500, UINT64_MAX);
    purge_all();
    span_give(take_keyed(PEAK_PAGES, false, 1).first);
    while (span_dirty_left() != 0) pass(half_life() / 2 + LEAST_TICK_MS);
    CHECK_EQ(half_life(), 500);
    rise();
    CHECK_EQ(half_life(), 2000); /* once, however long it takes */
    for (int i = 0; i < 1000; i++) pass(1000);
    CHECK_EQ(half_life(), 500);
    rise();
    CHECK_EQ(half_life(), 500); /* it was long ago */
}

TEST(a_rise_counts_once_and_soon) { IN_CHILD(half_life_of_a_rise); }

/* What was learned is not forgotten for an option that has nothing to do with it. */
static void half_life_of_another_option(void) {
    configure(500, UINT64_MAX);
    purge_all();
    for (int i = 0; i < 40 && half_life() == 500; i++) {
        span_give(take_keyed(PEAK_PAGES, false, 1).first);
        outlast_a_peak();
    }
    const uint64_t learned = half_life();
    CHECK(learned > 500);
    configure(500, 0);
    CHECK_EQ(half_life(), learned);
    configure(600, 0);
    CHECK_EQ(half_life(), 600);
    configure(ACE_NEVER, 0);
    CHECK_EQ(half_life(), ACE_NEVER);
}

TEST(another_option_leaves_it_as_it_is) { IN_CHILD(half_life_of_another_option); }

/* A little of much, or not much at all, is no reason. */
static void half_life_of_little(void) {
    configure(500, UINT64_MAX);
    purge_all();
    for (int i = 0; i < 10; i++) {
        peak(5000, 500);
        CHECK_EQ(half_life(), 500);
    }
    for (int i = 0; i < 20; i++) pass(LONG_MS);
    for (int i = 0; i < 10; i++) {
        span_give(take_keyed(60, false, 1).first);
        for (int k = 0; k < 20; k++) pass(1000);
        CHECK_EQ(half_life(), 500);
    }
}

TEST(little_that_is_used_again_is_no_reason) { IN_CHILD(half_life_of_little); }

/* A block that realloc moves to and fro takes places again that decay never returned. */
static void half_life_of_moves(void) {
    configure(500, UINT64_MAX);
    purge_all();
    const uint64_t retaken = counts_now().retaken_pages;
    uint32_t at = take_keyed(256, false, 1).first;
    for (int i = 0; i < 20; i++) {
        CHECK((at = span_move(at, 256, 256)) != 0);
        pass(half_life() / 8 + LEAST_TICK_MS);
    }
    CHECK_EQ(half_life(), 500);
    CHECK_EQ(counts_now().retaken_pages, retaken);
}

TEST(where_a_block_moved_from_is_no_reason) { IN_CHILD(half_life_of_moves); }

static void half_life_of_extremes(void) {
    static const uint64_t configured[] = {0, ACE_NEVER};
    for (size_t i = 0; i < 2; i++) {
        configure(configured[i], UINT64_MAX);
        for (int k = 0; k < 10; k++) {
            span_give(take_keyed(PEAK_PAGES, false, 1).first);
            for (int j = 0; j < 5; j++) pass(1000);
            CHECK_EQ(half_life(), configured[i]);
        }
    }
}

static void forget_half_life(void) {
    configure(500, UINT64_MAX);
    purge_all();
    for (int i = 0; i < 3; i++) {
        span_give(take_keyed(PEAK_PAGES, false, 1).first);
        outlast_a_peak();
    }
    CHECK(half_life() > 500);
    span_decay_forget();
    CHECK_EQ(half_life(), 500);
    pass(500);
    CHECK_EQ(half_life(), 500); /* and nothing of what was learned is left */
}

TEST(what_was_learned_can_be_forgotten) { IN_CHILD(forget_half_life); }

static struct ace_decision told[64];
static int times_told;

static void remember(const struct ace_decision *decision) { told[times_told++ % 64] = *decision; }

/* The same program with the half-life FIXED, or not. */
static void make_waves(bool fixed) {
    span_configure(&(struct span_settings){
        .decay_half_life_ms = 500, .huge_from_pages = UINT64_MAX, .fixed = fixed, .keeper = remember});
    purge_all();
    for (int i = 0; i < 3; i++) {
        span_give(take_keyed(PEAK_PAGES, false, 1).first);
        outlast_a_peak();
    }
}

static void keep_half_life(void) {
    make_waves(true);
    CHECK_EQ(half_life(), 500);
    CHECK_EQ(times_told, 0);
}

TEST(a_half_life_that_was_fixed_stays) { IN_CHILD(keep_half_life); }

static void tell_half_life(void) {
    make_waves(false);
    CHECK(half_life() > 500 && times_told > 0);
    span_decay_forget();
    uint64_t now_ms = 500;
    for (int i = 0; i < times_told; i++) {
        const bool last = i == times_told - 1;
        CHECK_AT(told[i].from == now_ms && told[i].to != now_ms && told[i].thread_id == 0, i);
        CHECK_EQ(told[i].reason, last ? ACE_REASON_FORGOTTEN : told[i].to > now_ms ? ACE_REASON_RETAKEN : ACE_REASON_QUIET);
        if (told[i].reason == ACE_REASON_RETAKEN) CHECK_AT(2 * told[i].inputs[1] >= told[i].inputs[0], i);
        now_ms = told[i].to;
    }
    CHECK_EQ(half_life(), now_ms);
}

TEST(each_change_of_the_half_life_is_told) { IN_CHILD(tell_half_life); }

/* A part of a huge page stays while the program works: it is not due again and again, or the purge thread would not rest. */
static void decay_of_a_part(void) {
    enum { PART = KEPT_PAGES + 4 };
    configure(1000, 0);
    struct mine mine = take_keyed(counts_now().fresh_pages + 4 * CHUNK_PAGES, true, 1); /* of nothing that there was */
    purge_all();
    uint32_t end = mine.first + mine.pages;
    end -= end % CHUNK_PAGES; /* of a chunk */
    span_trim(mine.first, end - PART - mine.first);
    purge_all();
    struct mine part;
    do part = take_keyed(PART, true, 2); /* what else is free comes first */
    while (part.first != end - PART);
    CHECK_EQ(page_chunk(part.first)->zone, ZONE_HUGE);
    span_give(part.first);
    CHECK_EQ(counts_now().dirty_pages, PART);
    bool more = true;
    for (int i = 0; i < 5; i++) {
        clock_pass(LONG_MS);
        span_purging_lock();
        CHECK_EQ(span_decay(SPAN_PACE_WORK, UINT64_MAX, &more).tried_pages, 0);
        span_purging_unlock();
        CHECK(!more);
    }
    CHECK_EQ(counts_now().dirty_pages, PART);
    clock_pass(LONG_MS);
    decay_at(SPAN_PACE_IDLE, UINT64_MAX); /* as nobody works it goes */
    CHECK(counts_now().dirty_pages <= KEPT_PAGES);
}

TEST(a_part_of_a_huge_page_is_not_due) { IN_CHILD(decay_of_a_part); }

TEST(at_once_and_never_stay_so) { IN_CHILD(half_life_of_extremes); }
