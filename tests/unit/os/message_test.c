/* message_test.c - what reaches the message descriptor, byte for byte.
 *
 * write is interposed: it interrupts every other call, and where it is told to it writes one byte at a
 * time, as a full pipe or a signal may make it.
 *
 * Planted defects it was seen to catch:
 *   a partial write is taken for all             lines_arrive_whole
 *   EINTR is taken for an end                    lines_arrive_whole
 *   a long line loses its line end               long_lines_are_cut
 *   the kept descriptor is trusted               another_file_under_the_kept_number
 *   os_panic ends by exit                        panic_is_a_message_and_an_abort
 */
#include "blocks.h"
#include "os/os.h"

#include <sys/syscall.h>
#include <sys/wait.h>

static bool interrupts;
static int interrupted;

ssize_t write(int fd, const void *bytes, size_t count) {
    if (interrupts && ++interrupted % 2) {
        errno = EINTR;
        return -1;
    }
    return syscall(SYS_write, fd, bytes, interrupts && count > 1 ? 1 : count);
}

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

static void say_in_pieces(void) {
    interrupts = true;
    say_all_conversions();
}

TEST(lines_arrive_whole) {
    int status;
    CHECK(strcmp(heard(say_in_pieces, &status), all_conversions) == 0);
    CHECK_EQ(status, 0);
}

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

static void keep_and_close(void) {
    errno = 4711;
    os_message_keep();
    CHECK(os_message_fd() >= 200);
    CHECK(fcntl(os_message_fd(), F_GETFD) & FD_CLOEXEC);
    close(STDERR_FILENO);
    os_message("last words");
    CHECK_EQ(errno, 4711);
}

TEST(the_kept_descriptor_outlives_standard_error) {
    int status;
    CHECK(strcmp(heard(keep_and_close, &status), "hakmem: last words\n") == 0);
    CHECK_EQ(status, 0);
}

static void replace_kept(void) {
    os_message_keep();
    int kept = os_message_fd(), other[2];
    CHECK(kept >= 200);
    CHECK_EQ(pipe(other), 0); /* on the same device, which alone says little */
    CHECK_EQ(dup2(other[1], kept), kept);
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    os_message("not into another file");
    close(kept);
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
}

TEST(another_file_under_the_kept_number) {
    int status;
    CHECK(strcmp(heard(replace_kept, &status), "hakmem: not into another file\n") == 0);
    CHECK_EQ(status, 0);
}

static void keep_nothing(void) {
    close(STDERR_FILENO);
    errno = 4711;
    os_message_keep();
    CHECK_EQ(os_message_fd(), STDERR_FILENO);
    os_message("nobody hears");
    CHECK_EQ(errno, 4711);
}

TEST(without_standard_error_nothing_happens) {
    int status;
    CHECK(strcmp(heard(keep_nothing, &status), "") == 0);
    CHECK_EQ(status, 0);
}
