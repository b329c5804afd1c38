/* statistics.c - reports on request. */
#include "api/names.h"
#include "api/start.h"
#include "hakmem/hakmem.h"
#include "watch/report.h"
#include "watch/stats.h"

#include <errno.h>

HAK_EXPORT int hak_stats_write(int fd, enum hak_stats_form form) {
    static const enum report_form forms[] = {
        [HAK_STATS_TEXT] = REPORT_TEXT,
        [HAK_STATS_JSON] = REPORT_JSON,
        [HAK_STATS_OPENMETRICS] = REPORT_OPENMETRICS,
    };
    if ((unsigned)form >= sizeof forms / sizeof forms[0]) {
        errno = EINVAL;
        return -1;
    }
    start_once();
    return report_write(fd, forms[form]) ? 0 : -1;
}

HAK_EXPORT int hak_stats_print(int fd) { return hak_stats_write(fd, HAK_STATS_TEXT); }

HAK_EXPORT void hak_stats_reset_peaks(void) {
    start_once();
    stats_reset_peaks();
}
