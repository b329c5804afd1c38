/* message_descriptor_test.c - where messages go when standard error is not what it was: replaced, closed, or
 * the program's own file.
 *
 * Planted defects it was seen to catch:
 *   the kept descriptor is trusted               another_file_under_the_kept_number
 *   a pipe is kept open, or a socket             a_pipe_or_a_socket_is_not_kept
 *   forked_child_keeps_the_terminal              a_terminal_is_kept_but_not_by_a_forked_child
 *   forked_child_closes_any_file                 a_forked_child_closes_no_other_file
 *   what is 2 later is taken for it              another_file_under_2, no_standard_error_at_the_start
 *   who asks late is not asked what 2 is         late_what_is_2_is_kept_to, late_a_file_of_the_programs_own
 */
#include "child.h"
#include "faults/fail_calls.h"
#include "os/os.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

/* A file as standard error, with no more in it than TEXT at the end; BODY in a child. */
static int file;

static void goes_to_the_file(void (*body)(void), const char *text) {
    char written[200] = "";
    file = memfd_create("standard error", 0);
    CHECK(file >= 0);
    IN_CHILD(body);
    CHECK_EQ(pread(file, written, sizeof written - 1, 0), strlen(text));
    CHECK(strcmp(written, text) == 0);
    close(file);
}

/* Failures are said elsewhere, and seen by what the file holds. */
static void begin_with_the_file(void) { CHECK_EQ(dup2(file, STDERR_FILENO), STDERR_FILENO); }

static void keep_and_close(void) {
    begin_with_the_file();
    errno = 4711;
    os_message_keep(true);
    CHECK(os_message_fd() >= 200);
    CHECK(fcntl(os_message_fd(), F_GETFD) & FD_CLOEXEC);
    close(STDERR_FILENO);
    os_message("last words");
    CHECK_EQ(errno, 4711);
}

TEST(the_kept_descriptor_outlives_standard_error) { goes_to_the_file(keep_and_close, "hakmem: last words\n"); }

static void replace_kept(void) {
    begin_with_the_file();
    os_message_keep(true);
    int kept = os_message_fd(), other = memfd_create("other", 0); /* on the same device, which alone says little */
    CHECK(kept >= 200);
    CHECK_EQ(dup2(other, kept), kept);
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    os_message("not into another file");
    close(kept);
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    CHECK_EQ(lseek(other, 0, SEEK_END), 0);
}

TEST(another_file_under_the_kept_number) { goes_to_the_file(replace_kept, "hakmem: not into another file\n"); }

static void replace_both(void) {
    begin_with_the_file();
    os_message_keep(true);
    int kept = os_message_fd(), other = memfd_create("other", 0);
    CHECK(dup2(other, kept) == kept && dup2(other, STDERR_FILENO) == STDERR_FILENO);
    errno = 4711;
    CHECK_EQ(os_message_fd(), -1);
    os_message("to nobody");
    CHECK_EQ(errno, 4711);
    CHECK_EQ(lseek(other, 0, SEEK_END), 0);
}

TEST(another_file_under_2) { goes_to_the_file(replace_both, ""); }

static void keep_without_a_copy(void) {
    const struct rlimit few = {100, 100};
    begin_with_the_file();
    os_message_keep(false); /* nobody wants one */
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    os_message_keep(true); /* none can be had */
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    os_message("one word");
    close(STDERR_FILENO);
    CHECK_EQ(os_message_fd(), -1);
}

TEST(without_a_copy_2_is_kept_to) { goes_to_the_file(keep_without_a_copy, "hakmem: one word\n"); }

static int pair_of_sockets(int ends[2]) { return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends); }

static void keep_what_is_read(int (*make)(int ends[2])) {
    int ends[2];
    CHECK_EQ(make(ends), 0);
    CHECK_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    os_message_keep(true);
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    os_message("heard");
    begin_with_the_file(); /* as daemons do with /dev/null */
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    char text[100];
    CHECK_EQ(read(ends[0], text, sizeof text), strlen("hakmem: heard\n"));
    CHECK_EQ(poll(&end, 1, 0), 1);
    CHECK(end.revents & POLLHUP); /* whoever reads it need not wait */
    CHECK_EQ(read(ends[0], text, sizeof text), 0);
    os_message("not into the file");
}
static void keep_a_pipe(void) { keep_what_is_read(pipe); }
static void keep_a_socket(void) { keep_what_is_read(pair_of_sockets); }

