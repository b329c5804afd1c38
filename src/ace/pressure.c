/* pressure.c - see pressure.h. */
#include "ace/pressure.h"

#include "base/bits.h"

/* Less than a sixteenth left is little; a tenth of the time spent waiting is much. */
enum { LITTLE_SHARE = 16, STALLED_MUCH = 1000, UNASKED_SHARE = 64 };

/* Of LIMIT_BYTES, all but one of SHARES parts. */
static uint64_t all_but(uint64_t limit_bytes, uint64_t shares, enum ace_objective objective) {
    return limit_bytes - limit_bytes / ace_choose(objective, shares / 2, shares, shares * 2);
}

static int is_near(uint64_t used_bytes, uint64_t limit_bytes, enum ace_objective objective) {
    return limit_bytes != UINT64_MAX && used_bytes != UINT64_MAX && used_bytes >= all_but(limit_bytes, LITTLE_SHARE, objective);
}

enum ace_pressure_reason ace_pressure(struct ace_pressure_input input) {
    if (is_near(input.used_bytes, input.limit_bytes, input.objective)) return ACE_PRESSURE_LIMIT;
    if (is_near(input.used_bytes, input.high_bytes, input.objective)) return ACE_PRESSURE_HIGH;
    const uint64_t much = ace_choose(input.objective, STALLED_MUCH / 2, STALLED_MUCH, STALLED_MUCH * 2);
    return input.stalled != UINT64_MAX && input.stalled >= much ? ACE_PRESSURE_STALLS : ACE_PRESSURE_NONE;
}

/* Twice as much is left as where what is used is measured: what else is charged to the group, such as page tables, is not foreseen. */
uint64_t ace_pressure_mark_bytes(struct ace_pressure_input input) {
    const uint64_t limit = min_size(input.limit_bytes, input.high_bytes);
    return limit == UINT64_MAX ? limit : all_but(limit, LITTLE_SHARE / 2, input.objective);
}

/* Half of what is left: others in the group grow, too. */
uint64_t ace_pressure_unasked_bytes(struct ace_pressure_input input) {
    const uint64_t limit = min_size(input.limit_bytes, input.high_bytes), mark = ace_pressure_mark_bytes(input);
    return limit == UINT64_MAX ? limit : max_size((mark - min_size(mark, input.used_bytes)) / 2, limit / UNASKED_SHARE);
}
