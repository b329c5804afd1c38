/* race.h - whether two threads access the same byte, one of them writing and one of them not atomically, and neither
 * access happens before the other. */
#ifndef EXPLORE_RACE_H
#define EXPLORE_RACE_H

#include "graph.h"

enum access { ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC_READ, ACCESS_ATOMIC_WRITE, ACCESSES };

/* An access by THREAD, which knows BEFORE. */
void race_check(unsigned thread, const struct clock *before, uintptr_t address, size_t bytes, enum access access,
                uintptr_t code);

/* Another execution begins. */
void race_forget(void);

#endif
