/* deliver_test.c - reports on their way to a file.
 *
 * Planted defects it was seen to catch:
 *   the name is cut where it is too long   a_name_that_is_too_long_is_refused
 *   a report replaces one half written     a_signal_in_the_middle_of_a_report
 */
#include "watch/deliver.h"

#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"

#include <signal.h>
#include <sys/mman.h>

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

static void write_to_none(void) {
    deliver_configure(&(struct deliver_settings){.wanted = false, .path = "/nowhere/at/all"});
    deliver(); /* would say so */
}

TEST(nothing_is_written_unless_it_is_wanted) { IN_CHILD(write_to_none); }
