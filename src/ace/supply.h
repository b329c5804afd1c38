/* supply.h - how a new slab is supplied with memory. Pure functions; any thread. */
#ifndef HAK_ACE_SUPPLY_H
#define HAK_ACE_SUPPLY_H

#include "ace/objective.h"

struct ace_supply_input {
    uint32_t slabs; /* that the heap has of this class already */
    enum ace_objective objective;
};

enum ace_supply_reason {
    ACE_SUPPLY_FIRST, /* one of the first few slabs of its class, which may stay nearly empty */
    ACE_SUPPLY_DENSE  /* a class with this many slabs soon fills the next one, too */
};

/* POPULATE_PAGES: kernel pages to prefault, where that is wanted. The more slabs there are, the more pages. */
struct ace_supply_decision {
    uint32_t populate_pages;
    enum ace_supply_reason reason;
};

struct ace_supply_decision ace_supply(struct ace_supply_input input);

#endif
