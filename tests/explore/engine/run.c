/* run.c - threads as fibres: each runs until it must wait, first through what its graph says already (replay), then on.
 *
 * A location that only one thread ever touched is no step at all, but plain memory of that thread. When another touches it
 * after all, the search begins anew, with one more location that is shared. */
#include "run.h"

#include "distinct.h"
#include "memory.h"
#include "race.h"
#include "report.h"
#include "search.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { STACK_BYTES = 256 * 1024, ACCESSES_MOST = 1000 * 1000, MESSAGE_BYTES = 1000 };

enum state { READY, NEEDS_WRITE, AT_THE_END_OF_GRAPH, WAITS, ENDED };

static struct fibre {
    ucontext_t context;
    char *stack;
    enum state state;
    unsigned acknowledged; /* barriers of others that it passed */
    bool in_barrier;
} fibres[THREADS];

static struct {
    const struct explore_test *test;
    unsigned threads;
    int current; /* thread that runs; -1: none */
    bool replaying, checking, cut, failed, trouble, anew;
    unsigned accesses;
    unsigned barriers; /* so far */
    bool barriers_used;
    char message[MESSAGE_BYTES];
    ucontext_t scheduler;
    jmp_buf after_check;
    struct tally *tally;
} now = {.current = -1};

bool run_is_inside(void) { return now.current >= 0 && !now.checking; }

unsigned explore_self(void) { return (unsigned)now.current; }

/* ---- leaving a fibre ----------------------------------------------------------------------------------------- */

static void pause_in(enum state state) {
    struct fibre *fibre = &fibres[now.current];
    fibre->state = state;
    swapcontext(&fibre->context, &now.scheduler);
    fibre->state = READY;
}

/* This execution is over: there is none like it, or something failed. */
__attribute__((noreturn)) static void cut(void) {
    now.cut = true;
    for (;;) pause_in(ENDED);
}

void explore_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(now.message, sizeof now.message, format, values);
    va_end(values);
    now.failed = true;
    if (now.checking) longjmp(now.after_check, 1);
    if (now.current >= 0) cut();
    fprintf(stderr, "explore: %s: %s\n", now.test != NULL ? now.test->name : "start", now.message);
    exit(2);
}

/* ---- which locations are steps --------------------------------------------------------------------------------- */

enum { WORDS_LOG = 14, WORDS = 1 << WORDS_LOG };

static struct word {
    uintptr_t address;
    unsigned bytes;
    uint8_t users;
    int location; /* -1: none */
} words[WORDS];
static unsigned words_used;

static struct word *word_of(uintptr_t address, unsigned bytes) {
    uintptr_t i = address * 0x9e3779b97f4a7c15u >> (64 - WORDS_LOG);
    while (words[i % WORDS].bytes != 0 && words[i % WORDS].address != address) i++;
    struct word *word = &words[i % WORDS];
    if (word->bytes == 0) {
        if (++words_used > WORDS / 2) explore_fail("more than %d atomic words", WORDS / 2);
        *word = (struct word){.address = address, .bytes = bytes, .location = -1};
    }
    if (word->bytes != bytes) explore_fail("%p is accessed as %u and as %u bytes", (void *)address, bytes, word->bytes);
    return word;
}

static void share(struct word *word) {
    if (word->location >= 0) return;
    if (graph.locations == LOCATIONS) explore_fail("more than %d shared locations", LOCATIONS);
    word->location = (int)graph.locations;
    graph.location[graph.locations] = (struct location){.address = word->address, .bytes = word->bytes};
    graph.locations++;
    now.anew = true;
}

/* The location that a thread accesses; -1: its own memory. In the execution in which a location turns out to be shared it
 * is memory still. */
static int location_of(uintptr_t address, unsigned bytes) {
    if (++now.accesses > ACCESSES_MOST) explore_fail("more than %d accesses: an endless loop?", ACCESSES_MOST);
    struct word *word = word_of(address, bytes);
    int location = word->location;
    word->users |= (uint8_t)(1u << now.current);
    if ((word->users & (word->users - 1)) != 0) share(word);
    return now.anew ? -1 : location;
}

