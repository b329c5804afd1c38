/* report.c - gathers what a report says, once. */
#include "watch/report.h"

#include "heap/purger.h"
#include "region/books.h"
#include "watch/foreign.h"
#include "watch/metrics.h"
#include "watch/out.h"

static const char *version = "";
static report_setting_reader *setting_reader;

void report_configure(const char *running, report_setting_reader *read_setting) {
    version = running;
    setting_reader = read_setting;
}

const char *report_version(void) { return version; }

bool report_read_setting(size_t index, struct report_setting *setting) {
    return setting_reader != NULL && setting_reader(index, setting);
}

static void read_numbers(struct report_numbers *now) {
    os_usage_read(&now->usage);
    span_counts_read(&now->spans);
    stats_read_totals(&now->totals);
    stats_read_heaps(&now->heaps);
    now->mappings = os_count_mappings();
    now->books_bytes = books_bytes();
    now->foreign_frees = foreign_count();
    now->purger_starts = purger_starts();
    now->purger_running = purger_is_running();
}

HAK_COLD bool report_write(int fd, enum report_form form) {
    static void (*const write[])(struct out *, const struct report_numbers *) = {
        [REPORT_TEXT] = report_text,
        [REPORT_JSON] = report_json,
        [REPORT_OPENMETRICS] = report_openmetrics,
    };
    struct report_numbers now;
    struct out out;
    read_numbers(&now);
    out_begin(&out, fd);
    write[form](&out, &now);
    return out_end(&out);
}
