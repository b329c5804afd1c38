/* supply.h - what comes with a new slab. Pure functions; any thread. */
#ifndef HAK_ACE_SUPPLY_H
#define HAK_ACE_SUPPLY_H

#include "ace/objective.h"

struct ace_supply_input {
    uint32_t slabs; /* that the heap's class has already */
    enum ace_objective objective;
};

enum ace_supply_reason {
    ACE_SUPPLY_FIRST, /* of its first few: perhaps it stays nearly empty */
    ACE_SUPPLY_DENSE  /* a class with so many slabs fills the next one, too, soon */
};

/* POPULATE_PAGES: pages of the kernel's that are brought in at once, where that is wanted: the more, the more slabs
 * there are. */
struct ace_supply_decision {
    uint32_t populate_pages;
    enum ace_supply_reason reason;
};

struct ace_supply_decision ace_supply(struct ace_supply_input input);

#endif
