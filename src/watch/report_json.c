/* report_json.c - the report as one JSON object; docs/statistics.schema.json is its schema. Numbers are whole; an infinite one, as a
 * half-life of `never`, is null. */
#include "ace/decay.h"
#include "slab/slab.h"
#include "watch/decisions.h"
#include "watch/failures.h"
#include "watch/metrics.h"
#include "watch/out.h"
#include "watch/report.h"

#include <string.h>
#include <unistd.h>

/* Version of the form: the first number grows when a member is removed or changes its meaning, the second when one is added. */
#define FORM_MAJOR 1
#define FORM_MINOR 2

/* "NAME": VALUE, with what separates it from the member before. */
static void member(struct out *out, bool *first, const char *name, uint64_t value) {
    out_print(out, "%s\"%s\": %llu", *first ? "" : ", ", name, (unsigned long long)value);
    *first = false;
}

/* The same of a limit; UINT64_MAX: there is none. */
static void limit_member(struct out *out, bool *first, const char *name, uint64_t value) {
    if (value != UINT64_MAX) {
        member(out, first, name, value);
        return;
    }
    out_print(out, "%s\"%s\": null", *first ? "" : ", ", name);
    *first = false;
}

static void text_member(struct out *out, bool *first, const char *name, const char *value) {
    out_print(out, "%s\"%s\": ", *first ? "" : ", ", name);
    out_quote(out, value);
    *first = false;
}

/* Begins the section NAME when it is not the one before. */
static void section(struct out *out, const char **open, const char *name, bool *first) {
    if (*open != NULL && strcmp(*open, name) == 0) return;
    out_print(out, "%s  \"%s\": {", *open == NULL ? "" : "},\n", name);
    *open = name;
    *first = true;
}

