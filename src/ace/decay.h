/* decay.h - how much free dirty memory to return to the kernel, and how soon. Pure functions; any thread. */
#ifndef HAK_ACE_DECAY_H
#define HAK_ACE_DECAY_H

#include "ace/objective.h"

#include <stdint.h>

#define ACE_NEVER UINT64_MAX

/* Of UNUSED pages that stayed free and dirty through the last ELAPSED_MS, how many to return so
 * that half of them are gone after HALF_LIFE_MS (0: all of them; ACE_NEVER: none). */
uint64_t ace_decay_pages(uint64_t unused, uint64_t elapsed_ms, uint64_t half_life_ms);

enum ace_half_life_reason {
    ACE_HALF_LIFE_KEEP,
    ACE_HALF_LIFE_RETAKEN, /* much of what was returned was soon used again */
    ACE_HALF_LIFE_QUIET,   /* nothing was used again for some half-lives */
};

struct ace_half_life_input {
    uint64_t half_life_ms;  /* now */
    uint64_t configured_ms; /* the shortest */
    uint64_t quiet_ms;      /* since pages were last used again */
    uint64_t returned;      /* pages returned lately */
    uint64_t retaken;       /* pages used again lately after they were returned */
    enum ace_objective objective;
};

struct ace_half_life_decision {
    uint64_t half_life_ms;
    enum ace_half_life_reason reason;
};

/* A program with recurring peaks pays for each page that is faulted in again. So its half-life grows, up to
 * ACE_HALF_LIFE_GROWTH times the configured one (a quarter of that for the objective `small`), and shrinks again when the program
 * is quiet. */
#define ACE_HALF_LIFE_GROWTH 64
struct ace_half_life_decision ace_half_life_next(struct ace_half_life_input input);

struct ace_peak_input {
    uint64_t held;         /* pages in use, or free and dirty */
    uint64_t peak;         /* the most that were ever held */
    uint64_t growth;       /* pages that a long block is about to add */
    uint64_t half_life_ms; /* ACE_NEVER: nothing is returned */
    enum ace_objective objective;
};

/* How many free dirty pages to return before the block is taken: a part of what the peak would rise by, if the block is an eighth of
 * what is held or more. So all that is ever returned this way is at most a multiple of what the peak rose by, and a program whose blocks
 * come and go in any length soon has a peak in which they fit without a system call. */
uint64_t ace_decay_before_peak(struct ace_peak_input input);

/* The shortest half-life if the option is not set. BALANCED_MS is its value for the balanced objective. */
uint64_t ace_half_life_ms(uint64_t balanced_ms, enum ace_objective objective);

#endif
