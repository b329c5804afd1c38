/* steps.c - accesses of shared locations: each is an event of the graph, one that it has already or one that is added. */
#include "fibre.h"
#include "memory.h"
#include "race.h"
#include "report.h"
#include "search.h"

#include <errno.h>

/* The event that the graph has next for this thread; NULL when it has to be added. */
static struct event *next_event(enum kind kind, unsigned location) {
    unsigned thread = (unsigned)now.current;
    if (graph.executed[thread] == graph.count[thread]) {
        if (now.replaying) fibre_pause(AT_THE_END_OF_GRAPH);
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
    if (!now.replaying && event->order == memory_order_seq_cst && !graph_is_sc()) run_cut();
}

static uint64_t read_step(unsigned location, const struct change *change, uintptr_t code) {
    const struct location *at = &graph.location[location];
    struct event *event = next_event(EVENT_READ, location);
    if (event == NULL)
        event = search_add_read((unsigned)now.current, change->order, location, change->awaits, change->wanted);
    while (!is_executed(event->from)) fibre_pause(NEEDS_WRITE);
    while (!satisfies(event, value_of(at, event->from))) fibre_pause(WAITS);
    uint64_t new;
    bool writes = change->change(value_of(at, event->from), change, &new);
    event->order = (uint8_t)(writes ? change->order : change->failure_order);
    struct clock before = clock_before((unsigned)now.current);
    if (rank_of(event->from) < rank_seen(at, &before)) run_cut();
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
    if (event == NULL) run_cut();
    event->value = value;
    executed(event, code);
    memory_store(at->address, at->bytes, value);
}

bool run_never(uint64_t old, const struct change *change, uint64_t *new) {
    (void)old;
    (void)change;
    (void)new;
    return false;
}

/* ---- locations that are plain memory, too -------------------------------------------------------------------------- */

/* A plain write is a relaxed one, made a step before the thread's next: only then its value is known. That nobody reads
 * it meanwhile is seen to by the search for races. */
void write_pending(void) {
    struct fibre *self = &fibres[now.current];
    while (self->written_count > 0) {
        unsigned location = self->written[--self->written_count];
        const struct location *at = &graph.location[location];
        write_step(location, memory_order_relaxed, memory_load(at->address, at->bytes), false, self->written_at);
    }
}

static void note_written(unsigned location, uintptr_t code) {
    struct fibre *self = &fibres[now.current];
    for (unsigned i = 0; i < self->written_count; i++)
        if (self->written[i] == location) return;
    if (self->written_count == PLAIN_WRITES) explore_fail("more than %d plain writes of shared locations", PLAIN_WRITES);
    self->written[self->written_count++] = location;
    self->written_at = code;
}

/* Whatever the order in which this execution was put together: a plain read finds the newest value that its thread knows. */
static void bring_up_to_date(unsigned location, uintptr_t code) {
    (void)code;
    const struct location *at = &graph.location[location];
    struct clock before = clock_before((unsigned)now.current);
    unsigned seen = rank_seen(at, &before);
    if (seen > 0) memory_store(at->address, at->bytes, value_of(at, at->write[seen - 1]));
}

/* ---- what the code calls ------------------------------------------------------------------------------------------- */

/* What no other thread has a way to. */
static bool is_private(uintptr_t address) {
    for (unsigned t = 0; t < now.threads; t++)
        if (address - (uintptr_t)fibres[t].stack < STACK_BYTES) return true;
    return memory_is_thread_local(address) || address == (uintptr_t)&errno;
}

/* No step, but perhaps a race: with another thread that accesses it as plain memory, which shares no atomic word. */
static void check_access(uintptr_t address, size_t bytes, enum access access, uintptr_t code) {
    if (is_private(address)) return;
    struct clock before = clock_before((unsigned)now.current);
    race_check((unsigned)now.current, &before, address, bytes, access, code);
}

uint64_t run_load(uintptr_t address, unsigned bytes, int order, uintptr_t code) {
    write_pending();
    int location = location_of(address, bytes);
    if (location < 0) {
        check_access(address, bytes, ACCESS_ATOMIC_READ, code);
        return memory_load(address, bytes);
    }
    barrier_poll();
    return read_step((unsigned)location, &(struct change){.change = run_never, .failure_order = order}, code);
}

void run_store(uintptr_t address, unsigned bytes, int order, uint64_t value, uintptr_t code) {
    write_pending();
    int location = location_of(address, bytes);
    if (location < 0) {
        check_access(address, bytes, ACCESS_ATOMIC_WRITE, code);
        memory_store(address, bytes, value);
        return;
    }
    barrier_poll();
    write_step((unsigned)location, order, value, false, code);
}

uint64_t run_exchange(uintptr_t address, unsigned bytes, const struct change *change, uintptr_t code) {
    write_pending();
    uint64_t mask = bytes == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * bytes) - 1, new = 0;
    int location = location_of(address, bytes);
    if (location < 0) {
        check_access(address, bytes, ACCESS_ATOMIC_WRITE, code);
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
    write_pending();
    struct event *event = next_event(EVENT_FENCE, LOCATIONS);
    if (event == NULL) event = search_add_fence((unsigned)now.current, order);
    executed(event, code);
}

void run_access(uintptr_t address, size_t bytes, bool write, uintptr_t code) {
    if (is_private(address)) return;
    write_pending();
    check_access(address, bytes, write ? ACCESS_WRITE : ACCESS_READ, code);
    for_each_shared(address, bytes, write ? note_written : bring_up_to_date, code);
}
