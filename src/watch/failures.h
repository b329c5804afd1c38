/* failures.h - every allocation that failed, and why. Any thread, signal handlers too; no locks. */
#ifndef HAK_WATCH_FAILURES_H
#define HAK_WATCH_FAILURES_H

#include "watch/ring.h"

#include <stddef.h>

#define FAILURE_CAUSES(X)                                                                                     \
    X(FAILURE_THRESHOLD, "threshold", "no block may be so large")                                             \
    X(FAILURE_EXHAUSTION, "exhaustion", "a limit of hakmem's own was reached")                                \
    X(FAILURE_MAP, "map_failure", "the kernel refused memory")

#define FAILURE_CAUSE(id, ...) id,
enum failure_cause { FAILURE_CAUSES(FAILURE_CAUSE) FAILURE_CAUSE_COUNT };
#undef FAILURE_CAUSE

/* What is known of a failure. X(NAME, TEXT) */
#define FAILURE_FIELDS(X)                                                                                     \
    X(number, "from 1, in the order in which they happened")                                                  \
    X(time_ms, "milliseconds of the monotonic clock")                                                         \
    X(bytes, "asked for; the largest number: a product that overflows")                                       \
    X(alignment, "bytes")                                                                                     \
    X(limit, "that was reached: bytes of a block, or of the process; the largest number: none")               \
    X(in_use, "bytes of blocks in use then, about")                                                           \
    X(cause, "0 threshold, 1 exhaustion, 2 map failure")                                                      \
    X(class, "size class; the number of classes for large blocks")                                            \
    X(call, "of a map failure: the call that was refused")                                                    \
    X(error, "and the kernel's error")                                                                        \
    X(thread_id, "the kernel's number of the thread")

#define FAILURE_FIELD(name, ...) uint64_t name;
struct failure {
    FAILURE_FIELDS(FAILURE_FIELD)
};
#undef FAILURE_FIELD

enum { FAILURES_KEPT = 64 };
extern HAK_HIDDEN struct ring_slot failure_slots[FAILURES_KEPT];

/* How many there were, which is the number of the last. */
uint64_t failures_made(void);

/* Copies failure NUMBER, from 1 on; false when it is not kept any more, or is just being written. */
bool failure_read(uint64_t number, struct failure *failure);

/* How many there were, by cause. */
extern HAK_HIDDEN counter failure_counts[FAILURE_CAUSE_COUNT];

const char *failure_cause_name(enum failure_cause cause);

/* TRACE: each failure prints a line. At start, and whenever the settings change. */
void failures_configure(bool trace);

/* Records that no block of BYTES bytes aligned to ALIGNMENT could be allocated. Called immediately, so that the kernel's refusal, if
 * there was one, is still known. Keeps errno. */
void failure_note(size_t bytes, size_t alignment);

#endif
