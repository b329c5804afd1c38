/* decision.h - the record of a decision, as it is passed to its keeper (watch/decisions.c). Data only; any thread.
 *
 * Only changes of a setting are recorded, by the slow path that makes them. What is decided anew for each batch or slab leaves no
 * setting behind, and is not recorded. */
#ifndef HAK_ACE_DECISION_H
#define HAK_ACE_DECISION_H

#include <stdint.h>

/* What a decision is about. X(ID, NAME, UNIT): UNIT of the values before and after; "" if they are states: 0 for no, 1 or more
 * for yes. */
#define ACE_KINDS(X)                                                                                          \
    X(ACE_KIND_DEPTH, "depth", "blocks")         /* the most that a thread keeps of one size */               \
    X(ACE_KIND_HALF_LIFE, "half_life", "ms")     /* of free memory */                                         \
    X(ACE_KIND_PACE, "pace", "")                 /* 1: the program sleeps, and all that is free decays */     \
    X(ACE_KIND_PRESSURE, "pressure", "")         /* an enum ace_pressure_reason */                            \
    X(ACE_KIND_SOFT_LIMIT, "soft_limit", "")     /* 1: more than the limit is in use */                       \
    X(ACE_KIND_PURGE_THREAD, "purge_thread", "") /* 1: one runs */                                            \
    X(ACE_KIND_HUGE_PAGES, "huge_pages", "pages") /* of 64 KiB, for which huge pages were requested */        \
    X(ACE_KIND_KEPT, "kept", "times")            /* the factor for the budget of medium blocks */

/* Why. X(ID, KIND, NAME, INPUT, INPUT, INPUT): the names of the inputs; "" for those that are unused. */
#define ACE_REASONS(X)                                                                                        \
    X(ACE_REASON_BATCH, DEPTH, "batch", "refills", "spills", "")                                              \
    X(ACE_REASON_SWING, DEPTH, "swing", "refilled_blocks", "spilled_blocks", "")                              \
    X(ACE_REASON_MADE_ROOM, DEPTH, "made_room", "sized_bytes", "budget_bytes", "wanted_bytes")                \
    X(ACE_REASON_OVER_BUDGET, DEPTH, "over_budget", "sized_bytes", "budget_bytes", "")                        \
    X(ACE_REASON_NO_BUDGET, DEPTH, "no_budget", "sized_bytes", "budget_bytes", "wanted_bytes")                \
    X(ACE_REASON_NO_MEMORY, DEPTH, "no_memory", "wanted_bytes", "", "")                                       \
    X(ACE_REASON_RETAKEN, HALF_LIFE, "retaken", "returned_pages", "retaken_pages", "")                        \
    X(ACE_REASON_QUIET, HALF_LIFE, "quiet", "quiet_ms", "", "")                                               \
    X(ACE_REASON_FORGOTTEN, HALF_LIFE, "forgotten", "", "", "")                                               \
    X(ACE_REASON_SLEEPS, PACE, "sleeps", "idle_ms", "", "")                                                   \
    X(ACE_REASON_WORKS, PACE, "works", "", "", "")                                                            \
    X(ACE_REASON_NEAR_LIMIT, PRESSURE, "limit", "used_bytes", "limit_bytes", "")                              \
    X(ACE_REASON_NEAR_HIGH, PRESSURE, "high", "used_bytes", "limit_bytes", "")                                \
    X(ACE_REASON_STALLS, PRESSURE, "stalls", "stalled", "", "")                                               \
    X(ACE_REASON_RELIEVED, PRESSURE, "relieved", "", "", "")                                                  \
    X(ACE_REASON_ABOVE, SOFT_LIMIT, "above", "used_bytes", "limit_bytes", "")                                 \
    X(ACE_REASON_BELOW, SOFT_LIMIT, "below", "", "", "")                                                      \
    X(ACE_REASON_WORTH_IT, PURGE_THREAD, "worth_it", "returnable_bytes", "mark_bytes", "")                    \
    X(ACE_REASON_NOTHING_LEFT, PURGE_THREAD, "nothing_left", "returnable_bytes", "mark_bytes", "")            \
    X(ACE_REASON_IN_USE, HUGE_PAGES, "in_use", "used_pages", "from_pages", "")                               \
    X(ACE_REASON_UNTOUCHED, HUGE_PAGES, "untouched", "used_bytes", "touched_bytes", "")                     \
    X(ACE_REASON_RESIDENT, HUGE_PAGES, "resident", "missing_bytes", "brought_bytes", "")                     \
    X(ACE_REASON_TOUCHED, KEPT, "touched", "held_bytes", "touched_bytes", "")                                 \
    X(ACE_REASON_HARDLY_TOUCHED, KEPT, "hardly_touched", "held_bytes", "touched_bytes", "")

#define ACE_ID(id, ...) id,
enum ace_kind { ACE_KINDS(ACE_ID) ACE_KIND_COUNT };
enum ace_reason { ACE_REASONS(ACE_ID) ACE_REASON_COUNT };
#undef ACE_ID

enum { ACE_INPUTS = 3 };

struct ace_decision {
    enum ace_reason reason;
    uint32_t class;     /* of a depth: the size class */
    uint64_t thread_id; /* the kernel's number of the thread that it is about; 0: it is about the process */
    uint64_t from, to;  /* equal if the change was refused */
    uint64_t inputs[ACE_INPUTS];
};

/* Records a decision. Any thread, with any locks held. */
typedef void ace_keeper(const struct ace_decision *decision);

#endif
