/* graph.h - execution graphs: what an execution is to the memory model.
 *
 * Events are the steps of the threads on shared locations: each thread's in program order; which write a read takes its
 * value from; and of each location the order of its writes (modification order). Of two graphs with the same
 * events and relations only one is ever run.
 *
 * The model is RC11 (Lahav et al., PLDI 2017) with the release sequences of C++20. It has no load buffering: program
 * order and reads-from together have no cycle. That is what lets graphs be built event by event. */
#ifndef EXPLORE_GRAPH_H
#define EXPLORE_GRAPH_H

#include "../explore.h"

enum { THREADS = EXPLORE_THREADS, EVENTS = 1500, LOCATIONS = 512 };

enum kind { EVENT_READ, EVENT_WRITE, EVENT_FENCE };

/* What a read must find for its thread to go on. */
enum awaits { AWAITS_NOTHING, AWAITS_EQUAL, AWAITS_AT_LEAST };

/* How many steps of each thread came before, in some sense. */
struct clock {
    uint16_t of[THREADS];
};

/* An event by its thread and its place there. NO_EVENT stands for the initial write of a location. */
struct name {
    int16_t thread;
    uint16_t index;
};
#define NO_EVENT ((struct name){-1, 0})

static inline bool same_name(struct name a, struct name b) { return a.thread == b.thread && a.index == b.index; }

struct event {
    uint8_t kind, order;
    bool exclusive; /* write: of the read-modify-write whose read comes just before */
    uint8_t awaits; /* read: an enum awaits, with WANTED */
    uint16_t location;
    uint16_t rank;  /* write: place in the modification order, from 1 */
    uint32_t stamp; /* when it was added */
    struct name self, from; /* read: the write */
    uint64_t value, wanted;
    uintptr_t code;       /* where */
    struct clock before;  /* happens-before, itself included */
    struct clock causes;  /* program order and reads-from, itself included */
    struct clock release; /* write: what an acquiring reader learns. fence, read: what the thread learned and may yet acquire */
};

struct location {
    uintptr_t address;
    unsigned bytes;
    uint64_t initial;
    unsigned writes, reads;
    struct name write[EVENTS / 4]; /* in modification order */
    struct name read[EVENTS / 2];
};

extern struct graph {
    unsigned count[THREADS];    /* events in the graph */
    unsigned executed[THREADS]; /* of these, run so far */
    struct event events[THREADS][EVENTS];
    unsigned locations;
    struct location location[LOCATIONS];
    uint32_t stamp; /* the last that was given */
    unsigned sc_events;
} graph;

static inline struct event *event_of(struct name name) { return &graph.events[name.thread][name.index]; }
static inline bool is_init(struct name name) { return name.thread < 0; }

/* Whether the event NAME is among those that CLOCK counts. */
static inline bool knows(const struct clock *clock, struct name name) {
    return is_init(name) || name.index < clock->of[name.thread];
}

static inline unsigned rank_of(struct name write) { return is_init(write) ? 0 : event_of(write)->rank; }
static inline uint64_t value_of(const struct location *location, struct name write) {
    return is_init(write) ? location->initial : event_of(write)->value;
}
static inline struct name latest_write(const struct location *location) {
    return location->writes == 0 ? NO_EVENT : location->write[location->writes - 1];
}

/* Whether the thread of READ may go on with VALUE. */
static inline bool satisfies(const struct event *read, uint64_t value) {
    return read->awaits == AWAITS_NOTHING || (read->awaits == AWAITS_EQUAL ? value == read->wanted : value >= read->wanted);
}

void clock_join(struct clock *into, const struct clock *other);

/* What THREAD knows after the events it has executed. */
struct clock clock_before(unsigned thread);
struct clock causes_before(unsigned thread);

/* The lowest rank that a thread which knows BEFORE may still read from, or which its own write must exceed. */
unsigned rank_seen(const struct location *location, const struct clock *before);

/* The write that takes its value, in one step, from WRITE; NO_EVENT when none does. */
struct name exclusive_after(const struct location *location, struct name write);

/* Adds an event at the end of THREAD. */
struct event *graph_append(unsigned thread, enum kind kind, int order, unsigned location);

/* Puts a write at RANK of its location, those from there on one higher. */
void graph_place(struct event *write, unsigned rank);

/* Settles what the event, the next of its thread, knows, and what others learn from it. */
void graph_execute(struct event *event);

/* Empties the graph. Locations stay. */
void graph_clear(void);

/* Whether the seq_cst axiom holds of the events in the graph (psc.c). */
bool graph_is_sc(void);

/* ---- graphs that wait to be run ------------------------------------------------------------------------- */

/* What must be kept of an event. */
struct kept {
    uint8_t kind, order;
    bool exclusive;
    uint8_t awaits;
    uint16_t location, rank;
    uint32_t stamp;
    struct name from;
    uint64_t wanted, value;
};

struct saved {
    struct saved *next;
    unsigned count[THREADS];
    uint32_t stamp;
    struct kept events[]; /* thread by thread */
};

/* The graph with the first KEEP[t] events of each thread. Ranks are doubled: so there is room between any two. */
struct saved *graph_save(const unsigned keep[THREADS]);

/* The event NAME in SAVED. */
struct kept *saved_event(struct saved *saved, struct name name);

/* Makes SAVED the graph, none of it executed. */
void graph_load(const struct saved *saved);

#endif
