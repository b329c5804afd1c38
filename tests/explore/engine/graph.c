/* graph.c - building, keeping and asking execution graphs. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct graph graph;

void clock_join(struct clock *into, const struct clock *other) {
    for (unsigned t = 0; t < THREADS; t++)
        if (other->of[t] > into->of[t]) into->of[t] = other->of[t];
}

static const struct event *last_executed(unsigned thread) {
    return graph.executed[thread] == 0 ? NULL : &graph.events[thread][graph.executed[thread] - 1];
}

struct clock clock_before(unsigned thread) {
    const struct event *last = last_executed(thread);
    return last != NULL ? last->before : (struct clock){{0}};
}

struct clock causes_before(unsigned thread) {
    const struct event *last = last_executed(thread);
    return last != NULL ? last->causes : (struct clock){{0}};
}

/* Coherence: what a write or a read saw, nobody who comes after it sees undone. */
unsigned rank_seen(const struct location *location, const struct clock *before) {
    unsigned seen = 0;
    for (unsigned i = location->writes; i-- > 0;) {
        if (!knows(before, location->write[i])) continue;
        seen = rank_of(location->write[i]);
        break;
    }
    for (unsigned i = 0; i < location->reads; i++) {
        if (!knows(before, location->read[i])) continue;
        unsigned rank = rank_of(event_of(location->read[i])->from);
        if (rank > seen) seen = rank;
    }
    return seen;
}

struct name exclusive_after(const struct location *location, struct name write) {
    for (unsigned i = 0; i < location->writes; i++) {
        const struct event *event = event_of(location->write[i]);
        if (event->exclusive && same_name(event[-1].from, write)) return event->self;
    }
    return NO_EVENT;
}

struct event *graph_append(unsigned thread, enum kind kind, int order, unsigned location) {
    struct event *event = &graph.events[thread][graph.count[thread]];
    *event = (struct event){
        .kind = (uint8_t)kind,
        .order = (uint8_t)order,
        .location = (uint16_t)location,
        .stamp = ++graph.stamp,
        .self = {(int16_t)thread, (uint16_t)graph.count[thread]},
        .from = NO_EVENT,
    };
    graph.count[thread]++;
    graph.sc_events += order == memory_order_seq_cst;
    if (kind == EVENT_READ) {
        struct location *at = &graph.location[location];
        at->read[at->reads++] = event->self;
    }
    return event;
}

void graph_place(struct event *write, unsigned rank) {
    struct location *at = &graph.location[write->location];
    memmove(&at->write[rank], &at->write[rank - 1], (at->writes - (rank - 1)) * sizeof at->write[0]);
    at->write[rank - 1] = write->self;
    at->writes++;
    for (unsigned i = rank - 1; i < at->writes; i++) event_of(at->write[i])->rank = (uint16_t)(i + 1);
}

/* ---- what is known ------------------------------------------------------------------------------------- */

static bool acquires(int order) { return order == memory_order_acquire || order == memory_order_acq_rel || order == memory_order_seq_cst || order == memory_order_consume; }
static bool releases(int order) { return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst; }

/* For each thread, what its relaxed reads brought and a fence may acquire; and what its last releasing fence gave. */
static struct clock to_acquire[THREADS], released[THREADS];

static void execute_read(struct event *event, unsigned thread) {
    if (is_init(event->from)) return;
    const struct event *write = event_of(event->from);
    clock_join(&event->causes, &write->causes);
    clock_join(acquires(event->order) ? &event->before : &to_acquire[thread], &write->release);
}

static void execute_write(struct event *event, unsigned thread) {
    event->release = releases(event->order) ? event->before : released[thread];
    /* A read-modify-write carries on the release sequence that it reads from. */
    if (event->exclusive && !is_init(event[-1].from)) clock_join(&event->release, &event_of(event[-1].from)->release);
}

static void execute_fence(struct event *event, unsigned thread) {
    if (acquires(event->order)) clock_join(&event->before, &to_acquire[thread]);
    if (releases(event->order)) released[thread] = event->before;
}

void graph_execute(struct event *event) {
    unsigned thread = (unsigned)event->self.thread;
    event->before = clock_before(thread);
    event->causes = causes_before(thread);
    event->before.of[thread] = event->causes.of[thread] = (uint16_t)(event->self.index + 1);
    if (event->kind == EVENT_READ) execute_read(event, thread);
    if (event->kind == EVENT_WRITE) execute_write(event, thread);
    if (event->kind == EVENT_FENCE) execute_fence(event, thread);
    graph.executed[thread]++;
}

static void forget_execution(void) {
    memset(graph.executed, 0, sizeof graph.executed);
    memset(to_acquire, 0, sizeof to_acquire);
    memset(released, 0, sizeof released);
}

void graph_clear(void) {
    memset(graph.count, 0, sizeof graph.count);
    for (unsigned i = 0; i < graph.locations; i++) graph.location[i].writes = graph.location[i].reads = 0;
    graph.stamp = graph.sc_events = 0;
    forget_execution();
}

/* ---- keeping ------------------------------------------------------------------------------------------- */

struct saved *graph_save(const unsigned keep[THREADS]) {
    size_t events = 0;
    for (unsigned t = 0; t < THREADS; t++) events += keep[t];
    struct saved *saved = malloc(sizeof *saved + events * sizeof saved->events[0]);
    if (saved == NULL) abort();
    saved->stamp = graph.stamp;
    struct kept *to = saved->events;
    for (unsigned t = 0; t < THREADS; t++) {
        saved->count[t] = keep[t];
        for (unsigned i = 0; i < keep[t]; i++) {
            const struct event *event = &graph.events[t][i];
            *to++ = (struct kept){event->kind, event->order, event->exclusive, event->awaits, event->location,
                                  (uint16_t)(2 * event->rank), event->stamp, event->from, event->wanted, event->value};
        }
    }
    return saved;
}

struct kept *saved_event(struct saved *saved, struct name name) {
    struct kept *events = saved->events;
    for (int t = 0; t < name.thread; t++) events += saved->count[t];
    return events + name.index;
}

static int by_rank(const void *a, const void *b) {
    return (int)event_of(*(const struct name *)a)->rank - (int)event_of(*(const struct name *)b)->rank;
}

static void load_event(unsigned thread, const struct kept *kept) {
    struct event *event = graph_append(thread, kept->kind, kept->order, kept->location);
    event->exclusive = kept->exclusive;
    event->awaits = kept->awaits;
    event->rank = kept->rank;
    event->stamp = kept->stamp;
    event->from = kept->from;
    event->wanted = kept->wanted;
    event->value = kept->value;
    if (kept->kind != EVENT_WRITE) return;
    struct location *at = &graph.location[kept->location];
    at->write[at->writes++] = event->self;
}

void graph_load(const struct saved *saved) {
    graph_clear();
    const struct kept *from = saved->events;
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned i = 0; i < saved->count[t]; i++) load_event(t, from++);
    graph.stamp = saved->stamp;
    /* Ranks have gaps: see graph_save. */
    for (unsigned i = 0; i < graph.locations; i++) {
        struct location *at = &graph.location[i];
        qsort(at->write, at->writes, sizeof at->write[0], by_rank);
        for (unsigned w = 0; w < at->writes; w++) event_of(at->write[w])->rank = (uint16_t)(w + 1);
    }
}
