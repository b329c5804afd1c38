/* report_text.c - the report for people. */
#include "ace/decay.h"
#include "base/size_classes.h"
#include "watch/decisions.h"
#include "watch/failures.h"
#include "watch/metrics.h"
#include "watch/out.h"
#include "watch/report.h"

#include <string.h>
#include <unistd.h>

static unsigned long long kib(uint64_t bytes) { return bytes / 1024; }
static unsigned long long pages_kib(uint64_t pages) { return kib(pages * PAGE_BYTES); }
static unsigned long long whole(uint64_t number) { return number; }

static void print_process(struct out *out, const struct os_usage *usage, uint64_t mappings) {
    char name[64];
    os_process_name(name, sizeof name);
    out_print(out, "hakmem: statistics of %s (pid %d)\n", name, (int)getpid());
    out_print(out, "  resident        peak %llu KiB, now %llu KiB\n", kib(usage->peak_rss_bytes), kib(usage->rss_bytes));
    out_print(out, "  page faults     minor %llu, major %llu; %llu mappings\n", whole(usage->minor_faults),
              whole(usage->major_faults), whole(mappings));
}

static void print_kernel(struct out *out) {
    out_print(out, "  memory          reserved %llu KiB, committed %llu KiB, given back %llu KiB\n",
              kib(get(&os_counters.reserved_bytes)), kib(get(&os_counters.committed_bytes)),
              kib(get(&os_counters.purged_bytes) + get(&os_counters.unmapped_bytes)));
    for (int call = 0; call < OS_CALL_KINDS; call++) {
        if (get(&os_counters.calls[call]) == 0) continue;
        out_print(out, "  system calls    %-22s %8llu, refused %llu\n", os_call_name((enum os_call)call),
                  whole(get(&os_counters.calls[call])), whole(get(&os_counters.refusals[call])));
    }
}

/* Those that were set. */
static void print_settings(struct out *out) {
    struct report_setting setting;
    for (size_t i = 0; report_read_setting(i, &setting); i++)
        if (strcmp(setting.source, "default") != 0)
            out_print(out, "  option          %s %s (%s)\n", setting.name, setting.value, setting.source);
}

static void print_failures(struct out *out) {
    for (int cause = 0; cause < FAILURE_CAUSE_COUNT; cause++) {
        uint64_t count = counter_read(&failure_counts[cause]);
        if (count != 0)
            out_print(out, "  failures        %-12s %llu\n", failure_cause_name((enum failure_cause)cause), whole(count));
    }
}

/* How often, by kind and reason. */
static void print_decisions(struct out *out) {
    for (int reason = 0; reason < ACE_REASON_COUNT; reason++) {
        uint64_t count = counter_read(&decision_counts[reason]);
        if (count != 0)
            out_print(out, "  decisions       %-12s %-12s %llu\n", decision_kinds[decision_reasons[reason].kind].name,
                      decision_reasons[reason].name, whole(count));
    }
}

static void print_decay(struct out *out, const struct report_numbers *now) {
    if (now->spans.half_life_ms == ACE_NEVER)
        out_print(out, "  decay           never\n");
    else
        out_print(out, "  decay           half-life %llu ms; purge thread %s, started %llu times\n",
                  whole(now->spans.half_life_ms), now->purger_running ? "running" : "not running",
                  whole(now->purger_starts));
}

static void print_spans(struct out *out, const struct report_numbers *now) {
    const struct span_counts *spans = &now->spans;
    const struct stats_heaps *heaps = &now->heaps;
    out_print(out, "  spans           used %llu KiB (at most %llu KiB), free and dirty %llu KiB, taken %llu, given back %llu\n",
              pages_kib(spans->used_pages), pages_kib(spans->used_pages_peak), pages_kib(spans->dirty_pages),
              whole(spans->taken), whole(spans->given));
    out_print(out, "  moved           %llu spans by their page tables, %llu by copying\n", whole(spans->moves),
              whole(spans->copies));
    out_print(out, "  to the kernel   free spans %llu KiB, of these used again %llu KiB; inside slabs %llu KiB\n",
              pages_kib(spans->returned_pages), pages_kib(spans->retaken_pages), kib(spans->part_bytes));
    print_decay(out, now);
    out_print(out, "  huge pages      asked for in %llu KiB of %llu KiB\n", pages_kib(spans->huge_pages),
              pages_kib(spans->fresh_pages));
    out_print(out, "  thread stacks   hide %llu KiB, %llu KiB of one thread, sized for %llu KiB; on the way to other heaps "
              "%llu KiB\n",
              kib(heaps->cached_bytes), kib(heaps->cached_bytes_most), kib(heaps->depth_bytes), kib(heaps->remote_bytes));
    out_print(out, "  large blocks    %llu, of %llu KiB\n", whole(now->totals.large_blocks), kib(now->totals.large_bytes));
    out_print(out, "  books           %llu KiB\n", kib(now->books_bytes));
    out_print(out, "  foreign frees   %llu\n", whole(now->foreign_frees));
    out_print(out, "  heaps           %llu, of living threads %llu; blocks on the way to other heaps %llu\n",
              whole(heaps->heaps), whole(heaps->live_heaps), whole(heaps->remote_blocks));
}

static void print_classes(struct out *out) {
    uint64_t least = 0, most = 0, slack = 0;
    out_print(out, "  %7s %7s %10s %9s %12s %9s %11s %8s %11s %10s %8s\n", "block", "slabs", "taken", "cached", "live bytes",
              "refills", "blocks", "spills", "blocks", "remote", "adopted");
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct stats_class row;
        stats_read_class(class, &row);
        if (row.refills == 0 && row.taken_blocks == 0 && row.spilled_blocks == 0) continue;
        uint64_t live_bytes = row.live_blocks * row.block_bytes;
        if (class < SMALL_CLASSES) { /* the others are reported as large blocks */
            least += live_bytes;
            most += row.taken_blocks * row.block_bytes;
            slack += row.slack_bytes;
        }
        out_print(out, "  %7llu %7llu %10llu %9llu %12llu %9llu %11llu %8llu %11llu %10llu %8llu\n", whole(row.block_bytes),
                  whole(row.slabs), whole(row.taken_blocks), whole(row.cached_blocks), whole(live_bytes),
                  whole(row.refills), whole(row.refilled_blocks), whole(row.spills), whole(row.spilled_blocks),
                  whole(row.remote_blocks), whole(row.adopted_slabs));
    }
    out_print(out, "  small blocks    live between %llu KiB and %llu KiB, of which at most %llu KiB were not asked of malloc\n",
              kib(least), kib(most), kib(slack));
}

void report_text(struct out *out, const struct report_numbers *now) {
    print_process(out, &now->usage, now->mappings);
    print_settings(out);
    print_kernel(out);
    print_failures(out);
    print_decisions(out);
    print_spans(out, now);
    print_classes(out);
}
