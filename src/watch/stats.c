/* stats.c - the report at exit. Everything is read as it stands: no counter is kept for it on the fast
 * paths, so what the stacks of running threads hold is known about. */
#include "watch/stats.h"

#include "ace/decay.h"
#include "base/bits.h"
#include "heap/purger.h"
#include "heap/registry.h"
#include "os/os.h"
#include "region/books.h"
#include "watch/foreign.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The sum over all heaps of one class. */
struct class_sum {
    uint64_t slabs, taken, cached, refills, refilled, spills, spilled, remote, adopted;
};

struct sum {
    struct class_sum classes[SIZE_CLASSES];
    uint32_t live_heaps, heaps;
    uint64_t remote_waiting, remote_bytes;
    uint64_t stack_bytes, stack_bytes_most; /* held in all, and by the one thread with the most */
    uint64_t depth_bytes;                   /* what the stacks are sized for */
};

/* Blocks that are out of their slab: in use, or cached by some thread. Heap's lock held. */
static uint64_t blocks_taken(const struct bin *bin, unsigned class) {
    uint64_t taken = 0;
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        for (uint32_t first = bin->slabs[bucket]; first != 0; first = slab_at(first)->span.next)
            taken += slab_classes[class].blocks - slab_at(first)->free;
    return taken;
}

static void add_heap(struct heap *heap, void *context) {
    struct sum *sum = context;
    bool live = atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_LIVE; /* a statistic */
    uint64_t held_bytes = 0;
    sum->heaps++;
    sum->live_heaps += live;
    sum->remote_waiting += atomic_load_explicit(&heap->remote_count, memory_order_relaxed);
    sum->remote_bytes += atomic_load_explicit(&heap->remote_bytes, memory_order_relaxed);
    if (live) sum->depth_bytes += heap->depth_bytes;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        const struct bin *bin = &heap->bins[class];
        struct class_sum *into = &sum->classes[class];
        into->slabs += bin->slab_count;
        into->taken += blocks_taken(bin, class);
        uint64_t held = live ? stack_held(heap, class) : 0;
        into->cached += held;
        held_bytes += held * slab_classes[class].block_bytes;
        into->refills += bin->refills;
        into->refilled += bin->refilled_blocks;
        into->spills += bin->spills;
        into->spilled += bin->spilled_blocks;
        into->remote += bin->remote_blocks;
        into->adopted += bin->adopted_slabs;
    }
    sum->stack_bytes += held_bytes;
    if (held_bytes > sum->stack_bytes_most) sum->stack_bytes_most = held_bytes;
}

static unsigned long long get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed); /* a statistic */
}

static unsigned long long kib(uint64_t bytes) { return bytes / 1024; }

static bool print_process(int fd) {
    char name[64];
    os_process_name(name, sizeof name);
    struct os_usage usage;
    os_usage_read(&usage);
    return os_print(fd, "hakmem: statistics of %s (pid %d)\n", name, (int)getpid()) &&
           os_print(fd, "  resident        peak %llu KiB, now %llu KiB\n", kib(usage.peak_rss_bytes),
                    kib(usage.rss_bytes)) &&
           os_print(fd, "  page faults     minor %llu, major %llu\n", (unsigned long long)usage.minor_faults,
                    (unsigned long long)usage.major_faults);
}

static bool print_kernel(int fd) {
    bool done = os_print(fd, "  memory          reserved %llu KiB, committed %llu KiB, given back %llu KiB\n",
                         kib(get(&os_counters.reserved_bytes)), kib(get(&os_counters.committed_bytes)),
                         kib(get(&os_counters.purged_bytes) + get(&os_counters.unmapped_bytes)));
    for (int call = 0; done && call < OS_CALL_KINDS; call++) {
        if (get(&os_counters.calls[call]) == 0) continue;
        done = os_print(fd, "  system calls    %-22s %8llu, refused %llu\n", os_call_name((enum os_call)call),
                        get(&os_counters.calls[call]), get(&os_counters.refusals[call]));
    }
    return done;
}

static bool print_decay(int fd, uint64_t half_life_ms) {
    if (half_life_ms == ACE_NEVER) return os_print(fd, "  decay           never\n");
    return os_print(fd, "  decay           half-life %llu ms; purge thread %s, started %llu times\n",
                    (unsigned long long)half_life_ms, purger_is_running() ? "running" : "not running",
                    (unsigned long long)purger_starts());
}

