/* pressure.c - see pressure.h. */
#include "ace/pressure.h"

/* Less than a sixteenth left is little; a tenth of the time spent waiting is much. */
enum { LITTLE_SHARE = 16, STALLED_MUCH = 1000 };

static int is_near(uint64_t used_bytes, uint64_t limit_bytes, enum ace_objective objective) {
    const uint64_t share = ace_choose(objective, LITTLE_SHARE / 2, LITTLE_SHARE, LITTLE_SHARE * 2);
    return limit_bytes != UINT64_MAX && used_bytes != UINT64_MAX && used_bytes >= limit_bytes - limit_bytes / share;
}

enum ace_pressure_reason ace_pressure(struct ace_pressure_input input) {
    if (is_near(input.used_bytes, input.limit_bytes, input.objective)) return ACE_PRESSURE_LIMIT;
    if (is_near(input.used_bytes, input.high_bytes, input.objective)) return ACE_PRESSURE_HIGH;
    const uint64_t much = ace_choose(input.objective, STALLED_MUCH / 2, STALLED_MUCH, STALLED_MUCH * 2);
    return input.stalled != UINT64_MAX && input.stalled >= much ? ACE_PRESSURE_STALLS : ACE_PRESSURE_NONE;
}
