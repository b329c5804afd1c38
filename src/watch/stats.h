/* stats.h - what the slow paths know, as text. */
#ifndef HAK_WATCH_STATS_H
#define HAK_WATCH_STATS_H

#include <stdbool.h>

/* Writes the statistics of this process to FD. Other threads go on; each heap is locked for an instant.
 * False with errno from write(2). Never allocates. */
bool stats_print(int fd);

/* For the child of a fork: nobody else prints there. */
void stats_lock_reset(void);

#endif
