/* settings_test.c - options that a program sets while it runs, and what it compiled in.
 *
 * Planted defects it was seen to catch:
 *   large blocks take the reserve   a_hard_limit_is_kept
 *   told at every look              above_a_soft_limit_once_is_enough
 *   told at the next look only      one_block_is_enough_for_a_soft_limit
 *   told by the callback itself     a_callback_is_not_called_by_what_it_does
 *   who must shrink keeps all       what_is_made_small_beyond_a_hard_limit_is_small
 *   a callback that comes late      who_asks_late_is_told
 *   errno is what a callback left   a_callback_does_not_show_in_errno
 *   read while it is written        what_is_read_was_set
 *   handlers wait for the lock      handlers_do_not_wait_for_what_they_interrupted
 */
#include "blocks.h"
#include "child.h"

#ifndef TEST_AGAINST_LIBC

#include "api/settings.h"
#include "span/span.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>

const char *hakmem_conf = "thread_cache:3MiB,decay:450ms";

static const char *value_of(const char *name) {
    static char value[192];
    CHECK_EQ(hak_option_get(name, value, sizeof value), 0);
    return value;
}

TEST(what_is_compiled_in_holds) {
    CHECK(strcmp(value_of("thread_cache"), "3MiB") == 0);
    CHECK(strcmp(hak_option_source("thread_cache"), "program") == 0);
    CHECK(strcmp(value_of("decay"), "450ms") == 0);
    CHECK(strcmp(value_of("huge_pages"), "auto") == 0);
    CHECK(strcmp(hak_option_source("huge_pages"), "default") == 0);
}

TEST(what_is_set_holds) {
    struct span_counts counts;
    CHECK_EQ(hak_option_set("decay", "2s"), 0);
    CHECK(strcmp(value_of("decay"), "2s") == 0);
    CHECK(strcmp(hak_option_source("decay"), "api") == 0);
    span_counts_read(&counts);
    CHECK_EQ(counts.half_life_ms, 2000);
    CHECK_EQ(hak_option_set("decay", "never"), 0);
    CHECK(strcmp(value_of("decay"), "never") == 0);
}

TEST(what_cannot_be_set_says_why) {
    char small[4] = "abc";
    errno = 0;
    CHECK(hak_option_set("decays", "2s") == -1 && errno == ENOENT);
    CHECK(hak_option_set("decay", "soon") == -1 && errno == EINVAL);
    CHECK(hak_option_set("bin_depth", "5") == -1 && errno == EPERM);
    CHECK(hak_option_get("decays", small, sizeof small) == -1 && errno == ENOENT);
    CHECK(hak_option_get("huge_pages", small, sizeof small) == -1 && errno == ERANGE);
    CHECK(strcmp(small, "abc") == 0);
    CHECK(hak_option_get("huge_pages", small, 0) == -1 && errno == ERANGE);
    CHECK(hak_option_source("decays") == NULL);
}

/* Paths of different lengths and letters, each of one letter. */
enum { SETS = CHECK_SHADOWED ? 5000 : 500000 };
static atomic_bool over;

static void *set_often(void *unused) {
    char path[180];
    for (int i = 0; i < SETS; i++) {
        const size_t length = i % 2 == 0 ? sizeof path - 1 : 20;
        memset(path, 'a' + i % 2, length);
        path[length] = '\0';
        CHECK_EQ(hak_option_set("stats_file", path), 0);
    }
    atomic_store(&over, true);
    return unused;
}

static void read_what_is_set(void) {
    pthread_t setter;
    CHECK_EQ(pthread_create(&setter, NULL, set_often, NULL), 0);
    while (!atomic_load(&over)) {
        const char *path = value_of("stats_file");
        const size_t length = strlen(path);
        if (length == 0) continue; /* not yet */
        CHECK(length == (path[0] == 'a' ? 179 : 20) && strspn(path, (char[]){path[0], '\0'}) == length);
    }
    pthread_join(setter, NULL);
}

TEST(what_is_read_was_set) { IN_CHILD(read_what_is_set); }

static volatile sig_atomic_t handled, refused;

static void set_and_read(int signal) {
    (void)signal;
    char value[32];
    const int saved = errno;
    handled++;
    if (hak_option_set("decay", "2s") != 0) refused += errno == EAGAIN ? 1 : 1000000;
    CHECK_EQ(hak_option_get("decay", value, sizeof value), 0);
    errno = saved;
}

