/* budget.h - how many bytes the stacks of one thread may be sized for: its share of what the stacks of all threads may hold. The
 * stacks of a sleeping thread are emptied, so it has no share. Pure functions; any thread. */
#ifndef HAK_ACE_BUDGET_H
#define HAK_ACE_BUDGET_H

#include "ace/objective.h"
#include "base/attributes.h"

#include <stdbool.h>
#include <stddef.h>

struct ace_budget_input {
    uint64_t in_use_bytes; /* by the process */
    uint64_t most_bytes;   /* limit of one thread for small blocks: the option thread_cache */
    uint32_t threads; /* that have a share */
    enum ace_objective objective;
    uint32_t times; /* factor for medium blocks, by ace_medium_times; not 0 when there are several threads */
    bool alone;     /* the process has one thread */
};

enum ace_budget_reason {
    ACE_BUDGET_SHARE, /* the thread's share of the total */
    ACE_BUDGET_LEAST, /* the minimum: there are many threads */
    ACE_BUDGET_MOST   /* the limit of one thread */
};

struct ace_budget_decision {
    uint64_t bytes;
    enum ace_budget_reason reason;
};

/* The budget of small blocks. This function and the next are inline, since every fourth slow path calls them. */
HAK_INLINE struct ace_budget_decision ace_budget(struct ace_budget_input input) {
    const enum ace_objective objective = input.objective;
    const uint64_t least_of_all = ace_choose(objective, HAK_MIB(4), HAK_MIB(32), HAK_MIB(64));
    const uint64_t least = ace_choose(objective, HAK_KIB(32), HAK_KIB(64), HAK_KIB(128));
    const uint64_t in_use_share = input.in_use_bytes / ace_choose(objective, 32, 16, 8);
    const uint64_t all = in_use_share > least_of_all ? in_use_share : least_of_all;
    const uint64_t share = all / (input.threads > 1 ? input.threads : 1);
    struct ace_budget_decision budget = {share, ACE_BUDGET_SHARE};
    if (budget.bytes < least) budget = (struct ace_budget_decision){least, ACE_BUDGET_LEAST};
    if (budget.bytes > input.most_bytes) budget = (struct ace_budget_decision){input.most_bytes, ACE_BUDGET_MOST};
    return budget;
}

/* The budget of medium blocks. Kept blocks lie between free runs of pages that would otherwise merge, so fewer of them are kept: at
 * most half the limit for small blocks, and no thread is promised a minimum. A thread may keep more, up to twice that limit, if it is
 * the only one, since it frees all of them before the process grows if enough of them was touched; or if the program touches little of
 * what it keeps. Kept blocks count as in use, so the share of the bytes in use must stay below the whole. */
HAK_INLINE struct ace_budget_decision ace_medium_budget(struct ace_budget_input input) {
    const bool alone = input.alone;
    const uint64_t in_use_share = input.in_use_bytes / ace_choose(input.objective, 16, 8, 4);
    const uint64_t least_of_one = ace_choose(input.objective, HAK_KIB(256), HAK_MIB(32), HAK_MIB(64));
    const uint64_t least_of_all = ace_choose(input.objective, HAK_KIB(256), HAK_MIB(4), HAK_MIB(8)) * (alone ? 1 : input.times);
    const uint64_t most_of_all = in_use_share * (input.times > 1 ? 2 : 1);
    const uint64_t one = in_use_share > least_of_one ? in_use_share : least_of_one;
    const uint64_t all = most_of_all > least_of_all ? most_of_all : least_of_all, each = all / (input.threads > 1 ? input.threads : 1);
    const uint64_t share = alone || each > one ? one : each;
    const uint64_t most = alone || input.times > 4 ? 2 * input.most_bytes : input.most_bytes / 2 * input.times;
    return share <= most ? (struct ace_budget_decision){share, ACE_BUDGET_SHARE} : (struct ace_budget_decision){most, ACE_BUDGET_MOST};
}

/* The part of the kept blocks that the program touched, in units of 1 / ACE_TOUCHED_ALL. */
enum { ACE_TOUCHED_ALL = 1024, ACE_TOUCHED_UNKNOWN = 2 * ACE_TOUCHED_ALL };

/* That part after a look that found TOUCHED_BYTES of HELD_BYTES (not 0) touched. A look samples two blocks of each size and may be
 * entirely wrong, so it has a weight of one eighth; the first look counts in full. */
