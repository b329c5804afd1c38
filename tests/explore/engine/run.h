/* run.h - running the threads of a test through one graph after the other. */
#ifndef EXPLORE_RUN_H
#define EXPLORE_RUN_H

#include "graph.h"

struct tally {
    uint64_t complete; /* executions: graphs in which every thread came to its end */
    uint64_t cut;      /* graphs that turned out to be none of C11's, or in which a thread waits for an old value */
    uint64_t repeated; /* of the complete ones, seen before: none, if the search is right */
    unsigned longest;  /* steps */
    unsigned shared;   /* locations that more than one thread touches: all others are no steps */
};

/* Runs all executions of TEST, at most MOST, and prints the steps of number SHOWN. True when all that was checked held;
 * otherwise it was said. */
bool run_test(const struct explore_test *test, uint64_t most, uint64_t shown, struct tally *tally);

/* All different outcomes of the last test, sorted, with blanks between. */
const char *run_outcomes(void); /* outcomes.c */

/* ---- the steps: what the running code does (hooks.c) ------------------------------------------------------- */

/* Whether one of the test's threads runs. */
bool run_is_inside(void);

uint64_t run_load(uintptr_t address, unsigned bytes, int order, uintptr_t code);
void run_store(uintptr_t address, unsigned bytes, int order, uint64_t value, uintptr_t code);

/* A read-modify-write: CHANGE makes the new value of the old one, false when there is to be none. */
struct change {
    bool (*change)(uint64_t old, const struct change *change, uint64_t *new);
    uint64_t expected, operand;
    int order, failure_order;
    enum awaits awaits;
    uint64_t wanted;
};
uint64_t run_exchange(uintptr_t address, unsigned bytes, const struct change *change, uintptr_t code);
void run_fence(int order, uintptr_t code);

/* The change of a load. */
bool run_never(uint64_t old, const struct change *change, uint64_t *new);

/* This execution is over: there is none like it, or something failed. In a thread. */
__attribute__((noreturn)) void run_cut(void);

/* Makes an atomic word one of the steps, beginning the search anew if it was none; and whether it is one. */
void run_share(uintptr_t address, unsigned bytes);
bool run_is_shared(uintptr_t address, unsigned bytes);

/* A plain access. */
void run_access(uintptr_t address, size_t bytes, bool write, uintptr_t code);

#endif
