/* locks.h - included before every source but lock.c's own test: its locks are the explorer's, which tries every order in
 * which threads can have one and lets nobody spin. That os_lock keeps that promise is what protocols/lock.c explores. */
#ifndef EXPLORE_MODEL_LOCKS_H
#define EXPLORE_MODEL_LOCKS_H

#define os_lock_try os_lock_try_itself
#define os_lock_take os_lock_take_itself
#define os_lock_drop os_lock_drop_itself
#define os_lock_pass os_lock_pass_itself
#include "os/os.h"
#undef os_lock_try
#undef os_lock_take
#undef os_lock_drop
#undef os_lock_pass

void explore_lock_take(_Atomic uint32_t *state);
bool explore_lock_try(_Atomic uint32_t *state);
void explore_lock_drop(_Atomic uint32_t *state);

HAK_INLINE bool os_lock_try(struct os_lock *lock) { return explore_lock_try(&lock->state); }
HAK_INLINE void os_lock_take(struct os_lock *lock) { explore_lock_take(&lock->state); }
HAK_INLINE void os_lock_drop(struct os_lock *lock) { explore_lock_drop(&lock->state); }
HAK_INLINE void os_lock_pass(struct os_lock *lock) {
    explore_lock_drop(&lock->state);
    explore_lock_take(&lock->state);
}

#endif
