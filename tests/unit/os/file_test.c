/* file_test.c - files that are read and written, and signals.
 *
 * Planted defects it was seen to catch:
 *   half a file takes the place of the old   a_file_is_there_once_it_is_whole
 *   the program's handler is replaced        signals_that_nobody_uses
 *   a link in the way is followed            what_lies_in_the_way_is_not_written_to
 *   a linked file grows                      a_link_to_a_file_is_written_anew
 *   a linked log is emptied                  a_link_to_a_descriptor_is_written_to
 *   all may read what was kept from them     a_new_file_has_the_permissions_of_the_old
 *   a FIFO without a reader is waited for    a_fifo_without_a_reader_is_refused
 *   another user says who may read it        what_another_user_left_there_says_nothing
 *   links of others are followed             what_others_put_there_is_refused
 *   FIFOs of others are written to           what_others_put_there_is_refused
 *   a link put there at the end is followed  what_comes_in_between_is_refused
 *   so is a file, by another name            what_comes_in_between_is_refused
 *   files are opened by libc's open          no_call_is_a_cancellation_point
 *   report_gets_what_is_printed (a file is opened as descriptor 1)   what_is_printed_meanwhile_goes_nowhere
 */
#include "os/os.h"

#include "check.h"
#include "child.h"
#include "faults/fail_calls.h"

#include <fcntl.h>
#include <sys/stat.h>

static char folder[] = "/tmp/hakmem-file-XXXXXX";
static char path[100];

static void begin(void) {
    strcpy(folder, "/tmp/hakmem-file-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/report", folder);
}

static void end(void) {
    unlink(path);
    CHECK_EQ(rmdir(folder), 0); /* nothing else is left */
}

static bool write_file(const char *to, const char *text, bool well) {
    struct os_file file;
    return os_file_create(&file, to) && os_file_finish(&file, os_write(file.fd, text, strlen(text)) && well);
}

TEST(a_file_is_there_once_it_is_whole) {
    char text[100];
    struct os_file file;
    begin();
    CHECK(write_file(path, "one\n", true));
    CHECK_EQ(os_read_file(path, text, sizeof text), 4);
    CHECK(strcmp(text, "one\n") == 0);
    CHECK(os_file_create(&file, path));
    CHECK(os_write(file.fd, "tw", 2));
    CHECK_EQ(os_read_file(path, text, sizeof text), 4); /* the old one */
    CHECK(os_file_finish(&file, os_write(file.fd, "o\n", 2)));
    CHECK_EQ(os_read_file(path, text, sizeof text), 4);
    CHECK(strcmp(text, "two\n") == 0);
    CHECK(!write_file(path, "three\n", false));
    os_read_file(path, text, sizeof text);
    CHECK(strcmp(text, "two\n") == 0);
    end();
}

/* In a folder that others write to, what lies where the new file is written first may be theirs, and lead anywhere. */
TEST(what_lies_in_the_way_is_not_written_to) {
    char text[100], way[200], ours[200];
    struct os_file file;
    begin();
    snprintf(ours, sizeof ours, "%s/ours", folder);
    CHECK(write_file(ours, "ours\n", true));
    CHECK(os_file_create(&file, path));
    CHECK((size_t)snprintf(way, sizeof way, "%s", file.temporary) < sizeof way);
    CHECK(!os_file_finish(&file, false));
    CHECK_EQ(symlink(ours, way), 0);
    CHECK(write_file(path, "report\n", true));
    CHECK_EQ(os_read_file(ours, text, sizeof text), 5);
    CHECK(strcmp(text, "ours\n") == 0);
    CHECK_EQ(os_read_file(path, text, sizeof text), 7);
    CHECK_EQ(mkdir(way, 0700), 0); /* what cannot be taken away is said */
    CHECK(!os_file_create(&file, path));
    CHECK_EQ(rmdir(way), 0);
    unlink(ours);
    end();
}

