/* message_test.c - what reaches the message descriptor, byte for byte, and what ends the writing. Which
 * descriptor that is: message_descriptor_test.c.
 *
 * Planted defects it was seen to catch:
 *   a partial write is taken for all             what_is_interrupted_arrives_whole
 *   EINTR is taken for an end                    what_is_interrupted_arrives_whole
 *   a full pipe is taken for a broken one        what_is_read_slowly_arrives_whole
 *   nobody's reading is waited for for ever      who_reads_nothing_is_given_up
 *   each signal has a reader waited for anew     signals_do_not_prolong_the_wait
 *   one that reads nothing is taken for all      another_reader_is_waited_for
 *   a long line loses its line end               long_lines_are_cut
 *   a broken pipe ends the program               a_broken_pipe_is_an_error
 *   a file that may not grow ends the program    a_file_at_its_limit_is_an_error
 *   a signal is taken under the program's own filter   own_filters_meet_no_waiting
 *   nothing written, without an error, has none  what_takes_nothing_is_an_error
 *   os_panic ends by exit                        panic_is_a_message_and_an_abort
 */
#include "blocks.h"
#include "child.h"
#include "os/os.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

/* What BODY writes to standard error, in a child; the child's status in *STATUS. */
static const char *heard(void (*body)(void), int *status) {
    static char text[8192];
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t more; (more = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)more;
    text[length] = '\0';
    close(ends[0]);
    *status = -1;
    while (waitpid(child, status, 0) < 0) CHECK_EQ(errno, EINTR);
    return text;
}

static void say_all_conversions(void) {
    errno = 4711;
    os_message("%s %d %u %zu %llu %x %%", "text", -7, 7u, (size_t)1 << 40, 1ull << 63, 0xbeefu);
    os_message("at %p", (void *)(uintptr_t)0x1234);
    os_message("%s", "");
    CHECK_EQ(errno, 4711);
}

static const char all_conversions[] = "hakmem: text -7 7 1099511627776 9223372036854775808 beef %\n"
                                      "hakmem: at 0x1234\n"
                                      "hakmem: \n";

TEST(every_conversion) {
    int status;
    CHECK(strcmp(heard(say_all_conversions, &status), all_conversions) == 0);
    CHECK_EQ(status, 0);
}

static void do_nothing(int number) { (void)number; }

static char very_long_text[MIB(1)];

/* Into a pipe that is mostly full, with a signal each millisecond: some writes are cut short, some write nothing. */
static void write_while_interrupted(int fd) {
    const struct sigaction action = {.sa_handler = do_nothing};
    const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    CHECK_EQ(sigaction(SIGALRM, &action, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    CHECK(os_write(fd, very_long_text, sizeof very_long_text));
    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
    _exit(0);
}

/* All that WRITER writes into a pipe, in a child, read piece by piece with a pause after each. */
static void must_arrive_whole(void (*writer)(int fd), useconds_t pause) {
    static char piece[5000];
    int ends[2];
    for (size_t i = 0; i < sizeof very_long_text; i++) very_long_text[i] = (char)(i % 251);
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) writer(ends[1]);
    close(ends[1]);
    size_t length = 0;
    for (ssize_t more; (more = read(ends[0], piece, sizeof piece)) > 0; length += (size_t)more) {
        CHECK_AT(length + (size_t)more <= sizeof very_long_text, length);
        CHECK_AT(memcmp(piece, very_long_text + length, (size_t)more) == 0, length);
        usleep(pause);
    }
    CHECK_EQ(child_status_now(child), 0);
    CHECK_EQ(length, sizeof very_long_text);
    close(ends[0]);
}

TEST(what_is_interrupted_arrives_whole) { must_arrive_whole(write_while_interrupted, 3000); }

/* As programs do that share standard error with one that must not wait. */
static void write_without_waiting(int fd) {
    fcntl(fd, F_SETPIPE_SZ, 4096);
    CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    errno = EDOM;
    CHECK(os_write(fd, very_long_text, sizeof very_long_text));
    CHECK_EQ(errno, EDOM);
    _exit(0);
}

TEST(what_is_read_slowly_arrives_whole) { must_arrive_whole(write_without_waiting, 1000); }

static void write_to_a_reader_who_sleeps(void) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    const uint64_t began_ms = os_clock_ms();
    errno = 0;
    CHECK(!os_write(ends[1], very_long_text, sizeof very_long_text));
    CHECK_EQ(errno, EAGAIN);
    const uint64_t waited_ms = os_clock_ms() - began_ms;
    CHECK_AT(waited_ms >= 500, waited_ms);
    /* Nor is the same reader waited for again; and once it reads, what is written arrives. */
    CHECK(!os_write(ends[1], very_long_text, 1));
    CHECK_EQ(errno, EAGAIN);
    CHECK_AT(os_clock_ms() - began_ms < waited_ms + 500, waited_ms);
    CHECK(read(ends[0], very_long_text, 5000) == 5000);
    errno = EDOM;
    CHECK(os_write(ends[1], very_long_text, 1));
    CHECK_EQ(errno, EDOM);
}

