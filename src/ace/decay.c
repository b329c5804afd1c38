/* decay.c - exponential decay in whole numbers: a halving for each full half-life, a straight line
 * between halvings (at most 6 % off the exponential). */
#include "ace/decay.h"

uint64_t ace_decay_pages(uint64_t unused, uint64_t elapsed_ms, uint64_t half_life_ms) {
    if (half_life_ms == ACE_NEVER) return 0;
    if (half_life_ms == 0) return unused;
    uint64_t halvings = elapsed_ms / half_life_ms;
    if (halvings >= 20) return unused;
    uint64_t kept = unused >> halvings;
    uint64_t rest_ms = elapsed_ms % half_life_ms;
    /* Rounded down, so that the last page goes too. */
    kept = kept * (2 * half_life_ms - rest_ms) / (2 * half_life_ms);
    return unused - kept;
}