TEST(what_is_no_regular_file_is_written_to) {
    char text[10];
    begin();
    CHECK_EQ(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(reader >= 0 && write_file(path, "one\n", true));
    CHECK_EQ(read(reader, text, sizeof text), 4);
    close(reader);
    struct stat there;
    CHECK(stat(path, &there) == 0 && S_ISFIFO(there.st_mode));
    CHECK(write_file("/dev/null", "x", true));
    end();
}

static struct os_file waiting_for;
static void wait_for_a_reader(void) { CHECK(!os_file_create(&waiting_for, path) && errno == ENXIO); }

TEST(a_fifo_without_a_reader_is_refused) {
    begin();
    CHECK_EQ(mkfifo(path, 0600), 0);
    IN_CHILD(wait_for_a_reader);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct os_file file;
    CHECK(reader >= 0 && os_file_create(&file, path));
    CHECK_EQ(fcntl(file.fd, F_GETFL) & O_NONBLOCK, 0); /* one that reads slowly is waited for */
    CHECK(os_file_finish(&file, true));
    close(reader);
    end();
}

static unsigned permissions(const char *of) {
    struct stat there;
    CHECK_EQ(lstat(of, &there), 0);
    return there.st_mode & 0777;
}

TEST(a_new_file_has_the_permissions_of_the_old) {
    const unsigned modes[] = {0600, 0640, 0666};
    begin();
    mode_t mask = umask(022);
    CHECK(write_file(path, "one\n", true));
    CHECK_EQ(permissions(path), 0644);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        CHECK_EQ(chmod(path, modes[i]), 0);
        CHECK(write_file(path, "two\n", true));
        CHECK_EQ(permissions(path), modes[i]);
    }
    umask(mask);
    end();
}

static bool is_link(const char *of) {
    struct stat there;
    return lstat(of, &there) == 0 && S_ISLNK(there.st_mode);
}

TEST(a_link_to_a_file_is_written_anew) {
    char text[100], first[200], target[200], longest[1200];
    static const size_t lengths[] = {300, 1020, 1200}; /* of a name, of all that is followed with its folder, and by itself */
    begin();
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(target, sizeof target, "%s/target", folder);
    CHECK_EQ(symlink(first, path), 0);
    CHECK_EQ(symlink("target", first), 0); /* nothing yet, and from the folder of the link */
    for (int round = 0; round < 2; round++) {
        CHECK(write_file(path, round == 0 ? "longer than the next\n" : "one\n", true));
        CHECK(is_link(path) && is_link(first));
    }
    CHECK_EQ(os_read_file(target, text, sizeof text), 4);
    CHECK(strcmp(text, "one\n") == 0);
    unlink(first);
    unlink(target);
    unlink(path);
    CHECK_EQ(symlink(path, path), 0);
    CHECK(!write_file(path, "round\n", true) && errno == ELOOP);
    unlink(path);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        memset(longest, 'a', lengths[i]);
        longest[lengths[i] - 1] = '\0';
        CHECK_EQ(symlink(longest, path), 0);
        errno = 0;
        CHECK_AT(!write_file(path, "long\n", true) && errno == ENAMETOOLONG, i);
        unlink(path);
    }
    end();
}

/* Where standard error was sent to a file, whatever else is said goes there, too. */
TEST(a_link_to_a_descriptor_is_written_to) {
    char text[100], first[200], log[200], descriptor[40];
    begin();
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && os_write(fd, "said\n", 5));
    snprintf(descriptor, sizeof descriptor, "/proc/self/fd/%d", fd);
    CHECK_EQ(symlink(descriptor, first), 0);
    CHECK_EQ(symlink("first", path), 0);
    CHECK(write_file(descriptor, "one\n", true) && write_file(path, "two\n", true));
    CHECK_EQ(os_read_file(log, text, sizeof text), 13);
    CHECK(strcmp(text, "said\none\ntwo\n") == 0);
    close(fd);
    unlink(first);
    unlink(log);
    end();
}

/* ---- what others can do in a folder like /tmp ------------------------------------------------------------- */

enum { NOBODY = 65534 };

static char target[200];

static void begin_beside_others(void) {
    begin();
    CHECK_EQ(chmod(folder, 01777), 0);
    snprintf(target, sizeof target, "%s/target", folder);
    CHECK(write_file(target, "ours\n", true));
}

static void target_is_as_it_was(void) {
    char text[100];
    CHECK_EQ(os_read_file(target, text, sizeof text), 5);
    CHECK(strcmp(text, "ours\n") == 0);
}

