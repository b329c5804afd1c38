/* decay.h - how much free dirty memory to give back, and how soon. Pure functions; any thread. */
#ifndef HAK_ACE_DECAY_H
#define HAK_ACE_DECAY_H

#include "ace/objective.h"

#include <stdint.h>

#define ACE_NEVER UINT64_MAX

/* Of UNUSED pages that stayed free and dirty through the last ELAPSED_MS, how many to give back so
 * that half of them are gone after HALF_LIFE_MS (0: all at once; ACE_NEVER: none). */
uint64_t ace_decay_pages(uint64_t unused, uint64_t elapsed_ms, uint64_t half_life_ms);

enum ace_half_life_reason {
    ACE_HALF_LIFE_KEEP,
    ACE_HALF_LIFE_RETAKEN, /* much of what was given back was soon used again */
    ACE_HALF_LIFE_QUIET,   /* nothing was, for some half-lives */
};

struct ace_half_life_input {
    uint64_t half_life_ms;  /* now */
    uint64_t configured_ms; /* the shortest */
    uint64_t quiet_ms;      /* since pages were last used again */
    uint64_t returned;      /* pages given back lately */
    uint64_t retaken;       /* pages used again lately that had been given back */
    enum ace_objective objective;
};

struct ace_half_life_decision {
    uint64_t half_life_ms;
    enum ace_half_life_reason reason;
};

/* A program whose peaks come back pays for each page it is given anew: its half-life grows, up to
 * ACE_HALF_LIFE_GROWTH times what was configured (where little memory is wanted, a quarter of that), and shrinks again when it
 * falls quiet. */
#define ACE_HALF_LIFE_GROWTH 64
struct ace_half_life_decision ace_half_life_next(struct ace_half_life_input input);

/* The shortest where nobody set it: BALANCED_MS is what it is for balanced. */
uint64_t ace_half_life_ms(uint64_t balanced_ms, enum ace_objective objective);

#endif
