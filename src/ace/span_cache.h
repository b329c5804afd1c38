/* span_cache.h - how many freed large blocks of one size a thread keeps. Pure functions; any thread. */
#ifndef HAK_ACE_SPAN_CACHE_H
#define HAK_ACE_SPAN_CACHE_H

#include "ace/budget.h"

#include <stdint.h>

struct ace_span_cache_input {
    uint32_t limit;  /* blocks of the size that may be kept now; 0 at first */
    uint32_t missed; /* times that none was kept, since the limit last changed */
    uint32_t given;  /* blocks that were given back since, as one too many */
};

enum ace_span_cache_reason {
    ACE_SPAN_CACHE_KEEP, /* it was only taken, or only given back, or too little is known */
    ACE_SPAN_CACHE_TURNS /* both, in turn: what was given back was wanted again */
};

struct ace_span_cache_decision {
    uint32_t limit;
    enum ace_span_cache_reason reason;
};

struct ace_span_cache_decision ace_span_cache_next(struct ace_span_cache_input input);

/* What one thread may keep of all sizes: its share of a part of what is in use, and at most half of what its stacks may have. */
uint64_t ace_span_cache_budget(struct ace_budget_input input);

#endif
