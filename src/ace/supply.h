/* supply.h - how a new slab is supplied with memory. Pure functions; any thread. */
#ifndef HAK_ACE_SUPPLY_H
#define HAK_ACE_SUPPLY_H

#include "ace/huge.h"
#include "ace/objective.h"

struct ace_supply_input {
    uint32_t slabs; /* that the heap has of this class already */
    uint32_t block_bytes, page_bytes; /* of the class; of a kernel page */
    enum ace_objective objective;
};

/* POPULATE_PAGES: kernel pages to prefault, where that is wanted. The more slabs there are, the more pages. FILL: one of the first few
 * slabs of a class may stay nearly empty; with some more, the class soon fills the next one, too. */
struct ace_supply_decision {
    uint32_t populate_pages;
    enum ace_fill fill;
};

struct ace_supply_decision ace_supply(struct ace_supply_input input);

#endif
