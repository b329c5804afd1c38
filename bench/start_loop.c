/* start_loop STARTS [--preload LIBRARY] [--] COMMAND... - starts a command STARTS times, one after the other, and
 * waits for each: the cost of process start, exec to exit. The tool itself runs on its own allocator; only the
 * command has the library preloaded. One operation is one start. Before the clock starts, one run warms
 * the file cache. Prints the same JSON line as the workloads as far as it applies, and obeys WORKLOAD_SLOWDOWN
 * as they do. */
#include "child.h"
#include "turn_clock.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define STARTS_MAX 10000000UL

static const char usage[] = "start_loop STARTS [--preload LIBRARY] [--] COMMAND...";

static void command_run_once(const struct child_command *command) {
    pid_t pid = child_start(command, false);
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) child_fail("cannot wait: %s", strerror(errno));
    }
    if (WIFSIGNALED(status)) child_fail("%s was ended by signal %d", command->argv[0], WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) child_fail("%s exited with %d", command->argv[0], WEXITSTATUS(status));
}

/* Seconds since STARTED, after the share that WORKLOAD_SLOWDOWN adds. */
static double slowed_seconds(double started) {
    const char *percent = getenv("WORKLOAD_SLOWDOWN");
    double share = percent == NULL ? 0 : strtod(percent, NULL) / 100;
    double end = started + (turn_clock_seconds() - started) * (1 + share);
    double now;
    do {
        now = turn_clock_seconds();
    } while (share > 0 && now < end);
    return now - started;
}

static double usage_seconds(const struct rusage *usage_read) {
    return (double)usage_read->ru_utime.tv_sec + (double)usage_read->ru_utime.tv_usec / 1e6 +
           (double)usage_read->ru_stime.tv_sec + (double)usage_read->ru_stime.tv_usec / 1e6;
}

int main(int argc, char **argv) {
    char *end = NULL;
    unsigned long starts = argc > 1 ? strtoul(argv[1], &end, 10) : 0;
    if (starts == 0 || starts > STARTS_MAX || *end != '\0') {
        fprintf(stderr, "start_loop: STARTS is a whole number from 1 to %lu\nusage: %s\n", STARTS_MAX, usage);
        return 2;
    }
    struct child_command command;
    child_command_read(&command, 2, argv, usage);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* if it is not its turn (turn_clock.h), it could not end by itself */
    command_run_once(&command);

    struct rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    double started = turn_clock_seconds();
    for (unsigned long i = 0; i < starts; i++) command_run_once(&command);
    double seconds = slowed_seconds(started);
    getrusage(RUSAGE_CHILDREN, &after);

    printf("{\"workload\":\"start_loop\",\"ops\":%lu,\"seconds\":%.9f,\"ops_per_second\":%.3f,\"cpu_seconds\":%.6f,"
           "\"minor_faults\":%ld,\"major_faults\":%ld,\"involuntary_switches\":%ld}\n",
           starts, seconds, (double)starts / seconds, usage_seconds(&after) - usage_seconds(&before),
           after.ru_minflt - before.ru_minflt, after.ru_majflt - before.ru_majflt, after.ru_nivcsw - before.ru_nivcsw);
    return 0;
}
