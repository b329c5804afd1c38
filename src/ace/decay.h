/* decay.h - how much free dirty memory to give back. A pure function; any thread. */
#ifndef HAK_ACE_DECAY_H
#define HAK_ACE_DECAY_H

#include <stdint.h>

#define ACE_NEVER UINT64_MAX

/* Of UNUSED pages that stayed free and dirty through the last ELAPSED_MS, how many to give back so
 * that half of them are gone after HALF_LIFE_MS (0: all at once; ACE_NEVER: none). */
uint64_t ace_decay_pages(uint64_t unused, uint64_t elapsed_ms, uint64_t half_life_ms);

#endif