/* Or it would wait for ever for what it interrupted. */
static void set_in_handlers(void) {
    enum { CALLS = 200 };
    const struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    CHECK(signal(SIGALRM, set_and_read) != SIG_ERR);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    while (handled < CALLS) {
        const int done = hak_option_set("decay", "1s");
        CHECK(done == 0);
    }
    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    CHECK(refused < 1000000); /* for no other reason */
}
TEST(handlers_do_not_wait_for_what_they_interrupted) { IN_CHILD(set_in_handlers); }

static char said[1 << 20];

/* What BODY writes. */
static const char *written_by(int (*body)(int fd)) {
    int file = memfd_create("said", MFD_CLOEXEC);
    CHECK(file >= 0 && body(file) == 0);
    ssize_t length = pread(file, said, sizeof said - 1, 0);
    CHECK(length > 0);
    said[length] = '\0';
    close(file);
    return said;
}

static int print_settings(int fd) { return settings_print(fd) ? 0 : -1; }
static int write_json(int fd) { return hak_stats_write(fd, HAK_STATS_JSON); }

TEST(every_setting_is_shown) {
    const char *text = written_by(print_settings);
    CHECK(strstr(text, "{\"name\": \"thread_cache\", \"value\": \"3MiB\", \"source\": \"program\", \"default\": \"16MiB\"") != NULL);
    CHECK(strstr(text, "{\"name\": \"stats_file\", \"value\": \"\"") != NULL);
    const char *shown = strstr(text, "{\"name\": \"window\", \"value\": \"auto\"");
    CHECK(shown != NULL && strstr(shown, "\"decided\": \"") < strstr(shown, "\"accepts\""));
    CHECK(strstr(text, "], \"other_variables\": [\"conf\"") != NULL);
    CHECK(!settings_print(-1) && errno == EBADF);
}

static void report_failures(void) {
    static void *volatile result;
    CHECK_EQ(hak_option_set("decay", "never"), 0);
    CHECK_EQ(hak_option_set("hard_limit", "16MiB"), 0);
    result = hak_malloc(MIB(20));
    CHECK(result == NULL);
    for (int i = 0; i < 100000 && (result = hak_malloc(1000)) != NULL; i++) continue;
    CHECK(result == NULL);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0); /* whoever counts lines needs memory at the end */
    const char *text = written_by(write_json);
    CHECK(strstr(text, "\"half_life_ms\": null") != NULL);
    CHECK(strstr(text, "\"cause\": \"exhaustion\", \"bytes\": 20971520, \"alignment\": 16, \"limit_bytes\": 16777216") != NULL);
    CHECK(strstr(text, "\"block_bytes\": 1040}") != NULL || strstr(text, "\"block_bytes\": 1008}") != NULL);
    errno = 0;
    CHECK(hak_stats_write(-1, HAK_STATS_TEXT) == -1 && errno == EBADF);
    CHECK(hak_stats_write(1, (enum hak_stats_form)3) == -1 && errno == EINVAL);
}

TEST(a_report_has_the_last_failures) { IN_CHILD(report_failures); }

static void reset_peaks(void) {
    struct span_counts counts;
    hak_free(hak_malloc(MIB(64)));
    hak_stats_reset_peaks();
    span_counts_read(&counts);
    CHECK(counts.used_pages_peak * PAGE_BYTES < MIB(64));
}

TEST(peaks_begin_anew) { IN_CHILD(reset_peaks); }

/* ---- limits --------------------------------------------------------------------------------------------- */

static void *blocks[4096];

static void keep_to_hard_limit(void) {
    CHECK_EQ(hak_option_set("hard_limit", "64MiB"), 0);
    size_t count = 0, small = 0;
    while (count < 4096 && (blocks[count] = hak_malloc(MIB(1))) != NULL) count++;
    CHECK_EQ(errno, ENOMEM);
    CHECK_AT(count >= 50 && count <= 60, count); /* 4 MiB are left */
    /* For small blocks there is a reserve: enough to notice, and to unwind. */
    while (small < 100 && (blocks[count + small] = hak_malloc(1000)) != NULL) small++;
    CHECK_EQ(small, 100);
    while (count + small < 4096 && (blocks[count + small] = hak_malloc(KIB(64))) != NULL) small++;
    CHECK(count + small < 4096);
    CHECK(hak_realloc(blocks[0], MIB(2)) == NULL);
    CHECK(hak_malloc(MIB(1)) == NULL);
    for (size_t i = 0; i < count + small; i++) hak_free(blocks[i]);
    void *block = hak_malloc(MIB(40));
    CHECK(block != NULL);
    CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
    void *more = hak_malloc(MIB(200));
    CHECK(more != NULL);
    hak_free(block);
    hak_free(more);
}

