/* counter.h - numbers for statistics. The functions here that change one are for one thread at a time, as under a lock; any thread
 * may read at any time. Each number is whole; two of them need not be of the same moment. */
#ifndef HAK_BASE_COUNTER_H
#define HAK_BASE_COUNTER_H

#include "base/attributes.h"

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t counter;

/* relaxed, all: nothing else is inferred from them. */
HAK_INLINE uint64_t counter_read(const counter *number) { return atomic_load_explicit(number, memory_order_relaxed); }

HAK_INLINE void counter_set(counter *number, uint64_t value) {
    atomic_store_explicit(number, value, memory_order_relaxed);
}

HAK_INLINE void counter_add(counter *number, uint64_t more) { counter_set(number, counter_read(number) + more); }

HAK_INLINE void counter_sub(counter *number, uint64_t less) { counter_set(number, counter_read(number) - less); }

/* Keeps the greatest value that there ever was. */
HAK_INLINE void counter_raise(counter *most, uint64_t value) {
    if (value > counter_read(most)) counter_set(most, value);
}

#endif
