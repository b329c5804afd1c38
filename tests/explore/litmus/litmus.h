/* litmus.h - words for litmus tests. Each variable begins as 0. */
#ifndef EXPLORE_LITMUS_H
#define EXPLORE_LITMUS_H

#include "../explore.h"

#define RLX memory_order_relaxed
#define ACQ memory_order_acquire
#define REL memory_order_release
#define AR memory_order_acq_rel
#define SC memory_order_seq_cst

__attribute__((unused)) static _Atomic int x, y, z;
static int r[8]; /* what was read: each by one thread, and by the check */

#define R(place, variable, order) (r[place] = atomic_load_explicit(&(variable), order))
#define W(variable, value, order) atomic_store_explicit(&(variable), value, order)
#define F(order) atomic_thread_fence(order)
#define DO(name, ...)                                                                                                  \
    __attribute__((unused)) static void name(void) { __VA_ARGS__; }

__attribute__((unused)) static int last(_Atomic int *variable) { return atomic_load_explicit(variable, RLX); }

/* Outcomes, as text. */
DO(say_1, explore_outcome("%d", r[0]))
DO(say_2, explore_outcome("%d%d", r[0], r[1]))
DO(say_4, explore_outcome("%d%d%d%d", r[0], r[1], r[2], r[3]))
DO(say_x, explore_outcome("%d", last(&x)))
DO(say_xy, explore_outcome("%d%d", last(&x), last(&y)))

#endif
