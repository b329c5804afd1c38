/* failures_test.c - why an allocation failed.
 *
 * Planted defects it was seen to catch:
 *   the refusal before is taken for the cause   causes_are_not_those_of_before
 *   only traced failures count                  too_large_a_block_is_over_the_threshold
 *   a block that cannot move has failed         a_block_that_stays_is_no_failure
 *   no_limit_is_a_large_one                     a_report_says_what_was_refused
 */
#include "watch/failures.h"

#include "../../faults/fail_calls.h"
#include "blocks.h"
#include "child.h"
#include "heap/front.h"
#include "os/os.h"
#include "watch/report.h"

#include <sys/mman.h>
#include <sys/resource.h>

static uint64_t failures_by(enum failure_cause cause) { return counter_read(&failure_counts[cause]); }

static uint64_t all_failures(void) {
    uint64_t sum = 0;
    for (int cause = 0; cause < FAILURE_CAUSE_COUNT; cause++) sum += failures_by((enum failure_cause)cause);
    return sum;
}

/* The newest. */
static struct failure last_failure(void) {
    struct failure last;
    CHECK(failure_read(failures_made(), &last));
    return last;
}

static void *volatile result; /* or the compiler knows what comes of it */

TEST(too_large_a_block_is_over_the_threshold) {
    uint64_t before = failures_by(FAILURE_THRESHOLD), all = all_failures();
    size_t most = PTRDIFF_MAX;
    result = hak_malloc(most + 1);
    CHECK(result == NULL && errno == ENOMEM);
    struct failure failure = last_failure();
    CHECK_EQ(failure.cause, FAILURE_THRESHOLD);
    CHECK(failure.bytes == most + 1);
    CHECK_EQ(failure.limit, PTRDIFF_MAX);
    CHECK_EQ(failure.class, SIZE_CLASSES);
    result = hak_calloc(SIZE_MAX / 2, 3);
    CHECK(result == NULL);
    CHECK(last_failure().bytes == SIZE_MAX);
    result = hak_reallocarray(NULL, SIZE_MAX / 2, 3);
    CHECK(result == NULL);
    result = hak_aligned_alloc(4096, SIZE_MAX - 5000);
    CHECK(result == NULL);
    CHECK_EQ(last_failure().alignment, 4096);
    CHECK_EQ(failures_by(FAILURE_THRESHOLD), before + 4);
    CHECK_EQ(all_failures(), all + 4);
}

static void ask_refused(void) {
    static const int errors[] = {ENOMEM, EPERM, EAGAIN};
    for (size_t i = 0; i < 3; i++) {
        uint64_t before = failures_by(FAILURE_MAP);
        fail_arm(FAIL_ANY, 1, true, errors[i]);
        result = hak_malloc(GIB(1));
        fail_disarm();
        CHECK(result == NULL && errno == ENOMEM);
        struct failure failure = last_failure();
        CHECK_EQ(failure.cause, FAILURE_MAP);
        CHECK_EQ(failure.error, errors[i]);
        CHECK(failure.call == OS_CALL_MMAP || failure.call == OS_CALL_MPROTECT);
        CHECK_EQ(failure.bytes, GIB(1));
        CHECK_EQ(failure.thread_id, (uint64_t)gettid());
        CHECK_EQ(failures_by(FAILURE_MAP), before + 1);
    }
}

static void set_address_limit(rlim_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) SKIP("address space is limited");
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0 && getrlimit(RLIMIT_AS, &limit) == 0);
    if (limit.rlim_cur != bytes) OMIT("an emulator sets no limit");
}

static void report_refused(void) {
    static char text[1 << 20];
    int file = memfd_create("report", MFD_CLOEXEC);
    ask_refused();
    set_address_limit(UINT64_C(1) << 50);
    ask_refused();
    CHECK(file >= 0 && report_write(file, REPORT_JSON));
    CHECK(pread(file, text, sizeof text - 1, 0) > 0);
    CHECK(strstr(text, "\"cause\": \"map_failure\", \"bytes\": 1073741824, ") != NULL);
    CHECK(strstr(text, "\"call\": \"m") != NULL && strstr(text, "\"error\": \"EPERM\"") != NULL);
    CHECK(strstr(text, "\"limit_bytes\": 1125899906842624, ") != NULL && strstr(text, "\"limit_bytes\": null, ") != NULL);
}

