/* budget.h - how much the stacks of one thread may be sized for: its share of what those of all threads may hide. Those of
 * a thread that sleeps are emptied, so it has none. Pure functions; any thread. */
#ifndef HAK_ACE_BUDGET_H
#define HAK_ACE_BUDGET_H

#include "ace/objective.h"
#include "base/attributes.h"

#include <stdbool.h>
#include <stddef.h>

struct ace_budget_input {
    uint64_t in_use_bytes; /* by the process */
    uint64_t most_bytes;   /* that one thread may have of small blocks: the option thread_cache */
    uint32_t threads; /* that have a share */
    enum ace_objective objective;
    uint32_t times; /* as much of medium blocks, by ace_medium_times; not 0 where there are several threads */
    bool alone;     /* the process has one thread */
};

enum ace_budget_reason {
    ACE_BUDGET_SHARE, /* of what those of all threads may have */
    ACE_BUDGET_LEAST, /* there are many threads */
    ACE_BUDGET_MOST   /* no thread may have more */
};

struct ace_budget_decision {
    uint64_t bytes;
    enum ace_budget_reason reason;
};

/* Of the small blocks. Inline, both: every fourth slow path asks. */
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

/* Of the medium blocks. They lie between free runs of pages that would merge, so less of them is kept, and at most half of what the small ones
 * may have; nothing is promised. A thread that is alone keeps more: it gives all back before the process grows, if enough of it was touched.
 * So does one of which the program touches little. What is kept counts as in use, so a share of that must stay less than all. */
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

/* Which share of what is kept the program touched, of ACE_TOUCHED_ALL. */
enum { ACE_TOUCHED_ALL = 1024, ACE_TOUCHED_UNKNOWN = 2 * ACE_TOUCHED_ALL };

/* The same after a look by which TOUCHED_BYTES of HELD_BYTES, of which there are some, pass for touched. A look sees two blocks of each size
 * and may err by all of it, so it counts for an eighth, but for the first. */
HAK_INLINE uint32_t ace_medium_touched(uint32_t before, uint64_t held_bytes, uint64_t touched_bytes) {
    const uint32_t seen = touched_bytes < held_bytes ? (uint32_t)(touched_bytes * ACE_TOUCHED_ALL / held_bytes) : ACE_TOUCHED_ALL;
    return before == ACE_TOUCHED_UNKNOWN ? seen : (7 * before + seen + 4) / 8;
}

/* How many times their budget medium blocks may have, of which that share was touched: so that what was touched of all that they may be
 * stays between four fifths of the budget and seven quarters. A power of two, at most one step from BEFORE. The bounds lie apart, so that a step
 * up is not followed by one down. */
HAK_INLINE uint32_t ace_medium_times(uint32_t touched, uint32_t before) {
    enum { MOST = 16 };
    if (before < MOST && touched * before <= ACE_TOUCHED_ALL * 4 / 5) return 2 * before;
    return before > 1 && touched * before > ACE_TOUCHED_ALL * 7 / 4 ? before / 2 : before;
}

/* From so many bytes of them on that the program touched a thread gives all that it keeps back before the process grows: for less it would do
 * so again and again, and what was not touched costs no memory. 0: always, without a look. */
HAK_INLINE uint64_t ace_medium_spared_bytes(enum ace_objective objective) { return ace_choose(objective, 0, HAK_MIB(2), HAK_MIB(4)); }

/* What a look stands for that found RESIDENT_BYTES of HELD_BYTES: growth by so many bytes. Of less than is spared, what was not touched then
 * may be by now. */
HAK_INLINE uint64_t ace_medium_looked_bytes(uint64_t held_bytes, uint64_t resident_bytes, enum ace_objective objective) {
    const uint64_t spared = ace_medium_spared_bytes(objective), untouched = held_bytes - resident_bytes;
    return resident_bytes >= spared || untouched > 4 * spared ? 4 * spared : untouched;
}

/* Whether stacks that are sized for SIZED_BYTES must become shallower. A share follows what is in use, which swings by itself: where it was
 * kept to the byte, so would the depths. That of medium blocks falls by a third where a third thread comes, and comes back
 * when it ends. */
HAK_INLINE bool ace_budget_is_exceeded(struct ace_budget_decision budget, bool medium, uint64_t sized_bytes) {
    const uint64_t more = budget.bytes / (medium ? 2 : 4);
    return sized_bytes > budget.bytes + (budget.reason == ACE_BUDGET_SHARE ? more : 0);
}

/* So often the others asked since a bin missed that is taken for idle; and one of medium blocks, where another wants more: a
 * miss of these moves one block, so they ask by chance, and often. */
enum {
    ACE_BUDGET_IDLE = 16,
    ACE_BUDGET_IDLE_MEDIUM = 128,
    ACE_BUDGET_ASKED_MOST = UINT8_MAX, /* more often is not counted */
};

/* How often the others ask between two misses of a bin, of late: BEFORE, and now ASKED times. The mean over about two, in which a bin that was
 * idle counts as one that was asked so often. */
HAK_INLINE uint32_t ace_budget_asked_usually(uint32_t before, uint32_t asked) { return (before + asked) / 2; }

/* So often they must have asked since a bin missed, where another wants more. Bins in use miss in turns, the more of them the more seldom
 * each: if as many asks as usual were enough, they would take from each other for ever. */
HAK_INLINE uint32_t ace_budget_patience(bool for_medium, uint32_t asked_usually) {
    const uint32_t patience = ACE_BUDGET_IDLE + 8 * asked_usually;
    if (for_medium) return ACE_BUDGET_IDLE_MEDIUM;
    return patience < ACE_BUDGET_ASKED_MOST ? patience : ACE_BUDGET_ASKED_MOST;
}

/* Whether a bin gives depth away. Where more than twice the budget is needed, it has fallen, and every bin gives at once. */
HAK_INLINE bool ace_budget_may_take(uint32_t asked_since_miss, uint32_t patience, uint64_t needed_bytes, uint64_t budget_bytes) {
    return asked_since_miss >= patience || needed_bytes / 2 > budget_bytes;
}

/* The most of one thread where nobody set it: BALANCED_BYTES is what it is for balanced. */
uint64_t ace_thread_cache_bytes(uint64_t balanced_bytes, enum ace_objective objective);

#endif
