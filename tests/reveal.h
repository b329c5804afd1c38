/* reveal.h - makes visible all that threads hide, as before an allocation fails, whatever was found in vain lately. */
#ifndef HAK_TESTS_REVEAL_H
#define HAK_TESTS_REVEAL_H

#include "heap/heap.h"

static inline void reveal_all(void) {
    reveal_own();
    reveal_helped();
    reveal_others(0);
}

#endif
