/* decisions_test.c - what is written down of the engine's decisions: all that change something, each once.
 *
 * Planted defects it was seen to catch:
 *   a decision is told twice                        depths_are_told_as_they_change
 *   a bin that made room is not told                depths_are_told_as_they_change
 *   every refusal is told                           a_refusal_is_told_once
 *   what is as it was is told                       the_half_life_is_told
 */
#include "watch/decisions.h"

#include "ace/decay.h"
#include "ace/depth.h"
#include "blocks.h"
#include "child.h"
#include "heap/thread.h"
#include "span/state.h"
#include "watch/report.h"

#include <sys/mman.h>

/* ---- what is kept --------------------------------------------------------------------------------------- */

static void note_two(void) {
    struct decision decision;
    const uint64_t before = decisions_made(), swings = counter_read(&decision_counts[ACE_REASON_SWING]);
    uint64_t time_ms = 0;
    for (uint64_t i = 1; i <= 2; i++) {
        decision_note(&(struct ace_decision){ACE_REASON_SWING, 3, 10 * i, i, 20 * i, {30 * i, 40 * i, 50 * i}});
        CHECK_EQ(decisions_made(), before + i);
        CHECK(decision_read(before + i, &decision) && !decision_read(before + i + 1, &decision));
        CHECK(decision_read(before + i, &decision));
        CHECK(decision.number == before + i && decision.reason == ACE_REASON_SWING && decision.class == 3);
        CHECK(decision.thread_id == 10 * i && decision.from == i && decision.to == 20 * i);
        CHECK(decision.input0 == 30 * i && decision.input1 == 40 * i && decision.input2 == 50 * i);
        CHECK(decision.time_ms >= time_ms && decision.time_ms < 1000 * 1000);
        time_ms = decision.time_ms;
    }
    CHECK_EQ(counter_read(&decision_counts[ACE_REASON_SWING]), swings + 2);
}

TEST(a_decision_is_kept_as_it_was_made) { IN_CHILD(note_two); }

/* ---- depths --------------------------------------------------------------------------------------------- */

enum { MOST_BLOCKS = 3000 };
static void *blocks[MOST_BLOCKS];

static void burst(size_t bytes, size_t count) {
    for (size_t i = 0; i < count; i++) CHECK((blocks[i] = hak_malloc(bytes)) != NULL);
    for (size_t i = 0; i < count; i++) hak_free(blocks[i]);
}

static bool is_refusal(uint64_t reason) { return reason == ACE_REASON_NO_BUDGET || reason == ACE_REASON_NO_MEMORY; }

/* Every depth of the running thread's bins follows from what was told since decision FIRST; returns how often the depth of
 * some bin changed. */
static uint64_t check_chain(uint64_t first) {
    const struct heap *heap = thread_heap();
    CHECK(heap != NULL && decisions_made() - first < DECISIONS_KEPT); /* all are there */
    uint64_t depths[SIZE_CLASSES], changes = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) depths[class] = ace_depth_first(slab_classes[class].block_bytes, ACE_BALANCED);
    for (uint64_t number = first; number <= decisions_made(); number++) {
        struct decision decision;
        CHECK_AT(decision_read(number, &decision), number);
        if (decision_reasons[decision.reason].kind != ACE_KIND_DEPTH) continue;
        if (decision.thread_id != (uint64_t)gettid()) continue;
        CHECK_AT(decision.class < SIZE_CLASSES && decision.from == depths[decision.class], number);
        CHECK_AT((decision.from == decision.to) == is_refusal(decision.reason), number);
        depths[decision.class] = decision.to;
        changes += decision.from != decision.to;
    }
    for (unsigned class = 0; class < SIZE_CLASSES; class++) CHECK_AT(depths[class] == heap->bins[class].depth, class);
    return changes;
}

static uint64_t told(enum ace_reason reason) { return counter_read(&decision_counts[reason]); }

static void *swing_in_little(void *first) {
    CHECK_EQ(hak_option_set("thread_cache", "64KiB"), 0);
    burst(64, 200);
    CHECK(check_chain(*(uint64_t *)first) >= 2);
    for (int round = 0; round < 6; round++) {
        for (size_t bytes = 16; bytes <= 256; bytes *= 2) burst(bytes, 600);
        CHECK(check_chain(*(uint64_t *)first) >= 3);
    }
    CHECK(told(ACE_REASON_SWING) != 0 && told(ACE_REASON_MADE_ROOM) != 0 && told(ACE_REASON_NO_BUDGET) != 0);
    return NULL;
}

