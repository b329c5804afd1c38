/* fail_counts.h - which call fails: the counts, what the test or the environment armed, and whether a call comes from hakmem. */
#ifndef HAK_TESTS_FAIL_COUNTS_H
#define HAK_TESTS_FAIL_COUNTS_H

#include "fail_calls.h"

/* Counts a call of KIND made from CALLER and says whether it must fail: the error number, or 0. Keeps errno. */
int fail_count(enum fail_kind kind, const void *caller);

#endif
