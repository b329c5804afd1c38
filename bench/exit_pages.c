/* exit_pages [--preload LIBRARY] [--] COMMAND... - what a process holds at the moment it ends.
 *
 * The command runs under ptrace and is stopped when it enters exit, its memory still whole; then its smaps are
 * added up. Prints one JSON line: private dirty and resident memory, page faults so far, the highest resident
 * size, and whether the library was mapped. The command's output is dropped. Fails when the command does. */
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

struct pages {
    unsigned long long private_dirty_kib;
    unsigned long long rss_kib;
    unsigned long long peak_rss_kib;
    unsigned long long minor_faults;
    unsigned long long major_faults;
    bool served;
};

static FILE *proc_open(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) child_fail("cannot read %s: %s", path, strerror(errno));
    return file;
}

/* The sum of FIELD over a file of "Field:   123 kB" lines. */
static unsigned long long field_sum(pid_t pid, const char *name, const char *field) {
    FILE *file = proc_open(pid, name);
    char line[4096];
    unsigned long long sum = 0, value;
    size_t length = strlen(field);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, field, length) == 0 && sscanf(line + length, " %llu kB", &value) == 1) sum += value;
    }
    fclose(file);
    return sum;
}

static void faults_read(pid_t pid, struct pages *pages) {
    FILE *file = proc_open(pid, "stat");
    char text[4096];
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *after_name = strrchr(text, ')');
    /* Fields 3 to 12; minor faults are the 10th, major the 12th. */
    if (after_name == NULL || sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %llu %*u %llu", &pages->minor_faults,
                                     &pages->major_faults) != 2) {
        child_fail("cannot read /proc/%d/stat", (int)pid);
    }
}

static void pages_read(const struct child_command *command, pid_t pid, struct pages *pages) {
    pages->private_dirty_kib = field_sum(pid, "smaps", "Private_Dirty:");
    pages->rss_kib = field_sum(pid, "smaps", "Rss:");
    pages->peak_rss_kib = field_sum(pid, "status", "VmHWM:");
    pages->served = child_is_served(command, pid);
    faults_read(pid, pages);
}

int main(int argc, char **argv) {
    (void)argc;
    struct child_command command;
    child_command_read(&command, 1, argv, "exit_pages [--preload LIBRARY] [--] COMMAND...");
    pid_t pid = child_start(&command, true);
    struct pages pages = {0};
    bool started = false, seen = false;
    for (;;) {
        int status;
        if (waitpid(pid, &status, 0) < 0) child_fail("cannot wait: %s", strerror(errno));
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (WIFSIGNALED(status)) child_fail("%s was ended by signal %d", command.argv[0], WTERMSIG(status));
            if (WEXITSTATUS(status) != 0) child_fail("%s exited with %d", command.argv[0], WEXITSTATUS(status));
            break;
        }
        int signal_number = WSTOPSIG(status);
        if (!started) { /* the stop at exec */
            long options = PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL;
            if (ptrace(PTRACE_SETOPTIONS, pid, NULL, options) != 0) child_fail("cannot trace: %s", strerror(errno));
            started = true;
            signal_number = 0;
        } else if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8))) {
            pages_read(&command, pid, &pages);
            seen = true;
            signal_number = 0;
        }
        ptrace(PTRACE_CONT, pid, NULL, (long)signal_number);
    }
    if (!seen) child_fail("%s ended unseen", command.argv[0]);
    printf("{\"private_dirty_kib\":%llu,\"rss_kib\":%llu,\"peak_rss_kib\":%llu,\"minor_faults\":%llu,"
           "\"major_faults\":%llu,\"page_bytes\":%ld,\"served\":%s}\n",
           pages.private_dirty_kib, pages.rss_kib, pages.peak_rss_kib, pages.minor_faults, pages.major_faults,
           sysconf(_SC_PAGESIZE), pages.served ? "true" : "false");
    return 0;
}
