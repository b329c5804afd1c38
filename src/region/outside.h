/* outside.h - blocks that do not lie in the window: requests larger than it can hold, everything when
 * there is no window, and what a signal handler asks for while its thread is inside the allocator.
 *
 * Each is a mapping of its own, remembered in a table. No locks: safe in signal handlers. */
#ifndef HAK_REGION_OUTSIDE_H
#define HAK_REGION_OUTSIDE_H

#include "base/attributes.h"
#include "base/counter.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The table, in parts that are never freed: a slot's address is that of a block, or at most OUTSIDE_NO_BLOCK. */
enum { OUTSIDE_FIRST_SLOTS = 64, OUTSIDE_LATER_SLOTS = 4094, OUTSIDE_NO_BLOCK = 2 };
struct outside_slot {
    _Atomic uintptr_t address;
    size_t bytes;
};
struct outside_table {
    _Atomic(struct outside_table *) next;
    size_t slots;
    struct outside_slot *slot; /* of a later part: right behind it */
};
extern HAK_HIDDEN struct outside_table outside_first;
extern HAK_HIDDEN struct outside_slot outside_first_slots[OUTSIDE_FIRST_SLOTS];

/* How many blocks there are, and their bytes. */
struct outside_totals {
    counter blocks, bytes;
};
extern HAK_HIDDEN struct outside_totals outside_totals;

/* Zeroed memory of at least BYTES bytes, aligned to ALIGNMENT (a power of two) and at least to 16;
 * NULL if the kernel refuses or the sum overflows. */
void *outside_map(size_t bytes, size_t alignment);

/* Usable bytes of the block that starts at ADDRESS; 0 when no such block exists. */
size_t outside_bytes(const void *address);

/* Removes the block that starts at ADDRESS; false when no such block exists. */
bool outside_unmap(void *address);

#endif
