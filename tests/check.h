/* check.h - the checks and the runner of every C and C++ test.
 *
 * One executable per test file:
 *
 *     #include "check.h"
 *     TEST(zero_is_even) { CHECK_EQ(0 % 2, 0); }
 *
 *     program [--seed=N] [--scale=N] [--watchdog=SECONDS] [--list] [name ...]
 *
 * runs all its tests, or those named, and prints `ok name`, `skip name: reason` or
 * `FAIL name: file:line expression`. Exit status: 0 when none failed, 1 when one did, 2 when a name
 * is not known, 77 when all were skipped.
 *
 * A failed check ends its test. In the thread that runs the tests the next test follows; in another
 * thread or in a forked child the process ends with status 1, since nobody could wait for it; with 77 where the test was skipped.
 *
 * A test that cannot be run says so: SKIP where the machine lacks what it needs, which HAKMEM_STRICT=1 in the environment makes a
 * failure, and OMIT where this build, program, malloc or user is not what it is for.
 *
 * A test that hangs is ended by the watchdog, which is SIGALRM: tests use other signals.
 *
 * The harness allocates nothing, because malloc itself may be what is broken: it formats into the
 * stack and writes with write(2).
 *
 * A program with a main of its own (stress) defines CHECK_NO_MAIN first; a failed check then ends it.
 */
#ifndef HAK_TESTS_CHECK_H
#define HAK_TESTS_CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define CHECK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHECK_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CHECK_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHECK_ASAN 1
#endif
#endif

/* Shadow memory makes resident sizes and address space limits meaningless, and all of it slower. */
#if defined(CHECK_TSAN) || defined(CHECK_ASAN)
#define CHECK_SHADOWED 1
#else
#define CHECK_SHADOWED 0
#endif

/* Everything takes ten times as long. */
#if CHECK_SHADOWED || defined(CHECK_EMULATED) || defined(CHECK_COUNTED)
#define CHECK_SLOW 1
#else
#define CHECK_SLOW 0
#endif

#define CHECK_UNUSED __attribute__((unused))

struct check_test {
    const char *name;
    void (*run)(void);
    bool helper; /* runs only when named: a part that a test executes in a fresh process */
    struct check_test *next;
};

static struct {
    struct check_test *first, **last;
    bool running;
    pid_t process;
    pthread_t thread;
    jmp_buf back;
} check CHECK_UNUSED;

static struct {
    const char *name; /* of the running test, or of the program */
    unsigned long seed, scale, watchdog_seconds;
} check_now CHECK_UNUSED = {"check", 1, 1, CHECK_SHADOWED ? 900 : 150};

enum { CHECK_FAILED = 1, CHECK_SKIPPED = 2, CHECK_NOT_RUN = 77 };

CHECK_UNUSED __attribute__((format(printf, 1, 2))) static void check_say(const char *format, ...) {
    char line[700];
    va_list values;
    va_start(values, format);
    int length = vsnprintf(line, sizeof line - 1, format, values);
    va_end(values);
    if (length < 0) return;
    size_t rest = (size_t)length < sizeof line - 1 ? (size_t)length : sizeof line - 2;
    line[rest++] = '\n';
    for (const char *from = line; rest > 0;) {
        ssize_t written = write(STDOUT_FILENO, from, rest);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        from += written;
        rest -= (size_t)written;
    }
}

CHECK_UNUSED __attribute__((noreturn)) static void check_leave(int how) {
    if (check.running && getpid() == check.process && pthread_equal(pthread_self(), check.thread))
        longjmp(check.back, how);
    _exit(how == CHECK_SKIPPED ? CHECK_NOT_RUN : 1);
}

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            check_say("FAIL %s: %s:%d %s", check_now.name, __FILE__, __LINE__, #condition);                  \
            check_leave(CHECK_FAILED);                                                                       \
        }                                                                                                    \
    } while (0)

/* For integers: says both values. */
#define CHECK_EQ(left, right)                                                                                \
    do {                                                                                                     \
        long long check_left = (long long)(left), check_right = (long long)(right);                          \
        if (check_left != check_right) {                                                                     \
            check_say("FAIL %s: %s:%d %s == %s (%lld and %lld)", check_now.name, __FILE__, __LINE__, #left,  \
                      #right, check_left, check_right);                                                      \
            check_leave(CHECK_FAILED);                                                                       \
        }                                                                                                    \
    } while (0)

/* A check inside a loop: the message says at which value it failed. */
#define CHECK_AT(condition, value)                                                                           \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            check_say("FAIL %s: %s:%d %s at %s = %llu", check_now.name, __FILE__, __LINE__, #condition,      \
                      #value, (unsigned long long)(value));                                                  \
            check_leave(CHECK_FAILED);                                                                       \
        }                                                                                                    \
    } while (0)

