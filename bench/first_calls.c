/* first_calls [--preload LIBRARY] [--] COMMAND... - the system calls a command makes in its marked windows.
 *
 * A window opens with getrusage(RUSAGE_THREAD) and closes with the next getrusage(RUSAGE_SELF), as cold_start
 * marks each class's first operations. Prints one JSON line: windows, calls in them, windows with any, the most
 * in one, the calls by name, and whether the library was mapped. The command's output is dropped. Fails when
 * the command does. */
#include "child.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NUMBERS 1024

struct window_counts {
    unsigned long long windows;
    unsigned long long calls;
    unsigned long long windows_with_calls;
    unsigned long long most;
    unsigned long long by_number[NUMBERS];
};

static const struct {
    long number;
    const char *name;
} names[] = {
    {SYS_mmap, "mmap"},       {SYS_munmap, "munmap"}, {SYS_mprotect, "mprotect"},
    {SYS_madvise, "madvise"}, {SYS_mremap, "mremap"}, {SYS_brk, "brk"},
    {SYS_futex, "futex"},     {SYS_prctl, "prctl"},   {SYS_clock_gettime, "clock_gettime"},
    {SYS_openat, "openat"},   {SYS_read, "read"},     {SYS_close, "close"},
};

static const char *call_name(unsigned number, char *room, size_t room_bytes) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].number == (long)number) return names[i].name;
    }
    snprintf(room, room_bytes, "call_%u", number);
    return room;
}

static void counts_print(const struct window_counts *counts, bool served) {
    char room[32];
    printf("{\"windows\":%llu,\"calls\":%llu,\"windows_with_calls\":%llu,\"most\":%llu,\"by_name\":{", counts->windows,
           counts->calls, counts->windows_with_calls, counts->most);
    const char *comma = "";
    for (unsigned i = 0; i < NUMBERS; i++) {
        if (counts->by_number[i] == 0) continue;
        printf("%s\"%s\":%llu", comma, call_name(i, room, sizeof room), counts->by_number[i]);
        comma = ",";
    }
    printf("},\"served\":%s}\n", served ? "true" : "false");
}

/* One system call is about to be made: opens, closes or fills the window. */
static void entry_count(struct window_counts *counts, struct window_counts *window,
                        const struct __ptrace_syscall_info *info) {
    if (info->entry.nr >= NUMBERS) return;
    unsigned number = (unsigned)info->entry.nr;
    if (number == SYS_getrusage && (int)info->entry.args[0] == RUSAGE_THREAD) {
        *window = (struct window_counts){.windows = 1};
    } else if (number == SYS_getrusage) {
        counts->windows += window->windows;
        counts->calls += window->calls;
        counts->windows_with_calls += window->calls != 0;
        if (window->calls > counts->most) counts->most = window->calls;
        for (unsigned i = 0; i < NUMBERS; i++) counts->by_number[i] += window->by_number[i];
        *window = (struct window_counts){0};
    } else if (window->windows != 0) {
        window->calls++;
        window->by_number[number]++;
    }
}

static void entry_read(pid_t pid, struct window_counts *counts, struct window_counts *window) {
    struct __ptrace_syscall_info info;
    if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) <= 0) {
        child_fail("this kernel does not tell a tracer the system calls: %s", strerror(errno));
    }
    if (info.op == PTRACE_SYSCALL_INFO_ENTRY) entry_count(counts, window, &info);
}

int main(int argc, char **argv) {
    (void)argc;
    struct child_command command;
    child_command_read(&command, 1, argv, "first_calls [--preload LIBRARY] [--] COMMAND...");
    pid_t pid = child_start(&command, true);
    static struct window_counts counts, window;
    bool started = false, served = false;
    for (;;) {
        int status;
        if (waitpid(pid, &status, 0) < 0) child_fail("cannot wait: %s", strerror(errno));
        if (WIFSIGNALED(status)) child_fail("%s was ended by signal %d", command.argv[0], WTERMSIG(status));
        if (WIFEXITED(status)) {
            if (WEXITSTATUS(status) != 0) child_fail("%s exited with %d", command.argv[0], WEXITSTATUS(status));
            break;
        }
        int signal_number = WSTOPSIG(status);
        if (!started) { /* the stop at exec */
            long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
            if (ptrace(PTRACE_SETOPTIONS, pid, NULL, options) != 0) child_fail("cannot trace: %s", strerror(errno));
            started = true;
            signal_number = 0;
        } else if (signal_number == (SIGTRAP | 0x80)) {
            entry_read(pid, &counts, &window);
            if (!served && counts.windows > 0) served = child_is_served(&command, pid);
            signal_number = 0;
        }
        ptrace(PTRACE_SYSCALL, pid, NULL, (long)signal_number);
    }
    counts_print(&counts, served);
    return 0;
}
