/* decisions.h - the last decisions of the adaptive cache engine (ACE), and how many there were. Any thread, signal handlers too, with
 * any locks held; takes no locks itself. The memory is untouched until the first decision. */
#ifndef HAK_WATCH_DECISIONS_H
#define HAK_WATCH_DECISIONS_H

#include "ace/decision.h"
#include "watch/ring.h"

/* What is known of a decision. X(NAME, TEXT) */
#define DECISION_FIELDS(X)                                                                                    \
    X(number, "from 1, in the order in which they were made")                                                 \
    X(time_ms, "milliseconds since the start")                                                                \
    X(thread_id, "the kernel's number of the thread that it is about; 0: the process")                        \
    X(reason, "an enum ace_reason, which says what it is about, too")                                         \
    X(class, "of a depth: the size class")                                                                    \
    X(from, "before")                                                                                         \
    X(to, "after")                                                                                            \
    X(input0, "what it went by: the reason names it")                                                         \
    X(input1, "the same")                                                                                     \
    X(input2, "the same")

#define DECISION_FIELD(name, ...) uint64_t name;
struct decision {
    DECISION_FIELDS(DECISION_FIELD)
};
#undef DECISION_FIELD

enum { DECISIONS_KEPT = 512 };
extern HAK_HIDDEN struct ring_slot decision_slots[DECISIONS_KEPT];

/* An ace_keeper. */
void decision_note(const struct ace_decision *decision);

/* How many were made, which is the number of the last. */
uint64_t decisions_made(void);

/* Copies decision NUMBER, from 1 on; false when it is not kept any more, or is just being written. */
bool decision_read(uint64_t number, struct decision *decision);

/* How many there were, by reason. */
extern HAK_HIDDEN counter decision_counts[ACE_REASON_COUNT];

struct decision_kind {
    const char *name, *unit;
};
extern HAK_HIDDEN const struct decision_kind decision_kinds[ACE_KIND_COUNT];

struct decision_reason {
    const char *name;
    uint64_t kind;                  /* an enum ace_kind */
    const char *inputs[ACE_INPUTS]; /* "" if unused */
};
extern HAK_HIDDEN const struct decision_reason decision_reasons[ACE_REASON_COUNT];

#endif
