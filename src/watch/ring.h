/* ring.h - records of what happened, the last of them, in slots that are used again in turn. Any thread, signal handlers
 * too, under any locks; no locks of its own. The memory is untouched until the first record.
 *
 * A writer takes the slot for itself; who finds it taken was overtaken by all others, or is about to overtake one, and
 * keeps nothing: so no slot is ever written by two. While it is written its number is 0, and readers look at the number
 * twice. A child that was forked in between does without this slot. */
#ifndef HAK_WATCH_RING_H
#define HAK_WATCH_RING_H

#include "base/counter.h"

#include <stdbool.h>

enum { RING_VALUES = 11 }; /* of a record, at most */

struct ring_slot {
    counter values[RING_VALUES]; /* as in the record; the first is its number, from 1; 0: none, or being written */
    counter taken;               /* 1: by a writer */
};

/* Of records that are structs of uint64_t, the first of which is their number. */
struct ring {
    struct ring_slot *slots;
    counter *last_number;
    uint32_t slot_count, value_count;
};

/* Keeps RECORD under the next number, which it returns, whatever the record says. */
uint64_t ring_add(const struct ring *ring, const void *record);

/* Copies record NUMBER, from 1 on; false when it is not kept any more, or is just being written. */
bool ring_read(const struct ring *ring, uint64_t number, void *record);

#endif
