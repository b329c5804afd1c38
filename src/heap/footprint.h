/* footprint.h - how much memory is in use, and how much more was at the last peak: that much may be worth returning
 * to the kernel. Counted in batches, so exact but for what threads have not reported yet. Any thread; no locks. */
#ifndef HAK_HEAP_FOOTPRINT_H
#define HAK_HEAP_FOOTPRINT_H

#include <stdint.h>

/* BYTES more are in use, or fewer where it is negative. */
void footprint_add(int64_t bytes);

/* Reports *CHANGE, bytes more or fewer that were not reported yet, and clears it. *CHANGE is the caller's own, or its
 * heap's lock is held. */
void footprint_tell(int64_t *change);

/* BYTES were returned to the kernel. */
void footprint_returned(uint64_t bytes);

/* All that could be returned was, of what was free when BYTES were in use. */
void footprint_settled(uint64_t bytes);

uint64_t footprint_in_use(void);

/* How many bytes have gone out of use since the peak and are not returned to the kernel yet. */
uint64_t footprint_returnable(void);

#endif
