/* random.c - programs made from a seed, EXPLORE_SEED of the environment. Three seeds that follow a multiple of three make
 * the same threads in different places: they are searched in other orders, and must have as many executions. */
#include "litmus.h"

#include <stdlib.h>

enum { OPERATIONS = 5 };

static _Atomic uint32_t locks[2], flag;
static uint64_t state;
static int program[3][OPERATIONS], held[3], turn;

static unsigned next_random(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void make_program(void) {
    const char *seed = getenv("EXPLORE_SEED");
    state = seed != NULL ? strtoull(seed, NULL, 0) : 0;
    turn = (int)(state % 3);
    state = state / 3 * 2862933555777941757u + 3037000493u;
    for (int i = 0; i < 20; i++) next_random(2);
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < OPERATIONS; i++) program[t][i] = (int)next_random(24);
}

static _Atomic int *variable(int operation) { return operation % 2 == 0 ? &x : &y; }

static void take_or_drop(int thread, int which) {
    if (held[thread] == 0) {
        explore_lock_take(&locks[which]);
        held[thread] = which + 1;
    } else {
        explore_lock_drop(&locks[held[thread] - 1]);
        held[thread] = 0;
    }
}

static void run_program(void) {
    static const memory_order loads[] = {RLX, ACQ, SC}, stores[] = {RLX, REL, SC};
    int thread = ((int)explore_self() + turn) % 3;
    for (int i = 0; i < OPERATIONS; i++) {
        int operation = program[thread][i];
        if (operation < 6) atomic_load_explicit(variable(operation), loads[operation / 2]);
        else if (operation < 12) atomic_store_explicit(variable(operation), 10 * thread + i, stores[operation / 2 - 3]);
        else if (operation < 16) atomic_fetch_add_explicit(variable(operation), 1, operation < 14 ? AR : RLX);
        else if (operation < 17) atomic_store_explicit(&flag, 1, REL);
        else if (operation < 18) explore_await(&flag, 1);
        else take_or_drop(thread, operation % 4 == 0);
    }
    if (held[thread] != 0) take_or_drop(thread, 0);
}

EXPLORE(random, .setup = make_program, .threads = {run_program, run_program, run_program});
