/* decay.c - exponential decay in whole numbers: a halving for each full half-life, a straight line
 * between halvings (at most 6 % off the exponential); and the half-life. */
#include "ace/decay.h"

enum {
    RETAKEN_LEAST = 128, /* 8 MiB: less is not worth a change */
    GROW = 4,
    QUIET_HALF_LIVES = 4,
};

uint64_t ace_decay_pages(uint64_t unused, uint64_t elapsed_ms, uint64_t half_life_ms) {
    if (half_life_ms == ACE_NEVER) return 0;
    if (half_life_ms == 0) return unused;
    uint64_t halvings = elapsed_ms / half_life_ms;
    if (halvings >= 20) return unused;
    uint64_t kept = unused >> halvings;
    uint64_t rest_ms = elapsed_ms % half_life_ms;
    /* Rounded down, so that the last page goes too. */
    kept = kept * (2 * half_life_ms - rest_ms) / (2 * half_life_ms);
    return unused - kept;
}

struct ace_half_life_decision ace_half_life_next(struct ace_half_life_input input) {
    struct ace_half_life_decision keep = {input.half_life_ms, ACE_HALF_LIFE_KEEP};
    if (input.configured_ms == 0 || input.configured_ms == ACE_NEVER) return keep;
    uint64_t growth = ace_choose(input.objective, ACE_HALF_LIFE_GROWTH / 4, ACE_HALF_LIFE_GROWTH, ACE_HALF_LIFE_GROWTH);
    uint64_t longest = input.configured_ms * growth;
    /* What was returned long ago says nothing, nor does the rest of a rise. */
    const uint64_t soon = input.returned != 0 ? input.retaken : 0;
    if (soon >= RETAKEN_LEAST && soon * 2 >= input.returned && input.half_life_ms < longest) {
        uint64_t longer = input.half_life_ms * GROW;
        return (struct ace_half_life_decision){longer < longest ? longer : longest, ACE_HALF_LIFE_RETAKEN};
    }
    if (input.half_life_ms > input.configured_ms && input.quiet_ms / QUIET_HALF_LIVES >= input.half_life_ms) {
        uint64_t shorter = input.half_life_ms / GROW;
        return (struct ace_half_life_decision){shorter > input.configured_ms ? shorter : input.configured_ms,
                                               ACE_HALF_LIFE_QUIET};
    }
    return keep;
}

uint64_t ace_decay_before_peak(struct ace_peak_input input) {
    enum { LEAST_SHARE = 8 };
    const uint64_t parts = ace_choose(input.objective, 8, 4, 2); /* all of them but one, rounded down, so that the bound holds */
    const uint64_t then = input.held + input.growth;
    if (input.half_life_ms == ACE_NEVER || then <= input.peak || input.growth < input.held / LEAST_SHARE) return 0;
    const uint64_t rise = then - input.peak, counted = rise < input.growth ? rise : input.growth;
    return counted - (counted + parts - 1) / parts;
}

uint64_t ace_half_life_ms(uint64_t balanced_ms, enum ace_objective objective) {
    return ace_choose(objective, balanced_ms / 4, balanced_ms, balanced_ms * 4);
}
