/* stats.h - what the slow paths know, as text. */
#ifndef HAK_WATCH_STATS_H
#define HAK_WATCH_STATS_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the statistics of this process to FD. Other threads go on; each heap is locked for an instant.
 * False with errno from write(2). Never allocates. */
bool stats_print(int fd);

/* Sums over all heaps, at one moment as far as other threads allow. */
struct stats_totals {
    size_t held_bytes;        /* memory for blocks: used, or free and not given back to the kernel */
    size_t dirty_bytes;       /* of it, free runs of pages */
    size_t in_use_bytes;      /* of it, blocks in use or in the caches of threads */
    size_t large_bytes;       /* of these, large blocks */
    size_t large_blocks;
    size_t free_small_bytes;  /* small blocks that are neither */
    size_t free_small_blocks;
};
void stats_total(struct stats_totals *totals);

/* For the child of a fork: nobody else prints there. */
void stats_lock_reset(void);

#endif
