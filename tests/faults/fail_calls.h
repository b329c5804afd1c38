/* fail_calls.h - arming fail_calls.c from the test program that it is linked into. */
#ifndef HAK_TESTS_FAIL_CALLS_H
#define HAK_TESTS_FAIL_CALLS_H

#include <stdbool.h>

enum fail_kind {
    FAIL_MMAP,
    FAIL_MUNMAP,
    FAIL_MPROTECT,
    FAIL_MADVISE,
    FAIL_MREMAP,
    FAIL_PTHREAD_CREATE,
    FAIL_MEMBARRIER,
    FAIL_ANY, /* of those before */
    FAIL_OPEN,
    FAIL_READ,
    FAIL_FSTAT,
    FAIL_MINCORE,
    FAIL_FCNTL,
    FAIL_PRCTL,
    FAIL_GETRLIMIT,
    FAIL_GETRUSAGE,
    FAIL_CLOCK_GETTIME,
    FAIL_NANOSLEEP,
    FAIL_FUTEX,
    FAIL_SIGPROCMASK,
    FAIL_KINDS
};

extern const char *const fail_names[FAIL_KINDS];

/* From now on the AT-th call of KIND (1 is the next) fails with ERROR; if EVER, all later ones too.
 * Counting starts anew. ERROR 0: ENOMEM, for pthread_create EAGAIN. */
void fail_arm(enum fail_kind kind, unsigned long at, bool ever, int error);
void fail_disarm(void);

/* In the AT-th call of any kind that this thread makes from now on, before it is made, HANDLER is called once: as a signal
 * handler would be that interrupts it there. AT 0: no more. */
void fail_interrupt(unsigned long at, void (*handler)(void));

/* From now on a hint is passed over where something lies within 2 MiB behind the place, as Linux 6.7 to 6.12 does for lengths of whole
 * huge pages; or not any more. */
void fail_pass_over_hints(bool passed);

/* Calls of KIND counted, and calls that were failed, since the start or the last fail_arm. */
unsigned long fail_counted(enum fail_kind kind);
unsigned long fail_failed(void);

#endif