TEST(a_pipe_or_a_socket_is_not_kept) {
    goes_to_the_file(keep_a_pipe, "");
    goes_to_the_file(keep_a_socket, "");
}

/* A pseudo-terminal as standard error, with the copy of it that was kept. */
static int kept_terminal(void) {
    const int reader = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (reader < 0 || grantpt(reader) != 0 || unlockpt(reader) != 0) SKIP("no pseudo-terminals");
    const int terminal = open(ptsname(reader), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal < 0) SKIP("no file system of pseudo-terminals");
    CHECK_EQ(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    close(terminal);
    os_message_keep(true);
    CHECK(os_message_fd() >= OS_KEPT_DESCRIPTOR_MIN);
    return os_message_fd();
}

static int kept_copy;

static void live_without_the_copy(void) {
    CHECK(fcntl(kept_copy, F_GETFD) == -1 && errno == EBADF);
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    begin_with_the_file(); /* as daemons do with /dev/null */
    CHECK_EQ(os_message_fd(), -1);
    os_message("not into the file");
}

static void keep_a_terminal(void) {
    kept_copy = kept_terminal();
    IN_CHILD(live_without_the_copy);
    close(STDERR_FILENO);
    CHECK_EQ(os_message_fd(), kept_copy); /* here it outlives it */
}

TEST(a_terminal_is_kept_but_not_by_a_forked_child) { goes_to_the_file(keep_a_terminal, ""); }

static void live_with_another_file(void) { CHECK(fcntl(kept_copy, F_GETFD) != -1); }

static void replace_the_copy(void) {
    kept_copy = kept_terminal();
    CHECK_EQ(dup2(file, kept_copy), kept_copy);
    IN_CHILD(live_with_another_file);
}

TEST(a_forked_child_closes_no_other_file) { goes_to_the_file(replace_the_copy, ""); }

static void begin_without(void (*start)(void)) {
    close(STDERR_FILENO);
    errno = 4711;
    start();
    CHECK_EQ(errno, 4711);
    CHECK_EQ(os_message_fd(), -1);
    begin_with_the_file(); /* which is the program's own */
    os_message("nobody hears");
    CHECK_EQ(errno, 4711);
}

static void keep(void) { os_message_keep(true); }
static void keep_nothing(void) { begin_without(keep); }
static void keep_nothing_late(void) { begin_without(os_message_keep_late); }

TEST(no_standard_error_at_the_start) {
    goes_to_the_file(keep_nothing, "");
    goes_to_the_file(keep_nothing_late, "");
}

/* A sandbox may say nothing of descriptors. */
static void keep_unseen(void) {
    begin_with_the_file();
    fail_arm(FAIL_FSTAT, 1, true, EPERM);
    os_message_keep(true);
    os_message_keep_late();
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    fail_disarm();
    os_message("wherever 2 leads");
}

TEST(where_nobody_may_look_it_is_2) { goes_to_the_file(keep_unseen, "hakmem: wherever 2 leads\n"); }

/* Nothing was kept at the start: what is 2 when a program asks for messages is its standard error. */
static void keep_late(void) {
    char name[40];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    int log = open(name, O_WRONLY | O_CLOEXEC), other = memfd_create("other", MFD_CLOEXEC);
    CHECK_EQ(dup2(log, STDERR_FILENO), STDERR_FILENO);
    errno = 4711;
    os_message_keep_late();
    os_message("one word");
    CHECK_EQ(errno, 4711);
    CHECK_EQ(dup2(other, STDERR_FILENO), STDERR_FILENO);
    os_message_keep_late(); /* it is known */
    os_message("not into another file");
    CHECK_EQ(lseek(other, 0, SEEK_END), 0);
}

TEST(late_what_is_2_is_kept_to) {
    if (access("/proc/self/fd", F_OK) != 0) SKIP("no /proc");
    goes_to_the_file(keep_late, "hakmem: one word\n");
}

/* 2 was closed at the start, and a database got the number. */
static void keep_its_own_late(void) {
    begin_with_the_file();
    os_message_keep_late();
    CHECK_EQ(os_message_fd(), -1);
    os_message("not into the database");
}

TEST(late_a_file_of_the_programs_own) { goes_to_the_file(keep_its_own_late, ""); }