static bool print_spans(int fd, const struct sum *sum) {
    struct span_counts counts;
    span_counts_read(&counts);
    return os_print(fd, "  spans           used %llu KiB, free and dirty %llu KiB, taken %llu, given back %llu\n",
                    kib(counts.used_pages * PAGE_BYTES), kib(counts.dirty_pages * PAGE_BYTES),
                    (unsigned long long)counts.taken, (unsigned long long)counts.given) &&
           os_print(fd, "  moved           %llu spans by their page tables, %llu by copying\n",
                    (unsigned long long)counts.moves, (unsigned long long)counts.copies) &&
           os_print(fd, "  to the kernel   free spans %llu KiB, of these used again %llu KiB; inside slabs %llu KiB\n",
                    kib(counts.returned_pages * PAGE_BYTES), kib(counts.retaken_pages * PAGE_BYTES),
                    kib(counts.part_bytes)) &&
           print_decay(fd, counts.half_life_ms) &&
           os_print(fd, "  huge pages      asked for in %llu KiB of %llu KiB\n",
                    kib(counts.huge_pages * PAGE_BYTES), kib(counts.fresh_pages * PAGE_BYTES)) &&
           os_print(fd, "  thread stacks   hide %llu KiB, %llu KiB of one thread, sized for %llu KiB; "
                    "on the way to other heaps %llu KiB\n",
                    kib(sum->stack_bytes), kib(sum->stack_bytes_most), kib(sum->depth_bytes),
                    kib(sum->remote_bytes)) &&
           os_print(fd, "  books           %llu KiB\n", kib(books_bytes())) &&
           os_print(fd, "  foreign frees   %llu\n", (unsigned long long)foreign_count()) &&
           os_print(fd, "  heaps           %u, of living threads %u; blocks on the way to other heaps %llu\n",
                    sum->heaps - 1, sum->live_heaps, (unsigned long long)sum->remote_waiting);
}

static bool print_classes(int fd, const struct sum *sum) {
    uint64_t least = 0, most = 0;
    bool done =
        os_print(fd, "  %7s %7s %10s %9s %12s %9s %11s %8s %11s %10s %8s\n", "block", "slabs", "taken",
                 "cached", "live bytes", "refills", "blocks", "spills", "blocks", "remote", "adopted");
    for (unsigned class = 0; done && class < SIZE_CLASSES; class++) {
        const struct class_sum *row = &sum->classes[class];
        if (row->refills == 0 && row->taken == 0 && row->spilled == 0) continue;
        uint64_t cached = row->cached < row->taken ? row->cached : row->taken;
        uint64_t live_bytes = (row->taken - cached) * slab_classes[class].block_bytes;
        least += live_bytes;
        most += row->taken * slab_classes[class].block_bytes;
        done = os_print(fd, "  %7u %7llu %10llu %9llu %12llu %9llu %11llu %8llu %11llu %10llu %8llu\n",
                        slab_classes[class].block_bytes, (unsigned long long)row->slabs,
                        (unsigned long long)row->taken, (unsigned long long)cached,
                        (unsigned long long)live_bytes, (unsigned long long)row->refills,
                        (unsigned long long)row->refilled, (unsigned long long)row->spills,
                        (unsigned long long)row->spilled, (unsigned long long)row->remote,
                        (unsigned long long)row->adopted);
    }
    return done &&
           os_print(fd, "  small blocks    live between %llu KiB and %llu KiB\n", kib(least), kib(most));
}

/* Keeps a second reader out. */
static struct os_lock lock;

void stats_lock_reset(void) { os_lock_reset(&lock); }

static struct sum sum; /* too large for a small stack; guarded by the lock */

static void count_heaps(void) {
    memset(&sum, 0, sizeof sum);
    registry_visit(add_heap, &sum);
}

void stats_total(struct stats_totals *totals) {
    struct span_counts counts;
    uint64_t slabs = 0, slab_pages = 0;
    *totals = (struct stats_totals){0};
    os_lock_take(&lock);
    count_heaps();
    span_counts_read(&counts);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        const struct class_sum *row = &sum.classes[class];
        const struct slab_class *shape = &slab_classes[class];
        uint64_t free_blocks = row->slabs * shape->blocks - row->taken;
        slabs += row->slabs;
        slab_pages += row->slabs * shape->pages;
        totals->in_use_bytes += row->taken * shape->block_bytes;
        totals->free_small_blocks += free_blocks;
        totals->free_small_bytes += free_blocks * shape->block_bytes;
    }
    os_lock_drop(&lock);
    /* Other threads go on meanwhile: a difference below 0 is 0. */
    uint64_t spans = counts.taken - counts.given;
    totals->held_bytes = (counts.used_pages + counts.dirty_pages) * PAGE_BYTES;
    totals->dirty_bytes = counts.dirty_pages * PAGE_BYTES;
    totals->large_blocks = spans > slabs ? spans - slabs : 0;
    totals->large_bytes = counts.used_pages > slab_pages ? (counts.used_pages - slab_pages) * PAGE_BYTES : 0;
    totals->in_use_bytes = min_size(totals->in_use_bytes + totals->large_bytes, totals->held_bytes);
}

bool stats_print(int fd) {
    os_lock_take(&lock);
    count_heaps();
    bool done = print_process(fd) && print_kernel(fd) && print_spans(fd, &sum) && print_classes(fd, &sum);
    int saved = errno;
    os_lock_drop(&lock);
    errno = saved;
    return done;
}
