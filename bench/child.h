/* child.h - for the measuring tools: a child process that runs a command with a library preloaded, while
 * the tool itself stays on its own allocator. */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct child_command {
    const char *preload; /* NULL: none */
    char **argv;         /* ends with NULL */
    char **environment;  /* made by child_command_read; ends with NULL */
    bool own_group;      /* its processes are in a process group of their own: what it sends to its group stays there */
};

/* Reads `[--preload LIBRARY] [--] COMMAND [ARGUMENT...]` from argv + FIRST. On a wrong line prints USAGE
 * to stderr and exits with 2. */
void child_command_read(struct child_command *command, int first, char **argv, const char *usage);

/* Starts it; without TRACED what the kernel cannot execute is the shell's, as a script without "#!". With TRACED
 * it stops at its exec, as ptrace(PTRACE_TRACEME) has it, and its output is dropped. Ends the tool with a message
 * when it cannot start. */
pid_t child_start(const struct child_command *command, bool traced);

/* True when /proc/PID/maps names the preloaded library, or when there is none to name. */
bool child_is_served(const struct child_command *command, pid_t pid);

/* One line to stderr with the tool's name, then exit with 1. */
_Noreturn void child_fail(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

#endif
