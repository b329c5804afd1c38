/* interrupted.h - what a test does while a signal interrupts it again and again, wherever it is: what two threads would meet in
 * by chance, on one processor and for certain. */
#ifndef HAK_TESTS_INTERRUPTED_H
#define HAK_TESTS_INTERRUPTED_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <signal.h>
#include <sys/time.h>
#include <time.h>

enum { INTERRUPTED_TIMES = CHECK_SHADOWED ? 50 : 500, INTERRUPTED_SECONDS = 10, INTERRUPTED_EVERY_US = 30 };

static void (*interrupted_by)(void);
static volatile sig_atomic_t interrupted_times;

static void interrupted_soon(void) {
    setitimer(ITIMER_REAL, &(struct itimerval){.it_value.tv_usec = INTERRUPTED_EVERY_US}, NULL);
}

static void interrupted_now(int number) {
    (void)number;
    interrupted_by();
    interrupted_times = interrupted_times + 1;
    interrupted_soon();
}

/* Does BODY until HANDLER interrupted it often enough, or for so long; for a child, whose SIGALRM it takes. */
static void interrupted(void (*body)(void), void (*handler)(void)) {
    const time_t end = time(NULL) + INTERRUPTED_SECONDS;
    interrupted_by = handler;
    CHECK(signal(SIGALRM, interrupted_now) != SIG_ERR);
    interrupted_soon();
    while (interrupted_times < INTERRUPTED_TIMES && time(NULL) < end)
        for (int i = 0; i < 1000; i++) body();
    signal(SIGALRM, SIG_IGN);
    CHECK(interrupted_times > 0);
}

#endif
