/* ring.h - the last records of what happened, in slots that are used again in turn. Any thread, signal handlers too, with
 * any locks held; takes no locks itself. The memory is untouched until the first record.
 *
 * A writer takes its slot for itself. A writer that finds the slot taken keeps nothing: a whole round of others overtook it, or it
 * is about to overtake the one that has the slot. So no slot is ever written by two. While a slot is written its number is 0, and
 * readers look at the number twice. A child that was forked while a slot was taken does without that slot. */
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

/* Keeps RECORD under the next number, and returns that; the number in RECORD is ignored. */
uint64_t ring_add(const struct ring *ring, const void *record);

/* Copies record NUMBER, from 1 on; false when it is not kept any more, or is just being written. */
bool ring_read(const struct ring *ring, uint64_t number, void *record);

#endif