static void swing_in_a_thread(void) {
    pthread_t thread;
    uint64_t first = decisions_made() + 1;
    CHECK_EQ(pthread_create(&thread, NULL, swing_in_little, &first), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(depths_are_told_as_they_change) { IN_CHILD(swing_in_a_thread); }

static void refuse_often(void) {
    CHECK_EQ(hak_option_set("thread_cache", "64KiB"), 0);
    for (int i = 0; i < 10; i++) burst(1024, 100); /* as deep as it gets */
    const uint64_t refused = told(ACE_REASON_NO_BUDGET), made = decisions_made();
    CHECK(refused != 0);
    for (int i = 0; i < 100; i++) burst(1024, 100);
    CHECK_EQ(told(ACE_REASON_NO_BUDGET), refused);
    CHECK_EQ(decisions_made(), made);
}

TEST(a_refusal_is_told_once) { IN_CHILD(refuse_often); }

/* ---- the process ------------------------------------------------------------------------------------------ */

static struct ace_decision last_told;
static int times_told;

static void remember(const struct ace_decision *decision) {
    last_told = *decision;
    times_told++;
}

static void forget_half_life(void) {
    span_configure(&(struct span_settings){.decay_half_life_ms = 500, .huge_from_pages = UINT64_MAX, .keeper = remember});
    span_decay_forget();
    CHECK_EQ(times_told, 0); /* it is what it was */
    counter_set(&spans.counts.half_life_ms, 2000);
    span_decay_forget();
    CHECK_EQ(times_told, 1);
    CHECK_EQ(last_told.reason, ACE_REASON_FORGOTTEN);
    CHECK(last_told.thread_id == 0 && last_told.from == 2000 && last_told.to == 500);
}

TEST(the_half_life_is_told) { IN_CHILD(forget_half_life); }

static void use_much(void) {
    const uint64_t before = told(ACE_REASON_IN_USE);
    CHECK_EQ(hak_option_set("huge_pages", "auto"), 0);
    for (int i = 0; i < 40; i++) {
        void *block = hak_malloc(MIB(2));
        CHECK(block != NULL);
        memset(block, 1, MIB(2));
    }
    struct decision decision;
    uint64_t pages = 0, after = told(ACE_REASON_IN_USE);
    CHECK(after > before);
    for (uint64_t number = 1; number <= decisions_made(); number++) {
        if (!decision_read(number, &decision)) continue;
        const bool collapsed = decision.reason == ACE_REASON_RESIDENT; /* what there was before */
        if (decision.reason != ACE_REASON_IN_USE && !collapsed) continue;
        CHECK(decision.from == pages && decision.to > pages && decision.thread_id == 0);
        CHECK(collapsed || decision.input0 + (decision.to - decision.from) >= decision.input1); /* in use, and what is needed to admit them */
        pages = decision.to;
    }
    struct span_counts counts;
    span_counts_read(&counts);
    CHECK_EQ(pages, counts.huge_pages);
}

TEST(huge_pages_are_told) { IN_CHILD(use_much); }

static void touch_little(void) {
    const uint64_t asked = told(ACE_REASON_IN_USE);
    CHECK_EQ(hak_option_set("huge_pages", "auto"), 0);
    for (int i = 0; i < 200; i++) CHECK(hak_malloc(MIB(2)) != NULL);
    CHECK_EQ(told(ACE_REASON_IN_USE), asked);
    CHECK(told(ACE_REASON_UNTOUCHED) != 0 && told(ACE_REASON_UNTOUCHED) < 20); /* each a quarter later */
}

TEST(huge_pages_that_are_not_asked_for_are_told) { IN_CHILD(touch_little); }

/* ---- reports ------------------------------------------------------------------------------------------------ */

static char text[1 << 20];

static const char *report(enum report_form form) {
    int file = memfd_create("report", MFD_CLOEXEC);
    CHECK(file >= 0 && report_write(file, form));
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    CHECK(length > 0);
    text[length] = '\0';
    close(file);
    return text;
}

static void report_one(void) {
    char json[300];
    decision_note(&(struct ace_decision){
        .reason = ACE_REASON_SWING, .class = 3, .thread_id = 4711, .from = 32, .to = 64, .inputs = {2, 1}});
    snprintf(json, sizeof json,
             "\"kind\": \"depth\", \"reason\": \"swing\", \"thread_id\": 4711, \"block_bytes\": %u, \"from\": 32, \"to\": 64, "
             "\"inputs\": {\"refilled_blocks\": 2, \"spilled_blocks\": 1}}",
             (unsigned)slab_classes[3].block_bytes);
    CHECK(strstr(report(REPORT_JSON), json) != NULL);
    decision_note(&(struct ace_decision){.reason = ACE_REASON_QUIET, .from = 2000, .to = 500, .inputs = {8000}});
    CHECK(strstr(report(REPORT_JSON), "\"kind\": \"half_life\", \"reason\": \"quiet\", \"from\": 2000, \"to\": 500, "
                                      "\"inputs\": {\"quiet_ms\": 8000}}") != NULL);
    CHECK(strstr(report(REPORT_TEXT), "  decisions       half_life    quiet        1\n") != NULL);
    CHECK(strstr(report(REPORT_OPENMETRICS), "hakmem_decisions_made_total{kind=\"half_life\",reason=\"quiet\"} 1\n") != NULL);
}

TEST(reports_say_what_was_decided) { IN_CHILD(report_one); }
