/* usage.c - what the kernel says of this process. Reads files: only for reports, never at start, and not under a filter of the program's
 * own, which may end it for that. */
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* If LINE is "NAME:   1234 kB", *VALUE becomes that number, in bytes. */
static void take_bytes(const char *line, const char *name, uint64_t *value) {
    const size_t length = strlen(name);
    if (strncmp(line, name, length) == 0) *value = strtoull(line + length, NULL, 10) * 1024;
}

/* Of this thread, since once the process's first thread has ended by pthread_exit the process's own says nothing of memory. */
static bool open_status(struct os_lines *lines) {
    return os_lines_open(lines, "/proc/thread-self/status") || os_lines_open(lines, "/proc/self/status"); /* before Linux 3.17 */
}

/* Line by line: the user's groups, which may be thousands, come before what is looked for. */
static void read_status(struct os_usage *usage) {
    struct os_lines lines;
    char line[64];
    if (os_has_own_filter() || !open_status(&lines)) return;
    while (os_lines_next(&lines, line, sizeof line)) {
        take_bytes(line, "VmHWM:", &usage->peak_rss_bytes);
        take_bytes(line, "VmRSS:", &usage->rss_bytes);
    }
    os_lines_close(&lines);
}

void os_process_name(char *name, size_t bytes) {
    name[0] = '\0';
    if (!os_has_own_filter()) os_read_file("/proc/self/comm", name, bytes);
    name[strcspn(name, "\n")] = '\0';
}

void os_usage_read(struct os_usage *usage) {
    int saved = errno;
    memset(usage, 0, sizeof *usage);
    read_status(usage);

    struct rusage counted;
    if (getrusage(RUSAGE_SELF, &counted) == 0) {
        usage->minor_faults = (uint64_t)counted.ru_minflt;
        usage->major_faults = (uint64_t)counted.ru_majflt;
        /* Without /proc the peak may be one inherited across vfork. */
        if (usage->peak_rss_bytes == 0) usage->peak_rss_bytes = (uint64_t)counted.ru_maxrss * 1024;
    }
    errno = saved;
}
