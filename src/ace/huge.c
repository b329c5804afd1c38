/* huge.c - see huge.h. */
#include "ace/huge.h"

#include "base/attributes.h"

#include <stddef.h>

uint64_t ace_huge_from_bytes(enum ace_objective objective) {
    return ace_choose(objective, HAK_MIB(64), HAK_MIB(8), HAK_MIB(4));
}

bool ace_huge_collapses(struct ace_collapse_input input) {
    const uint64_t share = ace_choose(input.objective, 256, 8, 4);
    const bool worth_it = input.missing_bytes <= input.bytes / 2;
    const bool little = input.missing_bytes == 0 || input.brought_bytes + input.missing_bytes <= input.used_bytes / share;
    return worth_it && little;
}

uint64_t ace_huge_touched_least(uint64_t used_bytes, enum ace_objective objective) {
    return ace_choose(objective, used_bytes - used_bytes / 4, used_bytes / 4 + used_bytes / 8, used_bytes / 4);
}

uint64_t ace_huge_most(uint64_t used_bytes, uint64_t touched_bytes, enum ace_objective objective) {
    const bool nearly_all = touched_bytes >= used_bytes - used_bytes / 8;
    return objective == ACE_SPEED || nearly_all ? UINT64_MAX : touched_bytes / 4;
}
