/* command_cost FD [OPTION...] [--] COMMAND... - what a whole command costs.
 *
 * Runs the command, with --repeat N up to N times in succession as long as it ends well, and writes one JSON line to the
 * descriptor FD: time from the first start to the last exit; processor time, page faults and switches of all processes of the
 * command; the peak RSS of the largest of them. A process whose parent ended before it becomes a child of this one, so that it is
 * counted, too, if it ends in time; one that does not is killed. To end well is status 0, or the one of --allow-status N.
 *
 * The tool is small and stays on its own allocator. That matters for the peak: the kernel's ru_maxrss of a child starts
 * from what its parent held at the fork, and the laboratory, in Python, holds more than many programs do. Input, output and
 * environment are the command's own, and each run reads its input from the beginning if that is a file; the library is put first
 * in LD_PRELOAD. With --slowdown PERCENT the clock runs on, busy, for that share of the time or, with --measure cpu, of the
 * processor time.
 *
 * If it leads a process group, it ends on SIGTERM and when its parent ends, and so does all that the command started, except
 * what left for groups of its own. If it leads a session, which has no terminal then, the command is in another group: it may
 * end its own. From a terminal both are in one, which the terminal's signals are for. */
#include "child.h"
#include "turn_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPEAT_MAX 1000000L

static const char usage[] =
    "command_cost FD [--repeat N] [--allow-status N] [--slowdown PERCENT] [--measure time|cpu]"
    " [--preload LIBRARY] [--] COMMAND...";

struct request {
    int report_fd;
    long repeat;
    long allowed_status;
    double slowdown_share;
    bool by_cpu;
    struct child_command command;
};

extern char **environ;

static volatile pid_t command_pid; /* read by group_end */

static double usage_seconds(const struct rusage *used) {
    return (double)used->ru_utime.tv_sec + (double)used->ru_utime.tv_usec / 1e6 +
           (double)used->ru_stime.tv_sec + (double)used->ru_stime.tv_usec / 1e6;
}

_Noreturn static void usage_fail(const char *why) {
    fprintf(stderr, "command_cost: %s\nusage: %s\n", why, usage);
    exit(2);
}

static void preload_add(const char *library) {
    if (access(library, R_OK) != 0) child_fail("cannot read %s: %s", library, strerror(errno));
    const char *before = getenv("LD_PRELOAD");
    char *value;
    if (asprintf(&value, "%s%s%s", library, before ? ":" : "", before ? before : "") < 0)
        child_fail("no memory");
    if (setenv("LD_PRELOAD", value, 1) != 0) child_fail("no memory");
    free(value);
}

static struct request request_read(char **argv) {
    struct request request = {.repeat = 1};
    char *end = NULL;
    request.report_fd = argv[1] ? (int)strtol(argv[1], &end, 10) : -1;
    if (end == NULL || *end != '\0' || fcntl(request.report_fd, F_SETFD, FD_CLOEXEC) != 0) {
        usage_fail("FD is an open descriptor");
    }
    char **rest = argv + 2;
    for (; *rest != NULL && rest[1] != NULL && strcmp(*rest, "--") != 0; rest += 2) {
        if (strcmp(*rest, "--repeat") == 0) {
            request.repeat = strtol(rest[1], &end, 10);
            if (*end != '\0' || request.repeat < 1 || request.repeat > REPEAT_MAX)
                usage_fail("--repeat is a count");
        } else if (strcmp(*rest, "--allow-status") == 0) {
            request.allowed_status = strtol(rest[1], &end, 10);
            if (*end != '\0') usage_fail("--allow-status is an exit status");
        } else if (strcmp(*rest, "--slowdown") == 0) {
            request.slowdown_share = strtod(rest[1], &end) / 100;
            if (*end != '\0' || !(request.slowdown_share >= 0)) usage_fail("--slowdown is a percentage");
        } else if (strcmp(*rest, "--measure") == 0) {
            request.by_cpu = strcmp(rest[1], "cpu") == 0;
            if (!request.by_cpu && strcmp(rest[1], "time") != 0) usage_fail("--measure is time or cpu");
        } else if (strcmp(*rest, "--preload") == 0) {
            request.command.preload = rest[1];
        } else {
            break;
        }
    }
    if (*rest != NULL && strcmp(*rest, "--") == 0) rest++;
    if (*rest == NULL || **rest == '-') usage_fail("there is no command");
    if (request.command.preload != NULL) preload_add(request.command.preload);
    request.command.argv = rest;
    request.command.own_group = getsid(0) == getpid();
    request.command.environment = environ;
    return request;
}

