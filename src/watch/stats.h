/* stats.h - what the slow paths know, read while they run. No function here allocates, and only stats_reset_peaks takes a lock, so other
 * threads go on, and a signal handler may call the others. Numbers from different places are of slightly different moments. */
#ifndef HAK_WATCH_STATS_H
#define HAK_WATCH_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One size class, over all heaps. */
struct stats_class {
    uint64_t block_bytes;
    uint64_t slabs;
    uint64_t slab_bytes;     /* address space of these slabs */
    uint64_t taken_blocks;   /* in use, or cached by threads */
    uint64_t cached_blocks;  /* of these, in the stacks of threads: not in use by the program */
    uint64_t live_blocks;    /* the others: in use, or on their way back to another thread's heap */
    uint64_t slack_bytes;    /* the most that live blocks hold beyond what malloc was asked for; the least is 0. Blocks that realloc shrank in
                              * place, aligned blocks, and medium blocks that served a smaller size may hold more */
    uint64_t refills, refilled_blocks, spills, spilled_blocks, remote_blocks, adopted_slabs; /* since the start */
};
void stats_read_class(unsigned class, struct stats_class *sum);

/* All heaps. */
struct stats_heaps {
    uint64_t heaps;            /* that there are, with or without a thread */
    uint64_t live_heaps;       /* of living threads */
    uint64_t cached_bytes;     /* in stacks */
    uint64_t cached_bytes_most; /* of one thread */
    uint64_t depth_bytes;      /* that stacks are sized for */
    uint64_t remote_blocks;    /* of other heaps, buffered until there are more of them */
    uint64_t remote_bytes;
};
void stats_read_heaps(struct stats_heaps *sum);

/* One heap. */
struct stats_heap {
    uint64_t thread_id; /* the kernel's number of its thread, or of the last it had */
    bool live;          /* the thread lives */
    uint64_t slabs, cached_bytes, depth_bytes, remote_blocks, remote_bytes;
};

/* The next heap after *AT, which is NULL at first; false after the last. */
bool stats_next_heap(const void **at, struct stats_heap *heap);

/* Sums over everything. */
struct stats_totals {
    size_t held_bytes;        /* memory for blocks: used, or free and not returned to the kernel */
    size_t dirty_bytes;       /* of it, free runs of pages */
    size_t in_use_bytes;      /* of it, blocks in use or in the caches of threads */
    size_t live_small_bytes;  /* of these, small blocks in use */
    size_t cached_bytes;      /* and in the caches of threads, larger ones too */
    size_t large_bytes;       /* and medium and large blocks in use */
    size_t large_blocks;
    size_t free_small_bytes;  /* small blocks that are neither in use nor cached */
    size_t free_small_blocks;
};
void stats_read_totals(struct stats_totals *totals);

/* Peaks of what is in use are counted anew from now on. */
void stats_reset_peaks(void);

#endif
