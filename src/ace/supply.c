/* supply.c - see supply.h. */
#include "ace/supply.h"

enum { DOUBLINGS_MOST = 8 };

/* Whoever takes a block writes to its beginning: so nearly all pages are written if blocks are not longer by more than
 * an eighth. */
static bool is_written(struct ace_supply_input input) { return input.block_bytes - input.block_bytes / 8 <= input.page_bytes; }

struct ace_supply_decision ace_supply(struct ace_supply_input input) {
    const uint64_t dense = ace_choose(input.objective, 6, 3, 1);
    const uint32_t doublings = input.slabs < DOUBLINGS_MOST ? input.slabs : DOUBLINGS_MOST;
    const uint64_t half_pages = (uint64_t)1 << doublings >> 1;
    return (struct ace_supply_decision){
        .populate_pages = (uint32_t)ace_choose(input.objective, half_pages, 2 * half_pages, 4 * half_pages),
        .fill = input.slabs < dense ? ACE_SPARSE : is_written(input) ? ACE_FULL : ACE_DENSE,
    };
}
