/* run.c - runs the threads of a test as fibres, one graph after the other: each goes on until it must wait, first through what
 * the graph says already (replay), then further. */
#include "fibre.h"

#include "distinct.h"
#include "locks.h"
#include "memory.h"
#include "race.h"
#include "report.h"
#include "search.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct fibre fibres[THREADS];
struct now now = {.current = -1};

bool run_is_inside(void) { return now.current >= 0 && !now.checking; }

unsigned explore_self(void) { return (unsigned)now.current; }

uint64_t explore_seed(void) { return now.test->seed; }

/* ---- leaving a fibre ----------------------------------------------------------------------------------------- */

void fibre_pause(enum state state) {
    struct fibre *fibre = &fibres[now.current];
    fibre->state = state;
    swapcontext(&fibre->context, &now.scheduler);
    fibre->state = READY;
}

void run_cut(void) {
    now.cut = true;
    for (;;) fibre_pause(ENDED);
}

void explore_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(now.message, sizeof now.message, format, values);
    va_end(values);
    now.failed = true;
    if (now.checking) longjmp(now.after_check, 1);
    if (now.current >= 0) run_cut();
    fprintf(stderr, "explore: %s: %s\n", now.test != NULL ? now.test->name : "start", now.message);
    exit(2);
}

/* ---- one execution --------------------------------------------------------------------------------------------------- */

static void fibre_main(void) {
    now.test->threads[now.current]();
    write_pending();
    barrier_end();
    for (;;) fibre_pause(ENDED);
}

static void start_fibre(unsigned thread) {
    struct fibre *fibre = &fibres[thread];
    if (fibre->stack == NULL) {
        fibre->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (fibre->stack == MAP_FAILED) abort();
    }
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = STACK_BYTES;
    fibre->context.uc_link = NULL;
    makecontext(&fibre->context, fibre_main, 0);
    fibre->state = READY;
    fibre->acknowledged = 0;
    fibre->in_barrier = false;
    fibre->written_count = 0;
}

/* What the thread's next event reads from. */
static const struct event *awaited_read(unsigned thread) { return &graph.events[thread][graph.executed[thread]]; }

static bool can_go_on(unsigned thread) {
    switch (fibres[thread].state) {
    case READY: return true;
    case NEEDS_WRITE: return is_executed(awaited_read(thread)->from);
    case AT_THE_END_OF_GRAPH: return !now.replaying;
    case WAITS: {
        const struct event *read = awaited_read(thread);
        return satisfies(read, value_of(&graph.location[read->location], read->from));
    }
    case ENDED: return false;
    }
    return false;
}

static void resume(unsigned thread) {
    now.current = (int)thread;
    memory_switch(now.current);
    swapcontext(&now.scheduler, &fibres[thread].context);
    memory_switch(-1);
    now.current = -1;
}

/* The first thread that can go on; THREADS when there is none. */
static unsigned next_thread(void) {
    unsigned thread = 0;
    while (thread < now.threads && !can_go_on(thread)) thread++;
    return thread < now.threads ? thread : THREADS;
}

/* The end of a replay: a graph of which the seq_cst axiom does not hold is none. */
static bool replay_ended(void) {
    now.replaying = false;
    for (unsigned t = 0; t < now.threads; t++) {
        if (graph.executed[t] == graph.count[t] || fibres[t].state == WAITS) continue;
        now.trouble = true;
        explore_fail("a graph cannot be run: thread %u, step %u", t, graph.executed[t]);
    }
    return graph.sc_events == 0 || graph_is_sc();
}

static void run_threads(void) {
    for (;;) {
        unsigned thread = next_thread();
        if (thread != THREADS)
            resume(thread);
        else if (!now.replaying)
            return;
        else if (!replay_ended())
            now.cut = true;
        if (now.cut) return;
    }
}

/* Threads that wait: for ever when the newest value is not what they wait for. */
static void look_at_waiting(void) {
    bool waiting = false;
    for (unsigned t = 0; t < now.threads; t++) {
        if (fibres[t].state != WAITS) continue;
        if (!(now.test->may_wait >> t & 1)) waiting = true;
        const struct event *read = awaited_read(t);
        const struct location *at = &graph.location[read->location];
        if (satisfies(read, value_of(at, latest_write(at))) || barrier_awaits_waiting(at->address)) now.cut = true;
    }
    if (!waiting || now.cut) return;
    snprintf(now.message, sizeof now.message, "the threads wait for each other, or for what nobody does");
    now.failed = now.cut = true;
}

static void check_outcome(void) {
    for (unsigned i = 0; i < graph.locations; i++) {
        const struct location *at = &graph.location[i];
        if (at->writes != 0) memory_store(at->address, at->bytes, value_of(at, latest_write(at)));
    }
    now.checking = true;
    if (setjmp(now.after_check) == 0 && now.test->check != NULL) now.test->check();
    now.checking = false;
    now.current = -1;
    memory_switch(-1);
}

static void run_execution(void) {
    memory_restore();
    race_forget();
    locks_forget();
    report_forget_steps();
    now.replaying = true;
    now.cut = now.failed = now.anew = false;
    now.accesses = now.barriers = 0;
    for (unsigned t = 0; t < now.threads; t++) start_fibre(t);
    run_threads();
    if (!now.cut) look_at_waiting();
    if (!now.cut && !now.anew) check_outcome();
}

/* ---- all executions -------------------------------------------------------------------------------------------------- */

void explore_as(unsigned thread, void (*body)(void)) {
    int before = now.current;
    now.current = (int)thread;
    memory_switch(now.current);
    body();
    memory_switch(before);
    now.current = before;
}

static void begin_search(void) {
    search_begin();
    distinct_forget();
    memory_restore();
    for (unsigned i = 0; i < graph.locations; i++) {
        struct location *at = &graph.location[i];
        at->initial = memory_load(at->address, at->bytes);
    }
    *now.tally = (struct tally){.shared = graph.locations};
}

static void count_execution(void) {
    unsigned steps = 0;
    for (unsigned t = 0; t < now.threads; t++) steps += graph.executed[t];
    if (steps > now.tally->longest) now.tally->longest = steps;
    if (now.cut)
        now.tally->cut++;
    else
        now.tally->complete++;
    if (!now.cut && !distinct_add()) now.tally->repeated++;
}

/* A failure of a graph that the seq_cst axiom forbids is none. */
static bool is_real(void) { return now.failed && (now.trouble || graph_is_sc()); }

bool run_test(const struct explore_test *test, uint64_t most, uint64_t shown, struct tally *tally) {
    now.test = test;
    now.tally = tally;
    while (now.threads < THREADS && test->threads[now.threads] != NULL) now.threads++;
    barrier_begin();
    now.checking = true; /* the setup runs alone, too */
    if (setjmp(now.after_check) != 0) {
        report_failure(test->name, 0, now.message);
        return false;
    }
    if (test->setup != NULL) test->setup();
    now.checking = false;
    memory_keep();
    begin_search();
    for (bool more = true; more;) {
        run_execution();
        if (now.anew) { /* of this execution nothing is known */
            begin_search();
            continue;
        }
        if (is_real()) {
            if (!now.trouble && locks_keep_all()) {
                begin_search();
                continue;
            }
            report_failure(test->name, tally->complete + tally->cut + 1, now.message);
            return false;
        }
        count_execution();
        if (tally->complete + tally->cut == shown) report_steps();
        if (tally->complete + tally->cut == most) {
            printf("FAIL %s: more than %llu executions\n", test->name, (unsigned long long)most);
            return false;
        }
        more = search_next();
    }
    return true;
}