HAK_INLINE uint32_t ace_medium_touched(uint32_t before, uint64_t held_bytes, uint64_t touched_bytes) {
    const uint32_t seen = touched_bytes < held_bytes ? (uint32_t)(touched_bytes * ACE_TOUCHED_ALL / held_bytes) : ACE_TOUCHED_ALL;
    return before == ACE_TOUCHED_UNKNOWN ? seen : (7 * before + seen + 4) / 8;
}

/* The factor for the budget of medium blocks when TOUCHED of them was touched. It keeps the touched bytes of a full budget between four
 * fifths and seven quarters of the budget without the factor. A power of two, at most one step from BEFORE. The bounds are more than
 * one step apart, so that a step up is not followed by a step down. */
HAK_INLINE uint32_t ace_medium_times(uint32_t touched, uint32_t before) {
    enum { MOST = 16 };
    if (before < MOST && touched * before <= ACE_TOUCHED_ALL * 4 / 5) return 2 * before;
    return before > 1 && touched * before > ACE_TOUCHED_ALL * 7 / 4 ? before / 2 : before;
}

/* A thread frees all medium blocks that it keeps before the process grows if at least this many bytes of them were touched. For less
 * it would do so again and again, and untouched pages cost no memory. 0: always, without a look. */
HAK_INLINE uint64_t ace_medium_spared_bytes(enum ace_objective objective) { return ace_choose(objective, 0, HAK_MIB(2), HAK_MIB(4)); }

/* By how many bytes the process may grow before the next look, after one that found RESIDENT_BYTES of HELD_BYTES resident. Below the
 * threshold of ace_medium_spared_bytes it is at most what was untouched then, since that may be touched by now. */
HAK_INLINE uint64_t ace_medium_looked_bytes(uint64_t held_bytes, uint64_t resident_bytes, enum ace_objective objective) {
    const uint64_t spared = ace_medium_spared_bytes(objective), untouched = held_bytes - resident_bytes;
    return resident_bytes >= spared || untouched > 4 * spared ? 4 * spared : untouched;
}

/* Whether stacks sized for SIZED_BYTES must become shallower. A share follows the bytes in use, which fluctuate: if it were enforced to
 * the byte, the depths would fluctuate, too. The share of medium blocks falls by a third when a third thread starts, and rises again
 * when that thread ends. */
HAK_INLINE bool ace_budget_is_exceeded(struct ace_budget_decision budget, bool medium, uint64_t sized_bytes) {
    const uint64_t more = budget.bytes / (medium ? 2 : 4);
    return sized_bytes > budget.bytes + (budget.reason == ACE_BUDGET_SHARE ? more : 0);
}

/* How often other bins must have asked for depth since a bin's last miss for that bin to count as idle. The second is for medium
 * blocks, when another bin wants more: a miss of theirs moves one block, so they ask often, and by chance. */
enum {
    ACE_BUDGET_IDLE = 16,
    ACE_BUDGET_IDLE_MEDIUM = 128,
    ACE_BUDGET_ASKED_MOST = UINT8_MAX, /* more often is not counted */
};

/* How often other bins ask between two misses of a bin: the mean was BEFORE, and now they asked ASKED times. A mean over about two
 * intervals. An idle bin gives depth instead of counting on, so it counts as one that was asked as often as its patience. */
HAK_INLINE uint32_t ace_budget_asked_usually(uint32_t before, uint32_t asked) { return (before + asked) / 2; }

/* How often other bins must have asked since a bin's last miss before it gives depth to one that wants more. Bins in use miss in turn,
 * and the more of them there are, the less often each misses: if the usual number of requests were enough, they would take depth
 * from each other forever. */
HAK_INLINE uint32_t ace_budget_patience(bool for_medium, uint32_t asked_usually) {
    const uint32_t patience = ACE_BUDGET_IDLE + 8 * asked_usually;
    if (for_medium) return ACE_BUDGET_IDLE_MEDIUM;
    return patience < ACE_BUDGET_ASKED_MOST ? patience : ACE_BUDGET_ASKED_MOST;
}

/* Whether a bin gives depth away. If more than twice the budget is needed, the budget has fallen, and every bin gives immediately. */
HAK_INLINE bool ace_budget_may_take(uint32_t asked_since_miss, uint32_t patience, uint64_t needed_bytes, uint64_t budget_bytes) {
    return asked_since_miss >= patience || needed_bytes / 2 > budget_bytes;
}

/* The limit of one thread if the option is not set. BALANCED_BYTES is its value for the balanced objective. */
uint64_t ace_thread_cache_bytes(uint64_t balanced_bytes, enum ace_objective objective);

#endif
