/* budget.c - see budget.h. */
#include "ace/budget.h"

uint64_t ace_thread_cache_bytes(uint64_t balanced_bytes, enum ace_objective objective) {
    return ace_choose(objective, balanced_bytes / 8, balanced_bytes, balanced_bytes * 2);
}
