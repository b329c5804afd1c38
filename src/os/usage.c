/* usage.c - what the kernel says of this process. Reads files: only for reports, never at start. */
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The value in bytes of a line "NAME:   1234 kB" in TEXT; 0 when there is none. */
static uint64_t status_bytes(const char *text, const char *name) {
    const char *line = strstr(text, name);
    return line == NULL ? 0 : strtoull(line + strlen(name), NULL, 10) * 1024;
}

void os_process_name(char *name, size_t bytes) {
    os_read_file("/proc/self/comm", name, bytes);
    name[strcspn(name, "\n")] = '\0';
}

void os_usage_read(struct os_usage *usage) {
    int saved = errno;
    memset(usage, 0, sizeof *usage);

    char text[4096];
    os_read_file("/proc/self/status", text, sizeof text);
    usage->peak_rss_bytes = status_bytes(text, "VmHWM:");
    usage->rss_bytes = status_bytes(text, "VmRSS:");

    struct rusage counted;
    if (getrusage(RUSAGE_SELF, &counted) == 0) {
        usage->minor_faults = (uint64_t)counted.ru_minflt;
        usage->major_faults = (uint64_t)counted.ru_majflt;
        /* Without /proc the peak may be one inherited across vfork. */
        if (usage->peak_rss_bytes == 0) usage->peak_rss_bytes = (uint64_t)counted.ru_maxrss * 1024;
    }
    errno = saved;
}
