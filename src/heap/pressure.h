/* pressure.h - returning all free memory while memory is short on the machine or in the process's control group.
 *
 * The purge thread asks now and then. A process of one thread has none for most of the time, and may grow beyond its group's limit
 * within milliseconds, by memory that is free: there the thread itself asks as it grows, the more often the less is left. */
#ifndef HAK_HEAP_PRESSURE_H
#define HAK_HEAP_PRESSURE_H

#include "base/counter.h"
#include "heap/purge.h"

#include <stddef.h>

/* Whether anybody asks. At start, and whenever the settings change. */
void pressure_configure(bool hears);

/* At start: from here on a process of one thread asks as it grows. */
void pressure_start(void);

/* Around fork: the child has no file open that the purge thread was reading. Waits for that thread's calls, so it comes before the
 * locks that others need to go on. */
void pressure_fork_prepare(void);
void pressure_fork_parent(void);

/* In the child, even of a fork inside a slow path, which did not prepare. */
void pressure_fork_child(void);

/* The purge thread begins: limits are looked up once in its life, more often beside several threads. */
void pressure_begin(void);

/* The pace that the present pressure suggests. By the purge thread. */
enum purge_pace pressure_pace(void);

/* At that pace RETURNED_BYTES were returned, in TOOK_MS. If that was little of what is held, most of it is in use, and the next look at all
 * memory comes the later the longer this one took. By the purge thread. */
void pressure_rest(uint64_t took_ms, uint64_t returned_bytes);

/* By a heap's owner, at its regular looks: a process of one thread near its limit does not wait for much to be free. Outside the slow
 * paths. */
void pressure_look(void);

/* How often all free memory was returned, by enum ace_pressure_reason. */
extern HAK_HIDDEN counter pressure_counts[];

#endif