TEST(a_hard_limit_is_kept) { IN_CHILD(keep_to_hard_limit); }

/* A block that was to become a small one, and could not have another place, keeps no more than it needs where it lies. */
static void shrink_beyond_hard_limit(void) {
    for (size_t bytes = KIB(100); bytes <= MIB(40); bytes *= 20) {
        char *block = hak_malloc(bytes);
        CHECK(block != NULL);
        memset(block, 'x', 100);
        CHECK_EQ(hak_option_set("hard_limit", "16MiB"), 0);
        while (hak_malloc(100) != NULL) {}
        CHECK_EQ(hak_realloc(block, 100), block);
        CHECK(hak_usable_size(block) <= PAGE_BYTES);
        for (int i = 0; i < 100; i++) CHECK_AT(block[i] == 'x', i);
        CHECK_EQ(hak_option_set("hard_limit", "none"), 0);
        hak_free(block);
    }
}

TEST(what_is_made_small_beyond_a_hard_limit_is_small) { IN_CHILD(shrink_beyond_hard_limit); }

/* What is free but not given back counts, too: it makes room first. */
static void make_room(void) {
    enum { BLOCKS = 16 };
    CHECK_EQ(hak_option_set("decay", "never"), 0);
    CHECK_EQ(hak_option_set("hard_limit", "64MiB"), 0);
    size_t before = resident_bytes();
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = hak_malloc(MIB(2))) != NULL);
        memset(blocks[i], 1, MIB(2));
    }
    for (int i = 0; i < BLOCKS; i += 2) hak_free(blocks[i]); /* each between two that stay */
    void *block = hak_malloc(MIB(40));
    CHECK(block != NULL);
    memset(block, 1, MIB(40));
    size_t more = resident_bytes() - before;
    CHECK_AT(CHECK_SHADOWED || more < MIB(64 + 4), more); /* not 72 MiB */
    hak_free(block);
    for (int i = 1; i < BLOCKS; i += 2) hak_free(blocks[i]);
}

TEST(below_a_hard_limit_free_memory_is_no_hindrance) { IN_CHILD(make_room); }

static int calls;
static void *of_callback;

static void free_some(void *context) {
    calls++;
    hak_free(of_callback); /* it may allocate and free */
    of_callback = NULL;
    hak_free(hak_malloc(100));
    CHECK(context == &calls);
}

/* Nothing can be freed: once is enough. */
static void count_call(void *context) { ++*(int *)context; }

static void stay_above_soft_limit(void) {
    hak_on_soft_limit(count_call, &calls);
    CHECK_EQ(hak_option_set("soft_limit", "32MiB"), 0);
    void *block = hak_malloc(MIB(40));
    for (int i = 0; i < 1000; i++) hak_free(hak_malloc(MIB(2)));
    CHECK_EQ(calls, 1);
    hak_free(block);
}

TEST(above_a_soft_limit_once_is_enough) { IN_CHILD(stay_above_soft_limit); }

static void *take_one(void) { return hak_malloc(MIB(40)); }
static void *grow_one(void) { return hak_realloc(hak_malloc(KIB(800)), MIB(40)); }
static void *expand_one(void) {
    void *block = hak_malloc(MIB(20));
    if (hak_try_expand(block, MIB(40)) == 0) SKIP("something lies behind it");
    return block;
}
static void *(*const ways[])(void) = {take_one, grow_one, expand_one};
static size_t way;

static void cross_soft_limit(void) {
    hak_on_soft_limit(count_call, &calls);
    CHECK_EQ(hak_option_set("soft_limit", "32MiB"), 0);
    CHECK(ways[way]() != NULL);
    CHECK_EQ(calls, 1); /* nothing need follow */
}

TEST(one_block_is_enough_for_a_soft_limit) {
    for (way = 0; way < 3; way++) IN_CHILD(cross_soft_limit);
}

