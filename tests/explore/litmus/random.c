/* random.c - programs made from a seed: three threads of a few operations on variables, locks and a flag that is awaited.
 * Each is run three times with its threads in other places, so that it is searched in other orders; it must have as many
 * executions each time. An execution that the search missed, or ran twice, would show. */
#include "litmus.h"

#include <stdio.h>

enum { OPERATIONS = 5, PROGRAMS = 40, TURNS = 3 };

static _Atomic uint32_t locks[2], flag;
static uint64_t state;
static int program[3][OPERATIONS], held[3];

static unsigned next_random(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

/* Whoever waits for a flag that nobody sets waits for ever: so the first thread sets it at last. */
static void make_program(void) {
    state = explore_seed() / TURNS * 2862933555777941757u + 3037000493u;
    for (int i = 0; i < 20; i++) next_random(2);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < OPERATIONS; i++) program[t][i] = (int)next_random(t == 0 ? 20 : 21);
}

static _Atomic int *variable(int operation) { return operation % 2 == 0 ? &x : &y; }

/* A thread has one lock at most, so there is no deadlock; and none while it waits. */
static void take_or_drop(int thread, int which) {
    if (held[thread] == 0) {
        explore_lock_take(&locks[which]);
        held[thread] = which + 1;
    } else {
        explore_lock_drop(&locks[held[thread] - 1]);
        held[thread] = 0;
    }
}

static void wait_for_flag(int thread) {
    if (held[thread] != 0) take_or_drop(thread, 0);
    explore_await(&flag, 1);
}

static void operate(int thread, int i, int operation) {
    static const memory_order loads[] = {RLX, ACQ, SC}, stores[] = {RLX, REL, SC};
    if (operation < 6)
        atomic_load_explicit(variable(operation), loads[operation / 2]);
    else if (operation < 12)
        atomic_store_explicit(variable(operation), 10 * thread + i, stores[operation / 2 - 3]);
    else if (operation < 15)
        atomic_fetch_add_explicit(variable(operation), 1, operation < 14 ? AR : RLX);
    else if (operation < 20)
        take_or_drop(thread, operation % 2);
    else
        wait_for_flag(thread);
}

static void run_program(void) {
    int thread = (int)((explore_self() + explore_seed()) % TURNS);
    for (int i = 0; i < OPERATIONS; i++) operate(thread, i, program[thread][i]);
    if (held[thread] != 0) take_or_drop(thread, 0);
    if (thread == 0) atomic_store_explicit(&flag, 1, REL);
}

__attribute__((constructor)) static void register_programs(void) {
    static struct explore_test tests[PROGRAMS * TURNS];
    static char names[PROGRAMS * TURNS][24];
    for (unsigned i = 0; i < PROGRAMS * TURNS; i++) {
        snprintf(names[i], sizeof names[i], "random_%u_%u", i / TURNS, i % TURNS);
        tests[i] = (struct explore_test){.name = names[i],
                                         .setup = make_program,
                                         .threads = {run_program, run_program, run_program},
                                         .like = i % TURNS == 0 ? NULL : names[i - i % TURNS],
                                         .seed = i};
        explore_register(&tests[i]);
    }
}
