/* lanes.c - a baton that goes from thread to thread: see lanes.h. */
#include "lanes.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static struct lane {
    pthread_t thread;
    sem_t turn;
    bool runs, ends;
    void (*farewell)(void);
} lanes[LANES];

/* All of this belongs to whoever has the turn. */
static unsigned current;
static bool done;
static bool (*step_of_program)(void);

/* Its destructor is called after hakmem's, whose key is older: the thread has no heap any more. */
static pthread_key_t farewell_key;

static void say_farewell(void *value) {
    struct lane *lane = value;
    if (lane->farewell != NULL) lane->farewell();
}

__attribute__((constructor)) static void make_key(void) {
    if (pthread_key_create(&farewell_key, say_farewell) != 0) abort();
    for (unsigned i = 0; i < LANES; i++) sem_init(&lanes[i].turn, 0, 0);
}

static void wait_for_turn(unsigned lane) {
    while (sem_wait(&lanes[lane].turn) != 0 && errno == EINTR) continue;
}

/* Those that ended themselves gave their turn to lane 0, which waits for the rest of their ends. */
static void join_ended(void) {
    for (unsigned lane = 1; lane < LANES; lane++)
        if (lanes[lane].ends && lanes[lane].runs) lanes_end(lane, lanes[lane].farewell);
}

/* Until LANE has to end, or all is done and it is lane 0. */
static void run_lane(unsigned lane) {
    for (;;) {
        while (current == lane && !done && !lanes[lane].ends) done = !step_of_program();
        if (lanes[lane].ends || (done && lane == 0)) return;
        if (done) current = 0;
        sem_post(&lanes[current].turn);
        wait_for_turn(lane);
        if (lane == 0) join_ended();
    }
}

static void *live(void *argument) {
    unsigned lane = (unsigned)(uintptr_t)argument;
    wait_for_turn(lane);
    run_lane(lane);
    pthread_setspecific(farewell_key, &lanes[lane]);
    if (current == lane) { /* it ends itself */
        current = 0;
        sem_post(&lanes[0].turn);
    }
    return NULL;
}

void lanes_run(bool (*step)(void)) {
    step_of_program = step;
    current = 0;
    done = false;
    run_lane(0);
}

void lanes_switch(unsigned lane) {
    struct lane *to = &lanes[lane];
    if (lane != 0 && !to->runs) {
        to->ends = false;
        to->runs = pthread_create(&to->thread, NULL, live, (void *)(uintptr_t)lane) == 0;
        if (!to->runs) return;
    }
    current = lane;
}

void lanes_end(unsigned lane, void (*farewell)(void)) {
    struct lane *ending = &lanes[lane];
    if (lane == 0 || !ending->runs) return;
    bool ends_itself = ending->ends;
    if (!ends_itself) { /* else it may be on its way, and look at these */
        ending->farewell = farewell;
        ending->ends = true;
    }
    if (current == lane) return; /* the caller's own end: run_lane sees it */
    if (!ends_itself) sem_post(&ending->turn);
    pthread_join(ending->thread, NULL);
    ending->runs = false;
}

unsigned lanes_current(void) { return current; }

void lanes_forget(void) {
    for (unsigned i = 0; i < LANES; i++) lanes[i].runs = false;
    current = 0;
}