#define OMIT(reason)                                                                                         \
    do {                                                                                                     \
        check_say("skip %s: %s", check_now.name, reason);                                                    \
        check_leave(CHECK_SKIPPED);                                                                          \
    } while (0)

/* A sanitizer and an emulator lack what the machine may have: there nothing is asked of it. */
CHECK_UNUSED static bool check_is_strict(void) {
#ifdef CHECK_EMULATED
    return false;
#else
    const char *strict = getenv("HAKMEM_STRICT");
    return !CHECK_SHADOWED && strict && strcmp(strict, "1") == 0;
#endif
}

#define SKIP(reason)                                                                                         \
    do {                                                                                                     \
        if (check_is_strict()) {                                                                             \
            check_say("FAIL %s: %s:%d cannot be run: %s", check_now.name, __FILE__, __LINE__, reason);       \
            check_leave(CHECK_FAILED);                                                                       \
        }                                                                                                    \
        OMIT(reason);                                                                                        \
    } while (0)

#define CHECK_REGISTER(title, is_helper)                                                                     \
    static void test_##title(void);                                                                          \
    __attribute__((constructor)) static void test_register_##title(void) {                                   \
        static struct check_test test = {#title, test_##title, is_helper, NULL};                             \
        if (check.last == NULL) check.last = &check.first;                                                   \
        *check.last = &test;                                                                                 \
        check.last = &test.next;                                                                             \
    }                                                                                                        \
    static void test_##title(void)

#define TEST(title) CHECK_REGISTER(title, false)
#define HELPER(title) CHECK_REGISTER(title, true)

/* How often to repeat: NORMAL times --scale, a tenth of it where everything is slow. */
CHECK_UNUSED static size_t check_count(size_t normal) {
    size_t count = normal * check_now.scale / (CHECK_SLOW ? 10 : 1);
    return count > 0 ? count : 1;
}

/* Whether half of the watchdog's time is left; in the process that runs the tests. Threads that wait for each other in every round need
 * both processors at once: where others want these they do fewer rounds. */
CHECK_UNUSED static bool check_has_time(void) {
    struct itimerval left;
    return getitimer(ITIMER_REAL, &left) == 0 && (unsigned long)left.it_value.tv_sec >= check_now.watchdog_seconds / 2;
}

#ifndef CHECK_NO_MAIN

static void check_watchdog(int signal_number) {
    (void)signal_number;
    check_say("FAIL %s: watchdog after %lu s", check_now.name, check_now.watchdog_seconds);
    _exit(1);
}

/* 0, CHECK_FAILED or CHECK_SKIPPED. */
static int check_run(struct check_test *test) {
    check_now.name = test->name;
    int how = setjmp(check.back);
    if (how == 0) {
        check.running = true;
        alarm((unsigned)check_now.watchdog_seconds);
        test->run();
        if (!test->helper) check_say("ok %s", test->name);
    }
    check.running = false;
    alarm(0);
    return how;
}

static bool check_option(const char *argument) {
    static const char *const names[] = {"--seed=", "--scale=", "--watchdog="};
    unsigned long *const values[] = {&check_now.seed, &check_now.scale, &check_now.watchdog_seconds};
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(argument, names[i], strlen(names[i])) == 0) {
            *values[i] = strtoul(argument + strlen(names[i]), NULL, 0);
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv) {
    int named = 0, results[3] = {0, 0, 0}; /* how many ended well, failed, were skipped */
    check.process = getpid();
    check.thread = pthread_self();
    struct sigaction watchdog;
    memset(&watchdog, 0, sizeof watchdog);
    watchdog.sa_handler = check_watchdog;
    sigaction(SIGALRM, &watchdog, NULL);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--list") == 0) {
            for (struct check_test *test = check.first; test; test = test->next)
                if (!test->helper) check_say("%s", test->name);
            return 0;
        }
        named += !check_option(argv[i]);
    }
    for (int i = 1; i < argc && named > 0; i++) {
        if (check_option(argv[i])) continue;
        struct check_test *test = check.first;
        while (test && strcmp(test->name, argv[i]) != 0) test = test->next;
        if (test == NULL) {
            check_say("FAIL %s: no test of this name", argv[i]);
            return 2;
        }
        results[check_run(test)]++;
    }
    for (struct check_test *test = check.first; test && named == 0; test = test->next)
        if (!test->helper) results[check_run(test)]++;
    if (results[CHECK_FAILED] > 0) return 1;
    return results[0] == 0 && results[CHECK_SKIPPED] > 0 ? CHECK_NOT_RUN : 0;
}

#endif /* CHECK_NO_MAIN */
#endif
