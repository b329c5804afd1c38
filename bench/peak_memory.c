/* peak_memory [--preload LIBRARY] [--] COMMAND... - the most memory that one process of a command ever held.
 *
 * The command and all its descendants run under ptrace and are stopped only at fork, exec and exit; when a process
 * exits, its memory still whole, VmHWM and VmRSS are read. That is the kernel's own figure for this memory image: the
 * ru_maxrss of wait4 would also count what its parent held when it forked. Prints one JSON line about the process
 * that held most, and whether the library was mapped in it. The command's output is dropped, so what it prints
 * costs nothing. Fails when the command does. */
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

struct largest {
    unsigned long long peak_rss_kib;
    unsigned long long rss_kib;
    unsigned long long anonymous_kib; /* of RSS_KIB: without code and mapped files */
    unsigned exits; /* seen, threads included */
    bool served;
    char name[64];
};

/* The number after FIELD in the status text, 0 when it is not there. */
static unsigned long long field_read(const char *text, const char *field) {
    const char *at = strstr(text, field);
    unsigned long long value = 0;
    if (at != NULL) sscanf(at + strlen(field), " %llu", &value);
    return value;
}

/* The name of the process, not of the thread that happened to be seen. */
static void process_name_read(pid_t pid, struct largest *largest) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%63[^\n\"\\]", largest->name) != 1) largest->name[0] = '\0';
    if (file != NULL) fclose(file);
}

static void process_read(const struct child_command *command, pid_t pid, struct largest *largest) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return; /* killed meanwhile */
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    largest->exits++;
    unsigned long long peak = field_read(text, "\nVmHWM:");
    if (peak <= largest->peak_rss_kib) return;
    largest->peak_rss_kib = peak;
    largest->rss_kib = field_read(text, "\nVmRSS:");
    largest->anonymous_kib = field_read(text, "\nRssAnon:");
    largest->served = child_is_served(command, pid);
    process_name_read((pid_t)field_read(text, "\nTgid:"), largest);
}

/* What a stopped process is to be told: the signal that stopped it, or none when ptrace did. */
static int signal_of(int status) {
    int number = WSTOPSIG(status);
    bool event = status >> 16 != 0;
    return event || number == SIGTRAP ? 0 : number;
}

static int command_follow(const struct child_command *command, pid_t root, struct largest *largest) {
    const long options = PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                         PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    int root_status = -1, status;
    bool started = false;
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) return root_status; /* none is left */
        if (!WIFSTOPPED(status)) {
            if (pid == root) root_status = status;
            continue;
        }
        int number = signal_of(status);
        if (!started && pid == root) { /* the stop at exec */
            if (ptrace(PTRACE_SETOPTIONS, pid, NULL, options) != 0) child_fail("cannot trace: %s", strerror(errno));
            started = true;
        } else if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8))) {
            process_read(command, pid, largest);
        } else if (number == SIGSTOP) {
            number = 0; /* a new process begins with one */
        }
        ptrace(PTRACE_CONT, pid, NULL, (long)number);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    struct child_command command;
    child_command_read(&command, 1, argv, "peak_memory [--preload LIBRARY] [--] COMMAND...");
    struct largest largest = {.name = ""};
    int status = command_follow(&command, child_start(&command, true), &largest);
    if (WIFSIGNALED(status)) child_fail("%s was ended by signal %d", command.argv[0], WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) child_fail("%s exited with %d", command.argv[0], WEXITSTATUS(status));
    if (largest.exits == 0) child_fail("%s ended unseen", command.argv[0]);
    printf("{\"process\":\"%s\",\"peak_rss_kib\":%llu,\"rss_kib\":%llu,\"anonymous_kib\":%llu,\"exits\":%u,"
           "\"served\":%s}\n",
           largest.name, largest.peak_rss_kib, largest.rss_kib, largest.anonymous_kib, largest.exits,
           largest.served ? "true" : "false");
    return 0;
}
