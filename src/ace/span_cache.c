/* span_cache.c - see span_cache.h. */
#include "ace/span_cache.h"

enum { TURNS = 2, MOST = 1024 };

struct ace_span_cache_decision ace_span_cache_next(struct ace_span_cache_input input) {
    if (input.missed < TURNS || input.given < TURNS || input.limit >= MOST)
        return (struct ace_span_cache_decision){input.limit, ACE_SPAN_CACHE_KEEP};
    return (struct ace_span_cache_decision){input.limit == 0 ? 1 : input.limit * 2, ACE_SPAN_CACHE_TURNS};
}

uint64_t ace_span_cache_budget(struct ace_budget_input input) {
    const uint64_t least_of_all = ace_choose(input.objective, HAK_KIB(256), HAK_MIB(1), HAK_MIB(4));
    const uint64_t in_use_share = input.in_use_bytes / ace_choose(input.objective, 32, 16, 8);
    const uint64_t all = in_use_share > least_of_all ? in_use_share : least_of_all;
    const uint64_t share = all / (input.threads > 1 ? input.threads : 1), most = input.most_bytes / 2;
    return share < most ? share : most;
}