/* The code must wait for another thread here: it cannot be its own memory. */
static int shared_location_of(uintptr_t address, unsigned bytes) {
    share(word_of(address, bytes));
    if (now.anew) cut();
    return location_of(address, bytes);
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static void barrier_poll(void);

static bool is_executed(struct name name) { return is_init(name) || name.index < graph.executed[name.thread]; }

/* The event that the graph has next for this thread; NULL when it has to be added. */
static struct event *next_event(enum kind kind, unsigned location) {
    unsigned thread = (unsigned)now.current;
    if (graph.executed[thread] == graph.count[thread]) {
        if (now.replaying) pause_in(AT_THE_END_OF_GRAPH);
        if (graph.count[thread] == EVENTS) explore_fail("more than %d steps of one thread", EVENTS);
        return NULL;
    }
    struct event *event = &graph.events[thread][graph.executed[thread]];
    if (event->kind != kind || event->location != location) {
        now.trouble = true;
        explore_fail("not the same when run again: thread %u, step %u", thread, graph.executed[thread]);
    }
    return event;
}

static void executed(struct event *event, uintptr_t code) {
    event->code = code;
    graph_execute(event);
    report_step(event->self);
    if (!now.replaying && event->order == memory_order_seq_cst && !graph_is_sc()) cut();
}

static uint64_t read_step(unsigned location, const struct change *change, uintptr_t code) {
    const struct location *at = &graph.location[location];
    struct event *event = next_event(EVENT_READ, location);
    if (event == NULL)
        event = search_add_read((unsigned)now.current, change->order, location, change->awaits, change->wanted);
    while (!is_executed(event->from)) pause_in(NEEDS_WRITE);
    while (!satisfies(event, value_of(at, event->from))) pause_in(WAITS);
    uint64_t new;
    bool writes = change->change(value_of(at, event->from), change, &new);
    event->order = (uint8_t)(writes ? change->order : change->failure_order);
    struct clock before = clock_before((unsigned)now.current);
    if (rank_of(event->from) < rank_seen(at, &before)) cut();
    executed(event, code);
    race_check((unsigned)now.current, &event->before, at->address, at->bytes, ACCESS_ATOMIC_READ, code);
    return value_of(at, event->from);
}

static void write_step(unsigned location, int order, uint64_t value, bool exclusive, uintptr_t code) {
    const struct location *at = &graph.location[location];
    struct clock before = clock_before((unsigned)now.current);
    race_check((unsigned)now.current, &before, at->address, at->bytes, ACCESS_ATOMIC_WRITE, code);
    struct event *event = next_event(EVENT_WRITE, location);
    if (event == NULL) event = search_add_write((unsigned)now.current, order, location, value, exclusive);
    if (event == NULL) cut();
    event->value = value;
    executed(event, code);
    memory_store(at->address, at->bytes, value);
}

/* The change of a load. */
static bool never(uint64_t old, const struct change *change, uint64_t *new) {
    (void)old;
    (void)change;
    (void)new;
    return false;
}

uint64_t run_load(uintptr_t address, unsigned bytes, int order, uintptr_t code) {
    int location = location_of(address, bytes);
    if (location < 0) return memory_load(address, bytes);
    barrier_poll();
    return read_step((unsigned)location, &(struct change){.change = never, .failure_order = order}, code);
}

void run_store(uintptr_t address, unsigned bytes, int order, uint64_t value, uintptr_t code) {
    int location = location_of(address, bytes);
    if (location < 0) {
        memory_store(address, bytes, value);
        return;
    }
    barrier_poll();
    write_step((unsigned)location, order, value, false, code);
}

uint64_t run_exchange(uintptr_t address, unsigned bytes, const struct change *change, uintptr_t code) {
    uint64_t mask = bytes == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * bytes) - 1, new = 0;
    int location = location_of(address, bytes);
    if (location < 0) {
        uint64_t old = memory_load(address, bytes);
        struct event read = {.awaits = (uint8_t)change->awaits, .wanted = change->wanted};
        if (!satisfies(&read, old)) shared_location_of(address, bytes);
        if (change->change(old, change, &new)) memory_store(address, bytes, new);
        return old;
    }
    barrier_poll();
    uint64_t old = read_step((unsigned)location, change, code);
    if (change->change(old, change, &new)) write_step((unsigned)location, change->order, new & mask, true, code);
    return old;
}

void run_fence(int order, uintptr_t code) {
    struct event *event = next_event(EVENT_FENCE, LOCATIONS);
    if (event == NULL) event = search_add_fence((unsigned)now.current, order);
    executed(event, code);
}

static bool is_on_a_stack(uintptr_t address) {
    for (unsigned t = 0; t < now.threads; t++)
        if (address - (uintptr_t)fibres[t].stack < STACK_BYTES) return true;
    return false;
}

