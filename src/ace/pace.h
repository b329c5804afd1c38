/* pace.h - how fast memory is returned to the kernel. Pure functions; any thread. */
#ifndef HAK_ACE_PACE_H
#define HAK_ACE_PACE_H

#include "ace/objective.h"

enum ace_pace { ACE_PACE_WORK, ACE_PACE_ASLEEP };

/* No thread worked for IDLE_MS. If that is long, no peak is expected soon, and all free memory decays. */
enum ace_pace ace_pace(uint64_t idle_ms, enum ace_objective objective);

struct ace_holes_input {
    uint64_t half_life_ms;
    uint64_t visit_ms; /* between two looks at a slab */
    uint64_t most;     /* looks that are counted */
    enum ace_objective objective;
};

/* For how many looks a slab must have stayed unchanged before the free kernel pages in it are returned. */
uint64_t ace_holes_ripe(struct ace_holes_input input);

/* Free dirty pages that decay leaves alone, since returning so few is not worth it. Under memory pressure, and by hak_collect, they
 * are returned as well. */
uint64_t ace_kept_pages(enum ace_objective objective);

#endif