TEST(who_reads_nothing_is_given_up) { IN_CHILD(write_to_a_reader_who_sleeps); }

static void write_to_a_reader_who_sleeps_among_signals(void) {
    const struct itimerval often = {{0, 20000}, {0, 20000}};
    CHECK(signal(SIGALRM, do_nothing) != SIG_ERR);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    write_to_a_reader_who_sleeps();
}

/* Or it would never end. */
TEST(signals_do_not_prolong_the_wait) { IN_CHILD(write_to_a_reader_who_sleeps_among_signals); }

/* Waits in vain; returns the writing end. */
static int write_to_who_takes_nothing(void) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    CHECK(!os_write(ends[1], very_long_text, sizeof very_long_text));
    CHECK_EQ(errno, EAGAIN);
    return ends[1];
}

/* Into a pipe that is full already. */
static void write_when_full(int fd) {
    CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    size_t length = 0;
    for (ssize_t more; (more = write(fd, very_long_text + length, sizeof very_long_text - length)) > 0;) length += (size_t)more;
    CHECK(os_write(fd, very_long_text + length, sizeof very_long_text - length));
    _exit(0);
}

static void write_beside_a_reader_who_sleeps(int fd) {
    write_to_who_takes_nothing();
    write_when_full(fd);
}

TEST(another_reader_is_waited_for) { must_arrive_whole(write_beside_a_reader_who_sleeps, 3000); }

static void write_after_a_reader_who_slept(int fd) {
    write_when_full(dup2(fd, write_to_who_takes_nothing()));
}

TEST(another_reader_of_the_same_number_is_waited_for) { must_arrive_whole(write_after_a_reader_who_slept, 3000); }

static void write_under_another_number(void) {
    const uint64_t before_ms = os_clock_ms();
    CHECK(!os_write(dup(write_to_who_takes_nothing()), very_long_text, sizeof very_long_text));
    CHECK(errno == EAGAIN && os_clock_ms() - before_ms < 1900);
}

TEST(one_reader_is_given_up_under_all_numbers) { IN_CHILD(write_under_another_number); }

static char long_text[3000];

static void say_long(void) { os_message("%s", long_text); }

TEST(long_lines_are_cut) {
    int status;
    for (size_t length = 1000; length < 1040; length++) {
        memset(long_text, 'a', length);
        long_text[length] = '\0';
        const char *line = heard(say_long, &status);
        size_t got = strlen(line);
        CHECK_EQ(status, 0);
        CHECK_AT(got == (length + 9 <= 1024 ? length + 9 : 1024), length);
        CHECK_AT(strchr(line, '\n') == line + got - 1, length);
    }
    memset(long_text, 'a', sizeof long_text - 1);
    CHECK_EQ(strlen(heard(say_long, &status)), 1024);
}

