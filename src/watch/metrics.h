/* metrics.h - the numbers of a report: its forms and its schema follow from these tables. What a report says of each call and cause is
 * in report_json.c and report_openmetrics.c.
 *
 *   X(SECTION, NAME, KIND, VALUE, TEXT)
 *
 * KIND: GAUGE, the value now, or COUNTER, which only grows from the start of the process on. NAME ends in its unit; without one it is
 * a number of things. VALUE is an expression over `now`, a struct report_numbers. */
#ifndef HAK_WATCH_METRICS_H
#define HAK_WATCH_METRICS_H

#include "ace/pressure.h"
#include "heap/pressure.h"
#include "heap/purger.h"
#include "os/os.h"
#include "span/span.h"
#include "watch/stats.h"

struct report_numbers {
    struct os_usage usage;
    struct span_counts spans;
    struct stats_totals totals;
    struct stats_heaps heaps;
    uint64_t mappings, books_bytes, foreign_frees, purger_starts, purger_running;
};

#define METRICS(X)                                                                                            \
    X(process, rss_bytes, GAUGE, now->usage.rss_bytes, "resident memory of the process, all of it")            \
    X(process, peak_rss_bytes, GAUGE, now->usage.peak_rss_bytes, "the most that was resident")                 \
    X(process, minor_faults, COUNTER, now->usage.minor_faults, "page faults without input or output")          \
    X(process, major_faults, COUNTER, now->usage.major_faults, "page faults with input or output")             \
    X(process, mappings, GAUGE, now->mappings, "mappings of the process; 0 where the kernel does not say")     \
    X(memory, held_bytes, GAUGE, now->totals.held_bytes, "memory for blocks, used or free, not given back")     \
    X(memory, in_use_bytes, GAUGE, now->totals.in_use_bytes, "of it, blocks in use or cached by threads")      \
    X(memory, live_small_bytes, GAUGE, now->totals.live_small_bytes, "of these, blocks of 64 KiB or less in use") \
    X(memory, cached_bytes, GAUGE, now->totals.cached_bytes, "blocks cached by threads")                       \
    X(memory, large_bytes, GAUGE, now->totals.large_bytes, "larger blocks in use")                             \
    X(memory, large_blocks, GAUGE, now->totals.large_blocks, "how many these are")                             \
    X(memory, free_small_bytes, GAUGE, now->totals.free_small_bytes, "free blocks in slabs")                   \
    X(memory, free_small_blocks, GAUGE, now->totals.free_small_blocks, "how many these are")                   \
    X(memory, dirty_bytes, GAUGE, now->totals.dirty_bytes, "free runs of pages, not given back")               \
    X(memory, books_bytes, GAUGE, now->books_bytes, "hakmem's own records outside the window's")               \
    X(kernel, reserved_bytes, COUNTER, get(&os_counters.reserved_bytes), "address space asked of the kernel")  \
    X(kernel, committed_bytes, COUNTER, get(&os_counters.committed_bytes), "memory made usable")               \
    X(kernel, purged_bytes, COUNTER, get(&os_counters.purged_bytes), "memory given back")                      \
    X(kernel, unmapped_bytes, COUNTER, get(&os_counters.unmapped_bytes), "address space given back")           \
    X(spans, used_pages, GAUGE, now->spans.used_pages, "pages of 64 KiB in spans in use")                      \
    X(spans, used_pages_peak, GAUGE, now->spans.used_pages_peak, "the most at once, since peaks were reset")   \
    X(spans, lost_pages, GAUGE, now->spans.lost_pages, "pages given up: the kernel failed as it moved them, or took them back") \
    X(spans, dirty_pages, GAUGE, now->spans.dirty_pages, "free pages that were not given back")                \
    X(spans, fresh_pages, COUNTER, now->spans.fresh_pages, "pages asked of the window")                        \
    X(spans, huge_pages, COUNTER, now->spans.huge_pages, "of these, for which huge pages were asked")          \
    X(spans, taken, COUNTER, now->spans.taken, "spans taken")                                                  \
    X(spans, given, COUNTER, now->spans.given, "spans given back")                                             \
    X(spans, returned_pages, COUNTER, now->spans.returned_pages, "free pages given back to the kernel")        \
    X(spans, retaken_pages, COUNTER, now->spans.retaken_pages, "of these, used again: each costs faults")      \
    X(spans, part_bytes, COUNTER, now->spans.part_bytes, "given back inside slabs")                            \
    X(spans, moves, COUNTER, now->spans.moves, "spans moved by their page tables")                             \
    X(spans, copies, COUNTER, now->spans.copies, "spans moved by copying")                                     \
    X(heaps, created, GAUGE, now->heaps.heaps, "heaps that there are")                                         \
    X(heaps, live, GAUGE, now->heaps.live_heaps, "of these, of living threads")                                \
    X(heaps, cached_bytes_most, GAUGE, now->heaps.cached_bytes_most, "cached by the thread with the most")     \
    X(heaps, depth_bytes, GAUGE, now->heaps.depth_bytes, "what the caches of threads are sized for")           \
    X(heaps, remote_blocks, GAUGE, now->heaps.remote_blocks, "kept until more go to the same heaps")           \
    X(heaps, remote_bytes, GAUGE, now->heaps.remote_bytes, "their bytes")                                      \
    X(purge, thread_running, GAUGE, now->purger_running, "1 while a purge thread runs")                        \
    X(purge, thread_starts, COUNTER, now->purger_starts, "how often one was started")                          \
    X(purge, pressed_by_limit, COUNTER, counter_read(&pressure_counts[ACE_PRESSURE_LIMIT]), \
      "times that all went back since the control group's limit was near")                                    \
    X(purge, pressed_by_high, COUNTER, counter_read(&pressure_counts[ACE_PRESSURE_HIGH]), \
      "since its high mark was near")                                                                         \
    X(purge, pressed_by_stalls, COUNTER, counter_read(&pressure_counts[ACE_PRESSURE_STALLS]), \
      "since programs waited for memory")                                                                     \
    X(foreign, frees, COUNTER, now->foreign_frees, "pointers freed that hakmem never returned")

/* Of each class that was used; VALUE over `class`, a struct stats_class. */
#define CLASS_METRICS(X)                                                                                      \
    X(slabs, GAUGE, class->slabs, "slabs")                                                                    \
    X(taken_blocks, GAUGE, class->taken_blocks, "blocks in use or cached by threads")                         \
    X(cached_blocks, GAUGE, class->cached_blocks, "blocks cached by threads")                                 \
    X(live_blocks, GAUGE, class->live_blocks, "blocks in use, or on their way back to another thread")        \
    X(slack_bytes_most, GAUGE, class->slack_bytes, "the most that live blocks hold beyond what malloc was asked for") \
    X(refills, COUNTER, class->refills, "times that a thread's cache was filled")                             \
    X(refilled_blocks, COUNTER, class->refilled_blocks, "blocks that it was filled with")                     \
    X(spills, COUNTER, class->spills, "times that a thread's cache overflowed")                               \
    X(spilled_blocks, COUNTER, class->spilled_blocks, "blocks that went back from caches")                    \
    X(remote_blocks, COUNTER, class->remote_blocks, "blocks given back by other threads")                     \
    X(adopted_slabs, COUNTER, class->adopted_slabs, "slabs taken over from threads that ended, or, where threads are many, wait")

/* relaxed: a statistic. */
static inline uint64_t get(const _Atomic uint64_t *number) { return atomic_load_explicit(number, memory_order_relaxed); }

#endif
