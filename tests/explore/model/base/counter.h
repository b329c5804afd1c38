/* counter.h - in place of src/base/counter.h: nothing is ordered by these numbers, so that to read or write one is no step of
 * an execution. They are functions of books.c, which is compiled without steps. */
#ifndef HAK_BASE_COUNTER_H
#define HAK_BASE_COUNTER_H

#include <stdint.h>

typedef uint64_t counter;

uint64_t counter_read(const counter *number);
void counter_set(counter *number, uint64_t value);
void counter_add(counter *number, uint64_t more);
void counter_sub(counter *number, uint64_t less);
void counter_raise(counter *most, uint64_t value);

#endif
