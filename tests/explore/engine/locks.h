/* locks.h - locks, which are steps only where it matters.
 *
 * A lock is left out at first: nobody waits for it, and it orders nothing. So more can happen than with it. Where nothing
 * goes wrong even so it need not be explored who has it first. When two threads race, the locks that both held become
 * steps, or those that one of them held; when anything else goes wrong, all do that two threads took. Then the search begins anew. A deadlock needs
 * locks that are taken in two orders: these become steps as soon as they are. */
#ifndef EXPLORE_LOCKS_H
#define EXPLORE_LOCKS_H

#include "../explore.h"

/* The locks that the running thread holds and that are not steps. */
uint64_t locks_held(void);

/* Two threads race, of which the other held HELD. Does not return if locks explain it. */
void locks_blame(uint64_t held);

/* Makes all locks steps that several threads took; true if that is new. */
bool locks_keep_all(void);

/* The running thread lets others run: what it holds must keep them out, so these locks become steps. */
void locks_keep_held(void);

/* Another execution begins. */
void locks_forget(void);

#endif
