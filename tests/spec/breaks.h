/* breaks.h - the judge's verdict in the hands of a test: which rule a call breaks. A program includes it once. */
#ifndef HAK_TESTS_BREAKS_H
#define HAK_TESTS_BREAKS_H

#include "../check.h" /* first: it says _GNU_SOURCE */

#include "model.h"

#include <setjmp.h>

static jmp_buf breached;
static enum spec_rule broken;

static void note_breach(enum spec_rule rule) {
    broken = rule;
    longjmp(breached, 1);
}

static void note_breaches(void) { spec_on_breach = note_breach; }

#define CHECK_BREAKS(rule, call)                                                                             \
    do {                                                                                                     \
        broken = SPEC_RULE_COUNT;                                                                            \
        if (setjmp(breached) == 0) call;                                                                     \
        CHECK_EQ(broken, RULE_##rule);                                                                       \
    } while (0)

#endif