static void write_two(void) {
    CHECK(os_write(STDERR_FILENO, "1,two\n", 6));
    CHECK(os_write(STDERR_FILENO, "", 0));
    errno = 0;
    CHECK(!os_write(99, "x", 1));
    CHECK_EQ(errno, EBADF);
}

TEST(writing_adds_nothing) {
    int status;
    CHECK(strcmp(heard(write_two, &status), "1,two\n") == 0);
    CHECK_EQ(status, 0);
}

static void panic(void) { os_panic("the %s is gone", "page"); }

TEST(panic_is_a_message_and_an_abort) {
    int status;
    CHECK(strcmp(heard(panic, &status), "hakmem: the page is gone\n") == 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- signals that writing brings ----------------------------------------------------------------------- */

static bool is_pending(int number) {
    sigset_t set;
    return sigpending(&set) == 0 && sigismember(&set, number) == 1;
}

static bool is_blocked(int number) {
    sigset_t set;
    return pthread_sigmask(SIG_BLOCK, NULL, &set) == 0 && sigismember(&set, number) == 1;
}

/* Writing to FD fails with ERROR, and would bring signal NUMBER. */
static void write_in_vain(int fd, int error, int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    os_note_filter(); /* as at the start: one that is there already is not the program's own */
    errno = 0;
    CHECK(!os_write(fd, "x", 1));
    CHECK_EQ(errno, error);
    CHECK(!is_blocked(number));
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    CHECK(!os_write(fd, "x", 1));
    CHECK(is_blocked(number) && !is_pending(number));
    raise(number); /* the program's own: it stays */
    CHECK(!os_write(fd, "x", 1));
    CHECK(is_blocked(number) && is_pending(number));
    signal(number, SIG_IGN); /* which takes it away */
    CHECK_EQ(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
    CHECK(!os_write(fd, "x", 1));
    CHECK_EQ(errno, error);
    signal(number, SIG_DFL);
    CHECK_EQ(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    os_message("to nobody");
}

static void write_into_broken_pipe(void) {
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    close(ends[0]);
    write_in_vain(ends[1], EPIPE, SIGPIPE);
}

TEST(a_broken_pipe_is_an_error) { IN_CHILD(write_into_broken_pipe); }

/* A file that may not grow. */
static int full_file(void) {
    const struct rlimit none = {0, RLIM_INFINITY};
    const int full = memfd_create("full", MFD_CLOEXEC);
    CHECK(full >= 0);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
    return full;
}

static void write_beyond_the_limit(void) { write_in_vain(full_file(), EFBIG, SIGXFSZ); }

TEST(a_file_at_its_limit_is_an_error) { IN_CHILD(write_beyond_the_limit); }

/* ---- under filters ------------------------------------------------------------------------------------- */

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */

#include "sandbox.h"

static const struct sandbox_rule waits[] = {{.call = SYS_rt_sigtimedwait}};

static void write_under_own_filter(void) {
    const int full = full_file();
    os_note_filter();
    sandbox_enter(SANDBOX_RULES(waits), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    CHECK(!os_write(full, "x", 1));
    CHECK_EQ(errno, EFBIG);
    CHECK(is_blocked(SIGXFSZ) && is_pending(SIGXFSZ));
    CHECK(!is_blocked(SIGPIPE));
    signal(SIGXFSZ, SIG_IGN); /* the child's end may write, too */
}

TEST(own_filters_meet_no_waiting) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    IN_CHILD(write_under_own_filter);
}

enum { TAKES_NOTHING = 77 };

static const struct sandbox_rule writes_there[] = {{.call = SYS_write, .argument = 0, .bits = TAKES_NOTHING, .exactly = true}};

static void write_to_what_takes_nothing(void) {
    sandbox_refuse(SANDBOX_RULES(writes_there), 0); /* the call returns 0, as that of an odd driver may */
    errno = 0;
    CHECK(!os_write(TAKES_NOTHING, "x", 1));
    CHECK_EQ(errno, EIO);
}

TEST(what_takes_nothing_is_an_error) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    IN_CHILD(write_to_what_takes_nothing);
}

#endif