/* The callback comes below the limit and crosses it again. */
static void replace(void *context) {
    calls++;
    hak_free(of_callback);
    of_callback = hak_malloc(MIB(30));
    CHECK(context == &calls && calls == 1);
}

static void cross_in_the_callback(void) {
    CHECK_EQ(hak_option_set("soft_limit", "64MiB"), 0);
    of_callback = hak_malloc(MIB(40));
    hak_on_soft_limit(replace, &calls);
    void *blocks_beside[] = {hak_malloc(MIB(18)), hak_malloc(MIB(22))};
    for (int i = 0; i < 100; i++) hak_free(hak_malloc(MIB(2)));
    CHECK_EQ(calls, 1);
    CHECK(blocks_beside[0] != NULL && blocks_beside[1] != NULL);
}

TEST(a_callback_is_not_called_by_what_it_does) { IN_CHILD(cross_in_the_callback); }

/* Set when there is more in use already, it is called all the same; and so is the one that takes its place. */
static void ask_late(void) {
    int others = 0;
    CHECK_EQ(hak_option_set("soft_limit", "32MiB"), 0);
    void *block = hak_malloc(MIB(40));
    for (int i = 0; i < 100; i++) hak_free(hak_malloc(MIB(2)));
    hak_on_soft_limit(count_call, &calls);
    for (int i = 0; i < 1000; i++) hak_free(hak_malloc(MIB(2)));
    CHECK_EQ(calls, 1);
    hak_on_soft_limit(count_call, &others);
    for (int i = 0; i < 1000; i++) hak_free(hak_malloc(MIB(2)));
    CHECK_EQ(calls, 1);
    CHECK_EQ(others, 1);
    hak_free(block);
}

TEST(who_asks_late_is_told) { IN_CHILD(ask_late); }

static void *ask_until_over(void *unused) {
    while (!atomic_load(&over)) hak_on_soft_limit(count_call, &calls);
    return unused;
}

/* Many of these are forked in the middle of a change by the other thread. */
static void ask_beside_changes(void) {
    pthread_t other;
    CHECK_EQ(pthread_create(&other, NULL, ask_until_over, NULL), 0);
    for (size_t i = 0; i < check_count(30); i++) IN_CHILD(stay_above_soft_limit);
    atomic_store(&over, true);
    pthread_join(other, NULL);
}

TEST(a_child_is_told_though_its_parent_was_changing_that) { IN_CHILD(ask_beside_changes); }

static void spoil_errno(void *context) {
    count_call(context);
    errno = EBADF;
}

/* One free after the other is a look, and some malloc. */
static void call_with_errno(void) {
    CHECK_EQ(hak_option_set("soft_limit", "32MiB"), 0);
    void *block = hak_malloc(MIB(40));
    for (int i = 0; i < 100; i++) {
        hak_on_soft_limit(spoil_errno, &calls);
        errno = 4711;
        void *other = hak_malloc(MIB(2));
        CHECK_EQ(errno, 4711);
        hak_free(other);
        CHECK_EQ(errno, 4711);
    }
    CHECK(calls >= 10);
    hak_free(block);
}

TEST(a_callback_does_not_show_in_errno) { IN_CHILD(call_with_errno); }

static void keep_to_soft_limit(void) {
    hak_on_soft_limit(free_some, &calls);
    CHECK_EQ(hak_option_set("soft_limit", "32MiB"), 0);
    for (int round = 1; round <= 3; round++) {
        of_callback = hak_malloc(MIB(20));
        CHECK_EQ(calls, round - 1);
        void *block = hak_malloc(MIB(20));
        for (int i = 0; i < 100; i++) hak_free(hak_malloc(MIB(2))); /* a look, sooner or later: what was purged just now is not again */
        CHECK_EQ(calls, round);
        CHECK(block != NULL && of_callback == NULL);
        hak_free(block);
        for (int i = 0; i < 100; i++) hak_free(hak_malloc(MIB(2)));
    }
    hak_on_soft_limit(NULL, NULL);
    void *block = hak_malloc(MIB(40));
    for (int i = 0; i < 100; i++) hak_free(hak_malloc(MIB(2)));
    CHECK_EQ(calls, 3);
    hak_free(block);
}

TEST(a_soft_limit_is_told) { IN_CHILD(keep_to_soft_limit); }

#else

TEST(glibc_has_no_such_functions) { OMIT("tested under the hak_ names"); }

#endif
