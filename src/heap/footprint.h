/* footprint.h - how much memory is in use, and how much more was at the last peak: that much may be worth giving back
 * to the kernel. Counted in batches, so right up to what the threads have not yet told. Any thread; no locks. */
#ifndef HAK_HEAP_FOOTPRINT_H
#define HAK_HEAP_FOOTPRINT_H

#include <stdint.h>

/* BYTES more are in use, or fewer where it is negative. */
void footprint_add(int64_t bytes);

/* *CHANGE bytes more, or fewer, that were not yet told: 0 from now on. The owner's own, or under his lock. */
void footprint_tell(int64_t *change);

/* BYTES were given back to the kernel. */
void footprint_returned(uint64_t bytes);

/* All that could be given back was, of what was free when BYTES were in use. */
void footprint_settled(uint64_t bytes);

uint64_t footprint_in_use(void);

/* How many bytes have gone out of use since the peak and are not yet given back. */
uint64_t footprint_returnable(void);

#endif
