/* pressure.c - see pressure.h. */
#include "ace/pressure.h"

/* Less than a sixteenth left is little; a tenth of the time spent waiting is much. */
enum { LITTLE_SHARE = 16, STALLED_MUCH = 1000 };

static int is_near(uint64_t used_bytes, uint64_t limit_bytes) {
    return limit_bytes != UINT64_MAX && used_bytes != UINT64_MAX &&
           used_bytes >= limit_bytes - limit_bytes / LITTLE_SHARE;
}

enum ace_pressure_reason ace_pressure(struct ace_pressure_input input) {
    if (is_near(input.used_bytes, input.limit_bytes)) return ACE_PRESSURE_LIMIT;
    if (is_near(input.used_bytes, input.high_bytes)) return ACE_PRESSURE_HIGH;
    return input.stalled != UINT64_MAX && input.stalled >= STALLED_MUCH ? ACE_PRESSURE_STALLS : ACE_PRESSURE_NONE;
}
