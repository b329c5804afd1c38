/* resident.c - see resident.h. Reads by plain system calls: a stdio stream would allocate. */
#include "resident.h"

#include "workload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 4096

static void file_read(const char *path, char text[TEXT_BYTES]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, TEXT_BYTES - 1);
    if (length <= 0) workload_fail("cannot read %s: %s", path, strerror(errno));
    close(fd);
    text[length] = '\0';
}

uint64_t rss_kib_read(void) {
    char text[TEXT_BYTES];
    unsigned long long pages;
    file_read("/proc/self/statm", text);
    if (sscanf(text, "%*u %llu", &pages) != 1) workload_fail("/proc/self/statm has no resident size");
    return pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

uint64_t peak_rss_kib_read(void) {
    char text[TEXT_BYTES];
    file_read("/proc/self/status", text);
    const char *field = strstr(text, "VmHWM:");
    if (field == NULL) workload_fail("/proc/self/status has no VmHWM");
    return strtoull(field + strlen("VmHWM:"), NULL, 10);
}