static void print_sections(struct out *out, const struct report_numbers *now) {
    const char *open = NULL;
    bool first = true;
#define PRINT(in, name, kind, value, text)   \
    section(out, &open, #in, &first);        \
    member(out, &first, #name, (value));
    METRICS(PRINT)
#undef PRINT
    out_print(out, "},\n");
}

static void print_half_life(struct out *out, const struct report_numbers *now) {
    if (now->spans.half_life_ms == ACE_NEVER)
        out_print(out, "  \"half_life_ms\": null,\n");
    else
        out_print(out, "  \"half_life_ms\": %llu,\n", (unsigned long long)now->spans.half_life_ms);
}

static void print_calls(struct out *out) {
    out_print(out, "  \"system_calls\": [");
    for (int call = 0; call < OS_CALL_KINDS; call++) {
        bool first = true;
        out_print(out, "%s\n    {", call == 0 ? "" : ",");
        text_member(out, &first, "call", os_call_name((enum os_call)call));
        member(out, &first, "made", get(&os_counters.calls[call]));
        member(out, &first, "refused", get(&os_counters.refusals[call]));
        out_print(out, "}");
    }
    out_print(out, "\n  ],\n");
}

static void print_span_sizes(struct out *out) {
    bool none = true;
    out_print(out, "  \"span_sizes\": [");
    for (int size = 0; size < SPAN_SIZES; size++) {
        bool first = true;
        if (counter_read(&span_sizes[size].taken) == 0) continue;
        out_print(out, "%s\n    {", none ? "" : ",");
        member(out, &first, "pages_least", (uint64_t)1 << size);
        member(out, &first, "live", counter_read(&span_sizes[size].live));
        member(out, &first, "taken", counter_read(&span_sizes[size].taken));
        out_print(out, "}");
        none = false;
    }
    out_print(out, "\n  ],\n");
}

static void print_classes(struct out *out) {
    bool none = true;
    out_print(out, "  \"classes\": [");
    for (unsigned number = 0; number < SIZE_CLASSES; number++) {
        struct stats_class sum, *class = &sum;
        bool first = true;
        stats_read_class(number, class);
        if (class->refills == 0 && class->slabs == 0) continue;
        out_print(out, "%s\n    {", none ? "" : ",");
        member(out, &first, "block_bytes", class->block_bytes);
#define PRINT(name, kind, value, text) member(out, &first, #name, (value));
        CLASS_METRICS(PRINT)
#undef PRINT
        out_print(out, "}");
        none = false;
    }
    out_print(out, "\n  ],\n");
}

static void print_threads(struct out *out) {
    bool none = true;
    out_print(out, "  \"threads\": [");
    const void *at = NULL;
    for (struct stats_heap sum; stats_next_heap(&at, &sum);) {
        bool first = true;
        if (!sum.live) continue;
        out_print(out, "%s\n    {", none ? "" : ",");
        member(out, &first, "thread_id", sum.thread_id);
        member(out, &first, "slabs", sum.slabs);
        member(out, &first, "cached_bytes", sum.cached_bytes);
        member(out, &first, "depth_bytes", sum.depth_bytes);
        member(out, &first, "remote_blocks", sum.remote_blocks);
        out_print(out, "}");
        none = false;
    }
    out_print(out, "\n  ],\n");
}

static void print_settings(struct out *out) {
    struct report_setting setting;
    out_print(out, "  \"options\": [");
    for (size_t i = 0; report_read_setting(i, &setting); i++) {
        bool first = true;
        out_print(out, "%s\n    {", i == 0 ? "" : ",");
        text_member(out, &first, "name", setting.name);
        text_member(out, &first, "value", setting.value);
        text_member(out, &first, "source", setting.source);
        out_print(out, "}");
    }
    out_print(out, "\n  ],\n");
}

/* The number of the oldest record, if the last KEPT of MADE records are kept. */
static uint64_t oldest_kept(uint64_t made, uint64_t kept) { return made > kept ? made - kept + 1 : 1; }

static void print_failure(struct out *out, const struct failure *failure) {
    bool first = true;
    char error[12];
    enum failure_cause cause = (enum failure_cause)failure->cause;
    out_print(out, "\n      {");
    member(out, &first, "number", failure->number);
    text_member(out, &first, "cause", failure_cause_name(cause));
    member(out, &first, "bytes", failure->bytes);
    member(out, &first, "alignment", failure->alignment);
    limit_member(out, &first, "limit_bytes", failure->limit);
    member(out, &first, "in_use_bytes", failure->in_use);
    member(out, &first, "thread_id", failure->thread_id);
    member(out, &first, "time_ms", failure->time_ms);
    uint64_t class = failure->class;
    if (class < SIZE_CLASSES) member(out, &first, "block_bytes", slab_classes[class].block_bytes);
    if (cause == FAILURE_MAP) {
        text_member(out, &first, "call", os_call_name((enum os_call)failure->call));
        text_member(out, &first, "error", os_error_name((int)failure->error, error));
    }
    out_print(out, "}");
}

static void print_failures(struct out *out) {
    bool first = true, none = true;
    out_print(out, "  \"failures\": {");
    for (int cause = 0; cause < FAILURE_CAUSE_COUNT; cause++)
        member(out, &first, failure_cause_name((enum failure_cause)cause), counter_read(&failure_counts[cause]));
    out_print(out, ", \"last\": [");
    const uint64_t made = failures_made();
    for (uint64_t number = oldest_kept(made, FAILURES_KEPT); number <= made; number++) {
        struct failure failure;
        if (!failure_read(number, &failure)) continue;
        out_print(out, "%s", none ? "" : ",");
        print_failure(out, &failure);
        none = false;
    }
    out_print(out, "%s]}\n", none ? "" : "\n    ");
}

static void print_decision(struct out *out, const struct decision *decision) {
    const struct decision_reason *reason = &decision_reasons[decision->reason];
    const uint64_t inputs[ACE_INPUTS] = {decision->input0, decision->input1, decision->input2};
    bool first = true;
    out_print(out, "\n      {");
    member(out, &first, "number", decision->number);
    member(out, &first, "time_ms", decision->time_ms);
    text_member(out, &first, "kind", decision_kinds[reason->kind].name);
    text_member(out, &first, "reason", reason->name);
    if (decision->thread_id != 0) member(out, &first, "thread_id", decision->thread_id);
    if (reason->kind == ACE_KIND_DEPTH) member(out, &first, "block_bytes", slab_classes[decision->class].block_bytes);
    member(out, &first, "from", decision->from);
    member(out, &first, "to", decision->to);
    out_print(out, ", \"inputs\": {");
    first = true;
    for (int i = 0; i < ACE_INPUTS && reason->inputs[i][0] != '\0'; i++)
        member(out, &first, reason->inputs[i], inputs[i]);
    out_print(out, "}}");
}

static void print_decisions(struct out *out) {
    const uint64_t made = decisions_made();
    bool none = true;
    out_print(out, "  \"decisions\": {\"made\": %llu, \"counts\": [", (unsigned long long)made);
    for (int reason = 0; reason < ACE_REASON_COUNT; reason++) {
        bool first = true;
        if (counter_read(&decision_counts[reason]) == 0) continue;
        out_print(out, "%s\n      {", none ? "" : ",");
        text_member(out, &first, "kind", decision_kinds[decision_reasons[reason].kind].name);
        text_member(out, &first, "reason", decision_reasons[reason].name);
        member(out, &first, "times", counter_read(&decision_counts[reason]));
        out_print(out, "}");
        none = false;
    }
    out_print(out, "%s], \"last\": [", none ? "" : "\n    ");
    none = true;
    for (uint64_t number = oldest_kept(made, DECISIONS_KEPT); number <= made; number++) {
        struct decision decision;
        if (!decision_read(number, &decision)) continue;
        out_print(out, "%s", none ? "" : ",");
        print_decision(out, &decision);
        none = false;
    }
    out_print(out, "%s]},\n", none ? "" : "\n    ");
}

void report_json(struct out *out, const struct report_numbers *now) {
    char name[64];
    os_process_name(name, sizeof name);
    out_print(out, "{\n  \"form\": \"%d.%d\", \"hakmem\": \"%s\", \"pid\": %d, \"program\": ", FORM_MAJOR, FORM_MINOR,
              report_version(), (int)getpid());
    out_quote(out, name);
    out_print(out, ",\n");
    print_sections(out, now);
    print_half_life(out, now);
    print_calls(out);
    print_span_sizes(out);
    print_classes(out);
    print_threads(out);
    print_settings(out);
    print_decisions(out);
    print_failures(out);
    out_print(out, "}\n");
}