/* Kills the children of this process, with the groups that they lead; false if there is none. For a handler of signals. */
static bool children_kill(void) {
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool killed = false;
    pid_t pid = 0;
    char text[512];
    for (ssize_t length; (length = read(fd, text, sizeof text)) > 0;) {
        for (ssize_t i = 0; i < length; i++) {
            if (text[i] >= '0' && text[i] <= '9') {
                pid = 10 * pid + (text[i] - '0');
            } else if (pid != 0) { /* each number ends with a blank */
                kill(-pid, SIGKILL);
                if (kill(pid, SIGKILL) == 0) killed = true;
                pid = 0;
            }
        }
    }
    close(fd);
    return killed;
}

/* Ends the command and what it started, and this process. */
static void group_end(int number) {
    (void)number;
    children_kill();
    if (command_pid > 0) kill(-command_pid, SIGKILL); /* also when its first process has ended */
    kill(0, SIGKILL);
}

static pid_t parent_pid;

static void continued(int number) {
    if (getppid() != parent_pid) group_end(number);
}

/* If our parent ends, nothing would end a command that is a server, so it ends with us. A shell script is in one group with its
 * commands, and is left alone. By SIGCONT, since it may not be its turn (turn_clock.h): a process that is stopped heeds nothing
 * else. */
static void end_with_parent(void) {
    if (getpgrp() != getpid()) return;
    parent_pid = getppid();
    signal(SIGTERM, group_end);
    signal(SIGCONT, continued);
    prctl(PR_SET_PDEATHSIG, SIGCONT);
    continued(SIGCONT); /* it may have ended before */
}

/* Waits for one child and reaps all others that end meanwhile. */
static int status_wait(pid_t pid) {
    int status;
    for (;;) {
        pid_t ended = waitpid(-1, &status, 0);
        if (ended == pid) return status;
        if (ended < 0 && errno != EINTR) child_fail("cannot wait: %s", strerror(errno));
    }
}

/* Kills what the command left running, and what becomes a child of this process as those end. A process of another user may have
 * to stay. */
static void children_end(void) {
    while (children_kill() && waitpid(-1, NULL, 0) > 0) continue;
}

/* Busy for SECONDS; returns how long it was. */
static double burn(double seconds) {
    double started = turn_clock_seconds(), now = started;
    while (seconds > 0 && now < started + seconds) now = turn_clock_seconds();
    return now - started;
}

int main(int argc, char **argv) {
    (void)argc;
    struct request request = request_read(argv);
    end_with_parent();
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* without it, only processes that are waited for count */
    int status;
    long runs = 0;
    double started = turn_clock_seconds();
    do {
        lseek(STDIN_FILENO, 0, SEEK_SET); /* all runs share one offset in it; a pipe has none */
        command_pid = child_start(&request.command, false);
        status = status_wait(command_pid);
    } while (++runs < request.repeat && WIFEXITED(status) && WEXITSTATUS(status) == request.allowed_status);
    double seconds = turn_clock_seconds() - started;
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    children_end();
    double burnt = burn(request.slowdown_share * (request.by_cpu ? usage_seconds(&used) : seconds));

    dprintf(
        request.report_fd,
        "{\"seconds\":%.9f,\"cpu_seconds\":%.6f,\"peak_rss_kib\":%ld,\"minor_faults\":%ld,\"major_faults\":%ld,"
        "\"involuntary_switches\":%ld,\"exit_status\":%d,\"signal\":%d}\n",
        seconds + burnt, usage_seconds(&used) + burnt, used.ru_maxrss, used.ru_minflt, used.ru_majflt,
        used.ru_nivcsw, WIFEXITED(status) ? WEXITSTATUS(status) : 0,
        WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return 0;
}
