/* file_test.c - files that are read and written, and signals.
 *
 * Planted defects it was seen to catch:
 *   half a file takes the place of the old   a_file_is_there_once_it_is_whole
 *   the program's handler is replaced        signals_that_nobody_uses
 *   a link in the way is followed            what_lies_in_the_way_is_not_written_to
 */
#include "os/os.h"

#include "check.h"
#include "child.h"

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
    os_exit(0);
}

TEST(signals_that_nobody_uses) { IN_CHILD(take_signals); }