static void end_beside_others(void) {
    target_is_as_it_was();
    unlink(target);
    end();
}

static bool is_refused(const char *to) {
    errno = 0;
    return !write_file(to, "report\n", true) && errno == EACCES;
}

TEST(what_others_put_there_is_refused) {
    char first[200];
    if (geteuid() != 0) SKIP("only root can make what is another user's");
    begin_beside_others();
    snprintf(first, sizeof first, "%s/first", folder);
    CHECK_EQ(symlink(target, path), 0);
    CHECK_EQ(symlink(path, first), 0); /* our own leads to theirs */
    CHECK_EQ(lchown(path, NOBODY, NOBODY), 0);
    CHECK(is_refused(path) && is_refused(first));
    target_is_as_it_was();
    unlink(path);
    CHECK_EQ(mkfifo(path, 0666), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    CHECK(reader >= 0 && write_file(path, "one\n", true) && write_file(first, "two\n", true));
    CHECK_EQ(chown(path, NOBODY, NOBODY), 0);
    CHECK(is_refused(path) && is_refused(first)); /* they need not read it, either */
    close(reader);
    unlink(first);
    end_beside_others();
}

TEST(what_another_user_left_there_says_nothing) {
    if (geteuid() != 0) SKIP("only root can make what is another user's");
    begin_beside_others();
    const mode_t mask = umask(022);
    CHECK(write_file(path, "theirs\n", true));
    CHECK_EQ(chown(path, NOBODY, NOBODY), 0);
    CHECK_EQ(chmod(path, 0666), 0);
    CHECK(write_file(path, "one\n", true));
    CHECK_EQ(permissions(path), 0644);
    umask(mask);
    end_beside_others();
}

static void follow_ones_own(void) {
    char other[200];
    snprintf(other, sizeof other, "%s/other", folder);
    CHECK_EQ(seteuid(NOBODY), 0);
    CHECK(write_file(path, "one\n", true)); /* root's */
    CHECK_EQ(unlink(other), 0);
    snprintf(other, sizeof other, "%s/own", folder);
    CHECK_EQ(symlink("other", other), 0);
    CHECK(write_file(other, "two\n", true));
    CHECK_EQ(unlink(other), 0);
    snprintf(other, sizeof other, "%s/other", folder);
    CHECK_EQ(unlink(other), 0);
    CHECK_EQ(seteuid(0), 0); /* who may write where a build that counts does */
}

TEST(what_one_has_put_there_oneself_is_followed) {
    if (geteuid() != 0) SKIP("only root can become another user");
    begin_beside_others();
    CHECK_EQ(symlink("other", path), 0);
    IN_CHILD(follow_ones_own);
    end_beside_others();
}

static void put_link(void) { CHECK(unlink(path) == 0 && symlink(target, path) == 0); }
static void put_name(void) { CHECK(unlink(path) == 0 && link(target, path) == 0); }

/* Just before it is opened, after it was looked at. */
TEST(what_comes_in_between_is_refused) {
    begin_beside_others();
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(mkfifo(path, 0600), 0);
        fail_interrupt(1, round == 0 ? put_link : put_name);
        CHECK(!write_file(path, "report\n", true) && errno == (round == 0 ? ELOOP : EACCES));
        fail_interrupt(0, NULL);
        target_is_as_it_was();
        unlink(path);
    }
    end_beside_others();
}

TEST(what_cannot_be_written_says_why) {
    static char longest[300];
    struct os_file file;
    begin();
    errno = 0;
    CHECK(!os_file_create(&file, "/nowhere/at/all"));
    CHECK_EQ(errno, ENOENT);
    memset(longest, 'a', sizeof longest - 1);
    CHECK(!os_file_create(&file, longest));
    CHECK_EQ(errno, ENAMETOOLONG);
    CHECK(access("/dev/full", F_OK) != 0 || !write_file("/dev/full", "x", true));
    end();
}

/* Another thread's output, which nobody is to get. */
static void print(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) CHECK(write(fd, "printed\n", 8) == -1 && errno == EBADF);
}

