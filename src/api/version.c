/* version.c - what is running, and the statistics on request. */
#include "api/start.h"
#include "hakmem/hakmem.h"
#include "watch/stats.h"

#define TEXT(number) #number
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

HAK_EXPORT const char *hak_version(void) {
    return VERSION(HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR, HAKMEM_VERSION_PATCH);
}

HAK_EXPORT int hak_stats_print(int fd) {
    start_once();
    return stats_print(fd) ? 0 : -1;
}
