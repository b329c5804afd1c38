/* huge.h - when huge pages are asked for: they bring in up to 2 MiB for any byte, which is a small share only once much is in
 * use. Pure functions; any thread. */
#ifndef HAK_ACE_HUGE_H
#define HAK_ACE_HUGE_H

#include "ace/objective.h"

#include <stdbool.h>

struct ace_huge_input {
    uint64_t used_pages; /* in use */
    uint64_t pages;      /* more are asked for */
    uint64_t from_pages; /* in use, from which on huge pages are asked for: ace_huge_from_bytes, or an option */
    bool dense;          /* they will be filled */
};

static inline bool ace_huge_admits(struct ace_huge_input input) {
    return input.dense && input.used_pages + input.pages >= input.from_pages;
}

uint64_t ace_huge_from_bytes(enum ace_objective objective);

/* Of what is in use so much must have been touched: else huge pages would bring in what nobody uses. */
uint64_t ace_huge_touched_least(uint64_t used_bytes, enum ace_objective objective);

#endif
