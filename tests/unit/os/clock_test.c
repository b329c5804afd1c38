/* clock_test.c - the clock that decay goes by, beside the exact one.
 *
 * Planted defects it was seen to catch:
 *   microseconds, or seconds, for milliseconds   it_runs_with_the_monotonic_clock
 *   time since 1970 (CLOCK_REALTIME_COARSE)      it_runs_with_the_monotonic_clock
 *   a sleep that a signal ended was refused      a_signal_ends_a_sleep
 */
#include "blocks.h"
#include "child.h"
#include "os/os.h"

#include <sys/time.h>
#include <time.h>

static uint64_t exact_ms(void) {
    struct timespec now;
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, &now), 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A tick of the coarse clock is at most 10 ms; it is never ahead of the exact one. A machine that is busy may be late with a tick, but
 * not with most of them. */
TEST(it_runs_with_the_monotonic_clock) {
    uint64_t start = exact_ms(), seen = 0, changes = 0, reads = 0, late = 0;
    errno = 4711;
    while (exact_ms() < start + (changes < 5 ? 10000 : 120)) {
        uint64_t before = exact_ms(), now = os_clock_ms(), after = exact_ms();
        CHECK_AT(now <= after, now);
        CHECK_AT(now >= seen, now);
        reads++;
        late += now + 25 < before;
        changes += now != seen;
        seen = now;
    }
    CHECK(changes >= 5);
    CHECK_AT(late < reads / 2, late);
    CHECK_EQ(errno, 4711);
}

static void *read_often(void *unused) {
    uint64_t seen = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t now = os_clock_ms();
        CHECK(now >= seen);
        seen = now;
    }
    return unused;
}

TEST(it_never_goes_back_in_any_thread) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&threads[i], NULL, read_often, NULL), 0);
    for (int i = 0; i < 3; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static volatile sig_atomic_t signals;
static void note_signal(int number) {
    (void)number;
    signals = 1;
}

static void sleep_until_a_signal(void) {
    enum { LONG_MS = 1000 * 1000 };
    CHECK(signal(SIGALRM, note_signal) != SIG_ERR);
    const uint64_t start = exact_ms();
    const struct itimerval often = {{0, 200000}, {0, 200000}}; /* one may come before the sleep */
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    errno = 4711;
    CHECK(os_sleep_ms(LONG_MS));
    CHECK_EQ(errno, 4711);
    CHECK(signals != 0 && exact_ms() < start + LONG_MS);
}

/* Whoever sleeps was not refused: the purge thread would end. */
TEST(a_signal_ends_a_sleep) { IN_CHILD(sleep_until_a_signal); }
