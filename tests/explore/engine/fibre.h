/* fibre.h - the threads of a test, each a fibre, and the execution that they are in. Shared by run.c, which lets them run, and by
 * what they call: words.c, steps.c, waiting.c. */
#ifndef EXPLORE_FIBRE_H
#define EXPLORE_FIBRE_H

#include "run.h"

#include <setjmp.h>
#include <ucontext.h>

enum { STACK_BYTES = 256 * 1024, MESSAGE_BYTES = 1000, PLAIN_WRITES = 256 };

enum state { READY, NEEDS_WRITE, AT_THE_END_OF_GRAPH, WAITS, ENDED };

extern struct fibre {
    ucontext_t context;
    char *stack;
    enum state state;
    unsigned acknowledged; /* barriers of others that it passed */
    bool in_barrier;
    unsigned written[PLAIN_WRITES]; /* locations that it wrote as plain memory: steps that are still to be made */
    unsigned written_count;
    uintptr_t written_at;
} fibres[THREADS];

extern struct now {
    const struct explore_test *test;
    unsigned threads;
    int current;    /* thread that runs, or that a setup or check runs as; -1: none */
    bool replaying; /* the graph has events that were not run yet */
    bool checking;  /* a setup or a check runs */
    bool cut;       /* this execution is over before its end */
    bool failed;    /* MESSAGE says why */
    bool trouble;   /* and it is the explorer's own failure */
    bool anew;      /* a location turned out to be shared: nothing is known of this execution */
    bool barriers_used;
    unsigned accesses, barriers; /* so far */
    char message[MESSAGE_BYTES];
    ucontext_t scheduler;
    jmp_buf after_check;
    struct tally *tally;
} now;

/* Lets others run. Comes back when the thread can go on. */
void fibre_pause(enum state state);

static inline bool is_executed(struct name name) { return is_init(name) || name.index < graph.executed[name.thread]; }

/* ---- words.c --------------------------------------------------------------------------------------------------- */

/* The location that the running thread accesses; -1: its own memory. In the execution in which a location turns out to be
 * shared it is memory still. */
int location_of(uintptr_t address, unsigned bytes);

/* The same where the thread must wait for another: it cannot be its own memory. */
int shared_location_of(uintptr_t address, unsigned bytes);

/* Calls VISIT for each shared location that these bytes touch. */
void for_each_shared(uintptr_t address, size_t bytes, void (*visit)(unsigned location, uintptr_t code), uintptr_t code);

/* ---- steps.c --------------------------------------------------------------------------------------------------- */

/* Makes steps of what the thread wrote as plain memory. */
void write_pending(void);

/* ---- waiting.c ------------------------------------------------------------------------------------------------- */

/* Before each step: whether the kernel interrupts this thread here. */
void barrier_poll(void);

/* Whether the word at ADDRESS, which a thread waits for, is a barrier's, and who is to pass it waits as well. The kernel interrupts
 * whoever waits all the same: that is the execution in which he passes the barrier before he begins to. */
bool barrier_awaits_waiting(uintptr_t address);

/* Once, before any execution; and when the thread has ended. */
void barrier_begin(void);
void barrier_end(void);

#endif
