/* pace.h - how fast memory goes back. Pure functions; any thread. */
#ifndef HAK_ACE_PACE_H
#define HAK_ACE_PACE_H

#include "ace/objective.h"

enum ace_pace { ACE_PACE_WORK, ACE_PACE_ASLEEP };

/* Nobody worked for IDLE_MS: then no peak is to come back soon, and all that is free decays. */
enum ace_pace ace_pace(uint64_t idle_ms, enum ace_objective objective);

struct ace_holes_input {
    uint64_t half_life_ms;
    uint64_t visit_ms; /* between two looks at a slab */
    uint64_t most;     /* looks that are counted */
    enum ace_objective objective;
};

/* For how many looks a slab must have stayed unchanged before the free kernel pages in it are given back. */
uint64_t ace_holes_ripe(struct ace_holes_input input);

/* Free dirty pages that are not worth giving back by decay. Under pressure, and when all is asked back, none are kept. */
uint64_t ace_kept_pages(enum ace_objective objective);

#endif