TEST(a_report_says_what_was_refused) { IN_CHILD(report_refused); }

TEST(what_the_kernel_refuses_is_a_map_failure) { IN_CHILD(ask_refused); }

static void ask_beyond_the_limit(void) {
    CHECK_EQ(hak_option_set("hard_limit", "64MiB"), 0);
    uint64_t before = failures_by(FAILURE_EXHAUSTION);
    result = hak_malloc(MIB(80));
    CHECK(result == NULL && errno == ENOMEM);
    CHECK_EQ(last_failure().cause, FAILURE_EXHAUSTION);
    CHECK_EQ(last_failure().limit, MIB(64));
    CHECK_EQ(failures_by(FAILURE_EXHAUSTION), before + 1);
}

TEST(a_limit_is_exhaustion) { IN_CHILD(ask_beyond_the_limit); }

/* Nothing is left for a smaller block, and it stays where it is. */
static void shrink_in_vain(void) {
    static const size_t sizes[] = {MIB(1), KIB(60), 100};
    void *block = hak_malloc(KIB(60));
    CHECK_EQ(hak_option_set("hard_limit", "64MiB"), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        while ((result = hak_malloc(sizes[i])) != NULL) continue;
    const uint64_t before = failures_made();
    errno = 4711;
    result = hak_realloc(block, 100);
    CHECK(result == block && errno == 4711);
    CHECK_EQ(failures_made(), before);
    result = hak_realloc(block, MIB(2));
    CHECK(result == NULL && errno == ENOMEM);
    CHECK_EQ(failures_made(), before + 1);
    CHECK_EQ(last_failure().bytes, MIB(2));
}

TEST(a_block_that_stays_is_no_failure) { IN_CHILD(shrink_in_vain); }

/* An earlier refusal that did not matter is not the cause of a later failure. */
static void be_refused_and_exhausted(void) {
    void *block = hak_malloc(MIB(1));
    fail_arm(FAIL_MREMAP, 1, true, 0);
    hak_free(hak_realloc(block, MIB(3)));
    fail_arm(FAIL_MMAP, 1, true, EPERM);
    result = hak_malloc(GIB(1)); /* perhaps refused */
    fail_disarm();
    hak_free(result);
    ask_beyond_the_limit();
}

TEST(causes_are_not_those_of_before) { IN_CHILD(be_refused_and_exhausted); }

TEST(a_small_block_has_a_class) {
    uint64_t all = all_failures();
    failure_note(100, 16);
    CHECK_EQ(last_failure().class, size_class_of(100));
    CHECK_EQ(all_failures(), all + 1);
}

static char said[4096];

static void fail_traced(void) {
    int file = memfd_create("said", MFD_CLOEXEC);
    failures_configure(true); /* the option would have lines go to no other file than this standard error */
    CHECK(file >= 0);
    dup2(file, STDERR_FILENO);
    size_t most = PTRDIFF_MAX;
    result = hak_malloc(most + 1);
    fail_arm(FAIL_ANY, 1, true, EPERM);
    result = hak_malloc(GIB(1));
    fail_disarm();
    CHECK(pread(file, said, sizeof said - 1, 0) > 0);
    CHECK(strstr(said, "hakmem: no memory for 9223372036854775808 bytes aligned to 16: threshold: no block may be so large; ") !=
          NULL);
    CHECK(strstr(said, "hakmem: no memory for 1073741824 bytes aligned to 16: map_failure: the kernel refused memory (m") != NULL);
    CHECK(strstr(said, ": EPERM); ") != NULL);
}

TEST(traced_failures_are_lines) { IN_CHILD(fail_traced); }