void run_access(uintptr_t address, size_t bytes, bool write, uintptr_t code) {
    if (++now.accesses > ACCESSES_MOST) explore_fail("more than %d accesses: an endless loop?", ACCESSES_MOST);
    if (is_on_a_stack(address) || memory_is_thread_local(address)) return;
    struct clock before = clock_before((unsigned)now.current);
    race_check((unsigned)now.current, &before, address, bytes, write ? ACCESS_WRITE : ACCESS_READ, code);
}

/* ---- locks, waiting, barriers -------------------------------------------------------------------------------------- */

#define CODE ((uintptr_t)__builtin_return_address(0))

static bool to_operand(uint64_t old, const struct change *change, uint64_t *new) {
    (void)old;
    *new = change->operand;
    return true;
}
static bool if_expected(uint64_t old, const struct change *change, uint64_t *new) {
    *new = change->operand;
    return old == change->expected;
}

void explore_lock_take(_Atomic uint32_t *state) {
    struct change take = {.change = to_operand, .operand = 1, .order = memory_order_acquire, .awaits = AWAITS_EQUAL};
    if (run_is_inside())
        run_exchange((uintptr_t)state, 4, &take, CODE);
    else if (atomic_exchange(state, 1) != 0)
        explore_fail("a lock is taken twice");
    memory_touch(state, 4);
}

bool explore_lock_try(_Atomic uint32_t *state) {
    struct change take = {.change = if_expected, .operand = 1, .order = memory_order_acquire};
    memory_touch(state, 4);
    return run_is_inside() ? run_exchange((uintptr_t)state, 4, &take, CODE) == 0 : atomic_exchange(state, 1) == 0;
}

void explore_lock_drop(_Atomic uint32_t *state) {
    memory_touch(state, 4);
    if (run_is_inside())
        run_store((uintptr_t)state, 4, memory_order_release, 0, CODE);
    else
        atomic_store(state, 0);
}

static void await(_Atomic uint32_t *word, enum awaits awaits, uint32_t wanted, uintptr_t code) {
    struct change wait = {.change = never, .failure_order = memory_order_acquire, .awaits = awaits, .wanted = wanted};
    shared_location_of((uintptr_t)word, 4);
    run_exchange((uintptr_t)word, 4, &wait, code);
}

void explore_await(_Atomic uint32_t *word, uint32_t wanted) { await(word, AWAITS_EQUAL, wanted, CODE); }
void explore_await_at_least(_Atomic uint32_t *word, uint32_t wanted) { await(word, AWAITS_AT_LEAST, wanted, CODE); }

/* The number of the last barrier, and the last that each thread passed, or came to its end before. */
static _Atomic uint32_t barrier_wanted, barrier_passed[THREADS];

/* Before each step: whether the kernel interrupts this thread here. */
static void barrier_poll(void) {
    struct fibre *self = &fibres[now.current];
    if (!now.barriers_used || self->in_barrier) return;
    self->in_barrier = true;
    uint32_t wanted = (uint32_t)run_load((uintptr_t)&barrier_wanted, 4, memory_order_acquire, 0);
    if (wanted > self->acknowledged) {
        self->acknowledged = wanted;
        run_fence(memory_order_seq_cst, 0);
        run_store((uintptr_t)&barrier_passed[now.current], 4, memory_order_release, wanted, 0);
    }
    self->in_barrier = false;
}

static void barrier_end(void) {
    if (!now.barriers_used) return;
    fibres[now.current].in_barrier = true;
    run_store((uintptr_t)&barrier_passed[now.current], 4, memory_order_release, UINT32_MAX, 0);
}

void explore_barrier_others(void) {
    struct fibre *self = &fibres[now.current];
    if (!now.barriers_used) {
        now.barriers_used = now.anew = true;
        cut();
    }
    self->in_barrier = true;
    run_fence(memory_order_seq_cst, CODE);
    uint32_t number = ++now.barriers;
    run_store((uintptr_t)&barrier_wanted, 4, memory_order_release, number, CODE);
    for (unsigned t = 0; t < now.threads; t++)
        if ((int)t != now.current) await(&barrier_passed[t], AWAITS_AT_LEAST, number, CODE);
    run_fence(memory_order_seq_cst, CODE);
    self->in_barrier = false;
}

/* ---- one execution --------------------------------------------------------------------------------------------------- */

static void fibre_main(void) {
    now.test->threads[now.current]();
    barrier_end();
    for (;;) pause_in(ENDED);
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
        if (satisfies(read, value_of(at, latest_write(at)))) now.cut = true;
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
    explore_memory((void *)(uintptr_t)&barrier_wanted, sizeof barrier_wanted);
    explore_memory((void *)(uintptr_t)barrier_passed, sizeof barrier_passed);
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