static void write_without_standard_files(void) {
    enum { CALLS = 12 };
    char text[100];
    struct os_lines lines;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) close(fd);
    for (unsigned long call = 1; call <= CALLS; call++) {
        struct os_file file;
        fail_interrupt(call, print);
        CHECK(os_file_create(&file, path) && file.fd > STDERR_FILENO);
        print();
        CHECK(os_file_finish(&file, os_write(file.fd, "report\n", 7)));
        fail_interrupt(0, NULL);
        CHECK_EQ(os_read_file(path, text, sizeof text), 7);
        CHECK(strcmp(text, "report\n") == 0);
    }
    CHECK(os_lines_open(&lines, path) && lines.fd > STDERR_FILENO);
    os_lines_close(&lines);
    errno = 0;
    CHECK(os_open("/nowhere/at/all", O_RDONLY, 0) == -1 && errno == ENOENT);
    CHECK_EQ(dup(lines.fd), -1); /* nothing stays open */
    print();
}

TEST(what_is_printed_meanwhile_goes_nowhere) {
    begin();
    IN_CHILD(write_without_standard_files);
    end();
}

TEST(the_beginning_of_a_file) {
    char text[5];
    begin();
    CHECK(write_file(path, "abcdefgh", true));
    errno = 4711;
    CHECK_EQ(os_read_file(path, text, sizeof text), 4);
    CHECK(strcmp(text, "abcd") == 0);
    CHECK_EQ(os_read_file("/nowhere", text, sizeof text), -1);
    CHECK_EQ(os_read_file(folder, text, sizeof text), -1); /* a folder */
    CHECK_EQ(text[0], '\0');
    CHECK_EQ(errno, 4711);
    end();
}

TEST(a_file_line_by_line) {
    static char text[5000];
    struct os_lines lines;
    char line[6];
    begin();
    memset(text, 'x', sizeof text - 1); /* of several pieces */
    memcpy(text, "\nabcd\nabcdef\n", 13);
    memcpy(text + 4000, "\nend\nrest", 9);
    CHECK(write_file(path, text, true));
    CHECK(os_lines_open(&lines, path));
    const char *const expected[] = {"", "abcd", "abcde", "xxxxx", "end"};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        CHECK_AT(os_lines_next(&lines, line, sizeof line) && strcmp(line, expected[i]) == 0, i);
    CHECK(!os_lines_next(&lines, line, sizeof line)); /* not a whole one */
    os_lines_close(&lines);
    CHECK(!os_lines_open(&lines, "/nowhere"));
    end();
}

/* A signal may ask for a report in the middle of malloc. */
static void *use_files_while_cancelled(void *reached) {
    char text[100];
    struct os_mapping mapping;
    struct os_usage usage;
    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    CHECK(write_file(path, "report\n", true));
    CHECK_EQ(os_read_file(path, text, sizeof text), 7);
    CHECK(os_find_mapping(reached, &mapping) && os_count_mappings() > 0);
    os_usage_read(&usage);
    *(bool *)reached = true;
    pthread_testcancel();
    return reached;
}

TEST(no_call_is_a_cancellation_point) {
    static bool reached;
    pthread_t thread;
    void *result;
    begin();
    reached = false;
    CHECK_EQ(pthread_create(&thread, NULL, use_files_while_cancelled, &reached), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(reached && result == PTHREAD_CANCELED);
    end();
}

static volatile sig_atomic_t came;
static void on_signal(int number) { came = number; }
static void other_handler(int number) { (void)number; }

static void take_signals(void) {
    signal(SIGUSR1, SIG_DFL);
    CHECK(os_on_signal(SIGUSR1, on_signal));
    raise(SIGUSR1);
    CHECK_EQ(came, SIGUSR1);
    signal(SIGUSR2, other_handler);
    CHECK(!os_on_signal(SIGUSR2, on_signal)); /* the program's */
    CHECK(!os_on_signal(SIGKILL, on_signal));
    CHECK(!os_on_signal(1000, on_signal));
    static const int faults[] = {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        signal(faults[i], SIG_DFL); /* a sanitizer has handlers of its own */
        CHECK_AT(!os_on_signal(faults[i], on_signal), faults[i]);
    }
}

TEST(signals_that_nobody_uses) { IN_CHILD(take_signals); }

static void leave(void) { os_exit(7); }

TEST(a_process_ends_with_its_status) {
    const int status = child_status(leave, CHILD_SECONDS);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
