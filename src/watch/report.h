/* report.h - the statistics in the forms that people and programs read. docs/statistics.md says what each number means. Any
 * thread, signal handlers too: no lock is taken, nothing is allocated, some KiB of stack are used. */
#ifndef HAK_WATCH_REPORT_H
#define HAK_WATCH_REPORT_H

#include <stdbool.h>
#include <stddef.h>

enum report_form {
    REPORT_TEXT,
    REPORT_JSON,        /* docs/statistics.schema.json */
    REPORT_OPENMETRICS, /* OpenMetrics 1.0, as Prometheus reads it */
};

/* Writes it to FD. False with errno from write(2). */
bool report_write(int fd, enum report_form form);

/* An option as text: its name, its value, and where the value comes from. */
struct report_setting {
    const char *name, *source;
    char value[1000]; /* OPTION_VALUE_BYTES */
};

/* READ_SETTING fills in option number INDEX; false beyond the last. Once, at start; the strings stay. */
typedef bool report_setting_reader(size_t index, struct report_setting *setting);
void report_configure(const char *version, report_setting_reader *read_setting);

/* ---- for report.c ---------------------------------------------------------------------------------- */

struct out;
struct report_numbers;

/* What was configured; before that, "" and none. */
const char *report_version(void);
bool report_read_setting(size_t index, struct report_setting *setting);

void report_text(struct out *out, const struct report_numbers *now);
void report_json(struct out *out, const struct report_numbers *now);
void report_openmetrics(struct out *out, const struct report_numbers *now);

#endif
