/* lock.c - the waiting side of os_lock. The uncontended side is inline in os.h.
 *
 * States: 0 free, 1 held, 2 held and a waiter may sleep. A waiter always leaves state 2 behind when it
 * gets the lock, so a wake-up is never lost; at worst one is superfluous. */
#include "os/os.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From the kernel's futex.h, which musl's headers lack. */
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };

/* Holders keep a lock for well under a microsecond: a few reads are worth more than a sleep. */
enum { SPINS = 64 };

/* Some tens of cycles. On ARM by isb, which empties the pipeline: most cores spend one cycle on yield, and all SPINS would be over
 * before any holder is done. */
static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}

HAK_COLD void os_lock_wait(struct os_lock *lock) {
    int saved = errno;
    for (int i = 0; i < SPINS; i++) {
        /* relaxed: only a hint whether trying is worth it. */
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 && os_lock_try(lock)) return;
        pause_briefly();
    }
    /* acquire: as in os_lock_try. */
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0) {
        long result = syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
        if (result != 0 && errno != EAGAIN && errno != EINTR) sched_yield(); /* futex refused: keep trying */
    }
    errno = saved;
}

HAK_COLD void os_lock_wake(struct os_lock *lock) {
    int saved = errno;
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}

HAK_COLD void os_lock_pass(struct os_lock *lock) {
    enum { LOOKS = 1000 }; /* some hundred microseconds; where other threads want this processor, until the clock moves on */
    /* relaxed, both: hints. Of one who has just come and does not sleep yet the next call learns. */
    if (atomic_load_explicit(&lock->state, memory_order_relaxed) != 2) return;
    int saved = errno;
    const uint64_t begun_ms = os_clock_ms();
    os_lock_drop(lock);
    for (int i = 0; i < LOOKS && os_clock_ms() == begun_ms && atomic_load_explicit(&lock->state, memory_order_relaxed) == 0; i++)
        sched_yield();
    os_lock_take(lock);
    errno = saved;
}
