/* deliver_test.c - reports on their way to a file.
 *
 * Planted defects it was seen to catch:
 *   the name is cut where it is too long   a_name_that_is_too_long_is_refused
 *   a report replaces one half written     a_signal_in_the_middle_of_a_report
 *   report_goes_to_parts_of_two_files      names_that_change_all_the_time
 *   reports_open_files_under_own_filter, names_are_read_under_own_filter, mappings_are_counted_under_own_filter
 *                                          under_a_filter_of_the_programs_own
 */
#include "watch/deliver.h"

#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

static char folder[] = "/tmp/hakmem-deliver-XXXXXX";

/* Has a report written to FOLDER/NAME; what is said of it on standard error. */
static const char *said_of(const char *name) {
    static char said[500];
    char path[DELIVER_PATH_BYTES];
    int file = memfd_create("said", MFD_CLOEXEC), error = dup(STDERR_FILENO);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    deliver_configure(&(struct deliver_settings){.wanted = true, .form = REPORT_TEXT, .path = path});
    memset(path, '?', sizeof path); /* it was copied: who sets the next one may be interrupted by a report */
    CHECK(file >= 0 && error >= 0);
    dup2(file, STDERR_FILENO);
    errno = 4711;
    deliver();
    CHECK_EQ(errno, 4711);
    dup2(error, STDERR_FILENO);
    ssize_t length = pread(file, said, sizeof said - 1, 0);
    said[length > 0 ? length : 0] = '\0';
    close(file);
    close(error);
    return said;
}

/* Whether FOLDER/NAME is there, which is then removed. */
static bool was_written(const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return unlink(path) == 0;
}

static void write_to_names(void) {
    char pid[30];
    CHECK(mkdtemp(folder) != NULL);
    CHECK(*said_of("plain") == '\0' && was_written("plain"));
    CHECK(*said_of("a%p-%x%") == '\0');
    snprintf(pid, sizeof pid, "a%d-%%x%%", (int)getpid());
    CHECK(was_written(pid));
    CHECK(*said_of("%p%p") == '\0');
    snprintf(pid, sizeof pid, "%d%d", (int)getpid(), (int)getpid());
    CHECK(was_written(pid));
    CHECK(strstr(said_of("no/such/folder"), ": ENOENT\n") != NULL);
    CHECK_EQ(rmdir(folder), 0); /* nothing else is left */
}

TEST(names_with_the_number_of_the_process) { IN_CHILD(write_to_names); }

static void write_to_long_names(void) {
    char name[DELIVER_PATH_BYTES - 24] = "";
    CHECK(mkdtemp(folder) != NULL);
    while (strlen(name) + 2 < sizeof name) strcat(name, "%p"); /* with a number in place of each it is too long */
    CHECK(strstr(said_of(name), ": ENAMETOOLONG\n") != NULL);
    CHECK_EQ(rmdir(folder), 0);
}

TEST(a_name_that_is_too_long_is_refused) { IN_CHILD(write_to_long_names); }

static void *deliver_too(void *unused) {
    deliver();
    return unused;
}

/* Another thread's report begins and ends in between. */
static void ask_for_another(void) {
    pthread_t other;
    CHECK_EQ(pthread_create(&other, NULL, deliver_too, NULL), 0);
    CHECK_EQ(pthread_join(other, NULL), 0);
    raise(SIGUSR1);
}

static void write_while_asked(void) {
    enum { CALLS = 8 };
    CHECK(mkdtemp(folder) != NULL);
    deliver_on_signal(SIGUSR1);
    for (unsigned long call = 1; call <= CALLS; call++) {
        fail_interrupt(call, ask_for_another);
        CHECK_AT(*said_of("plain") == '\0' && was_written("plain"), call);
    }
    fail_interrupt(0, NULL);
    raise(SIGUSR1); /* otherwise it has one written */
    CHECK(was_written("plain"));
    CHECK_EQ(rmdir(folder), 0);
}

TEST(a_signal_in_the_middle_of_a_report) { IN_CHILD(write_while_asked); }

static void set_name(char letter, size_t length) {
    char path[DELIVER_PATH_BYTES] = "/nowhere/";
    memset(path + 9, letter, length - 9);
    path[length] = '\0';
    deliver_configure(&(struct deliver_settings){.wanted = true, .form = REPORT_TEXT, .path = path});
}

static const size_t lengths[] = {DELIVER_PATH_BYTES - 1, 20, DELIVER_PATH_BYTES - 2};
static volatile sig_atomic_t changes;

/* As another thread may change the name twice while it is read. */
static void change_twice(int number) {
    (void)number;
    for (int i = 0; i < 2; i++, changes++) set_name((char)('a' + changes % 3), lengths[changes % 3]);
}

/* Nothing can be written there, which is said with the name: one of three, each of one letter. */
static void write_to_changing_names(void) {
    enum { CHANGES = CHECK_SLOW ? 2000 : 60000, PERIOD_US = 20 };
    const struct itimerval often = {{0, PERIOD_US}, {0, PERIOD_US}}, never = {{0, 0}, {0, 0}};
    char said[500];
    const int file = memfd_create("said", MFD_CLOEXEC);
    CHECK(file >= 0 && dup2(file, STDERR_FILENO) == STDERR_FILENO);
    set_name('b', lengths[1]);
    signal(SIGALRM, change_twice);
    CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
    while (changes < CHANGES) {
        CHECK(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
        deliver();
        const ssize_t length = pread(file, said, sizeof said - 1, 0);
        said[length > 0 ? length : 0] = '\0';
        const char *const name = strstr(said, "/nowhere/");
        CHECK_AT(name != NULL && name[9] >= 'a' && name[9] <= 'c', changes);
        const size_t letters = strspn(name + 9, (char[]){name[9], '\0'}) + 9;
        CHECK_AT(letters == lengths[name[9] - 'a'] && strcmp(name + letters, ": ENOENT\n") == 0, changes);
    }
    CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
}

TEST(names_that_change_all_the_time) { IN_CHILD(write_to_changing_names); }

static void write_to_none(void) {
    deliver_configure(&(struct deliver_settings){.wanted = false, .path = "/nowhere/at/all"});
    deliver(); /* would say so */
}

TEST(nothing_is_written_unless_it_is_wanted) { IN_CHILD(write_to_none); }

#if __has_include(<linux/seccomp.h>) /* musl's headers do not bring the kernel's */

#include "sandbox.h"

static void report_without_files(void) {
    static const struct sandbox_rule no_files[] = {{.call = SYS_openat}};
    int file = memfd_create("report", MFD_CLOEXEC);
    char text[20000];
    CHECK(file >= 0);
    sandbox_enter(SANDBOX_RULES(no_files), SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
    for (int form = REPORT_TEXT; form <= REPORT_OPENMETRICS; form++) CHECK(report_write(file, (enum report_form)form));
    CHECK(pread(file, text, sizeof text - 1, 0) > 0);
    sandbox_leave();
}

TEST(under_a_filter_of_the_programs_own) {
    if (!sandbox_is_possible()) SKIP("no seccomp filters");
    IN_CHILD(report_without_files);
}
#endif
