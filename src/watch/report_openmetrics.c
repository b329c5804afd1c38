/* report_openmetrics.c - the report as OpenMetrics text. A family is hakmem_SECTION_NAME; the samples of a counter end in
 * _total. */
#include "base/size_classes.h"
#include "watch/decisions.h"
#include "watch/failures.h"
#include "watch/metrics.h"
#include "watch/out.h"
#include "watch/report.h"

#include <stdio.h>
#include <string.h>

enum kind { GAUGE, COUNTER };

/* The unit that NAME ends in. */
static const char *unit_of(const char *name) {
    size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, "_bytes") == 0 ? "bytes" : NULL;
}

static void begin_family(struct out *out, const char *section, const char *name, enum kind kind, const char *text) {
    out_print(out, "# TYPE hakmem_%s_%s %s\n", section, name, kind == GAUGE ? "gauge" : "counter");
    if (unit_of(name) != NULL) out_print(out, "# UNIT hakmem_%s_%s %s\n", section, name, unit_of(name));
    out_print(out, "# HELP hakmem_%s_%s %s\n", section, name, text);
}

static void sample(struct out *out, const char *section, const char *name, enum kind kind, const char *labels,
                   uint64_t value) {
    out_print(out, "hakmem_%s_%s%s%s %llu\n", section, name, kind == GAUGE ? "" : "_total", labels,
              (unsigned long long)value);
}

static void print_info(struct out *out) {
    char name[64];
    os_process_name(name, sizeof name);
    out_print(out, "# TYPE hakmem_build info\n# HELP hakmem_build what is running\nhakmem_build_info{version=\"%s\",program=",
              report_version());
    out_quote(out, name);
    out_print(out, "} 1\n");
}

static void print_calls(struct out *out) {
    static const char *const names[] = {"calls", "refusals"};
    static const char *const texts[] = {"system calls made", "system calls that were refused"};
    for (int refused = 0; refused < 2; refused++) {
        begin_family(out, "kernel", names[refused], COUNTER, texts[refused]);
        for (int call = 0; call < OS_CALL_KINDS; call++) {
            char label[64];
            snprintf(label, sizeof label, "{call=\"%s\"}", os_call_name((enum os_call)call));
            sample(out, "kernel", names[refused], COUNTER, label,
                   get(refused ? &os_counters.refusals[call] : &os_counters.calls[call]));
        }
    }
}

static void print_failures(struct out *out) {
    begin_family(out, "failures", "allocations", COUNTER, "allocations that failed, by cause");
    for (int cause = 0; cause < FAILURE_CAUSE_COUNT; cause++) {
        char label[64];
        snprintf(label, sizeof label, "{cause=\"%s\"}", failure_cause_name((enum failure_cause)cause));
        sample(out, "failures", "allocations", COUNTER, label, counter_read(&failure_counts[cause]));
    }
}

static void print_decisions(struct out *out) {
    begin_family(out, "decisions", "made", COUNTER, "decisions of the engine that adapts, by kind and reason");
    for (int reason = 0; reason < ACE_REASON_COUNT; reason++) {
        char label[80];
        snprintf(label, sizeof label, "{kind=\"%s\",reason=\"%s\"}", decision_kinds[decision_reasons[reason].kind].name,
                 decision_reasons[reason].name);
        sample(out, "decisions", "made", COUNTER, label, counter_read(&decision_counts[reason]));
    }
}

/* The value of CLASS that a family reports. */
typedef uint64_t class_value(const struct stats_class *class);
#define VALUE(name, kind, value, text)                                                                        \
    static uint64_t class_##name(const struct stats_class *class) { return (value); }
CLASS_METRICS(VALUE)
#undef VALUE

static void print_class_family(struct out *out, const char *family, enum kind kind, class_value *value,
                               const char *text) {
    begin_family(out, "class", family, kind, text);
    for (unsigned number = 0; number < SIZE_CLASSES; number++) {
        struct stats_class class;
        char label[48];
        stats_read_class(number, &class);
        if (class.refills == 0 && class.slabs == 0) continue;
        snprintf(label, sizeof label, "{block_bytes=\"%llu\"}", (unsigned long long)class.block_bytes);
        sample(out, "class", family, kind, label, value(&class));
    }
}

static void print_span_sizes(struct out *out) {
    begin_family(out, "span_sizes", "live", GAUGE, "spans in use, slabs included, by the least pages of their size");
    for (int size = 0; size < SPAN_SIZES; size++) {
        char label[48];
        if (counter_read(&span_sizes[size].taken) == 0) continue;
        snprintf(label, sizeof label, "{pages=\"%llu\"}", (unsigned long long)1 << size);
        sample(out, "span_sizes", "live", GAUGE, label, counter_read(&span_sizes[size].live));
    }
}

void report_openmetrics(struct out *out, const struct report_numbers *now) {
    print_info(out);
#define PRINT(section, name, kind, value, text)                                                               \
    begin_family(out, #section, #name, kind, text);                                                           \
    sample(out, #section, #name, kind, "", (value));
    METRICS(PRINT)
#undef PRINT
    print_calls(out);
    print_failures(out);
    print_decisions(out);
#define PRINT(name, kind, value, text) print_class_family(out, #name, kind, class_##name, text);
    CLASS_METRICS(PRINT)
#undef PRINT
    print_span_sizes(out);
    out_print(out, "# EOF\n");
}
