/* search.c - candidates for reads, places for writes, and revisits. */
#include "search.h"

#include <stdlib.h>
#include <string.h>

static struct saved *pending;

static void put_aside(struct saved *saved) {
    saved->next = pending;
    pending = saved;
}

bool search_next(void) {
    struct saved *saved = pending;
    if (saved == NULL) return false;
    pending = saved->next;
    graph_load(saved);
    free(saved);
    return true;
}

void search_begin(void) {
    for (struct saved *saved; (saved = pending) != NULL; free(saved)) pending = saved->next;
    graph_clear();
}

struct event *search_add_fence(unsigned thread, int order) {
    return graph_append(thread, EVENT_FENCE, order, LOCATIONS);
}

struct event *search_add_read(unsigned thread, int order, unsigned location, enum awaits awaits, uint64_t wanted) {
    struct location *at = &graph.location[location];
    struct clock before = clock_before(thread);
    struct event *read = graph_append(thread, EVENT_READ, order, location);
    read->awaits = (uint8_t)awaits;
    read->wanted = wanted;
    read->from = latest_write(at);
    /* Of the older values one that it waits for is of use, and no other: nobody ever revisits a read of such. */
    for (unsigned rank = rank_seen(at, &before); rank < at->writes; rank++) {
        struct name write = rank == 0 ? NO_EVENT : at->write[rank - 1];
        if (!satisfies(read, value_of(at, write))) continue;
        struct saved *saved = graph_save(graph.count);
        saved_event(saved, read->self)->from = write;
        put_aside(saved);
    }
    return read;
}

/* ---- places of a write ------------------------------------------------------------------------------- */

static bool is_kept(const unsigned keep[THREADS], struct name name) { return is_init(name) || name.index < keep[name.thread]; }

/* Puts aside the graph of the events KEPT with WRITE next after the write of rank AFTER, and READ, if any, reading from
 * it. */
static void put_aside_placed(const unsigned keep[THREADS], const struct event *write, unsigned after,
                             const struct event *read) {
    struct saved *saved = graph_save(keep);
    saved_event(saved, write->self)->rank = (uint16_t)(2 * after + 1); /* ranks are doubled there */
    if (read != NULL) saved_event(saved, read->self)->from = write->self;
    put_aside(saved);
}

/* All places next after a kept write of rank LOWEST or more, but below HIGHEST. */
static void put_aside_places(const unsigned keep[THREADS], const struct event *write, unsigned lowest, unsigned highest,
                             const struct event *read) {
    const struct location *at = &graph.location[write->location];
    if (write->exclusive) {
        unsigned after = rank_of(write[-1].from);
        struct name taker = exclusive_after(at, write[-1].from);
        bool taken = !is_init(taker) && is_kept(keep, taker);
        if (!taken && after >= lowest && after < highest) put_aside_placed(keep, write, after, read);
        return;
    }
    for (unsigned after = lowest; after < highest; after++) {
        struct name before = after == 0 ? NO_EVENT : at->write[after - 1], taker = exclusive_after(at, before);
        bool taken = !is_init(taker) && is_kept(keep, taker);
        if (is_kept(keep, before) && !taken) put_aside_placed(keep, write, after, read);
    }
}

/* ---- revisits ---------------------------------------------------------------------------------------- */

/* What a revisit of READ by a write with CAUSES keeps. */
static void keep_for(const struct event *read, const struct event *write, const struct clock *causes,
                     unsigned keep[THREADS]) {
    for (unsigned t = 0; t < THREADS; t++) {
        keep[t] = causes->of[t];
        while (keep[t] < graph.count[t] && graph.events[t][keep[t]].stamp <= read->stamp) keep[t]++;
    }
    keep[write->self.thread] = write->self.index + 1u;
}

static bool comes_before(struct name name, const struct event *event, const struct clock *causes) {
    return is_init(name) || event_of(name)->stamp <= event->stamp || knows(causes, name);
}

/* Whether EVENT was chosen in the newest way, seen from what came before it and what the revisiting write depends on. */
static bool is_maximal(const struct event *event, const struct event *write, const struct clock *causes) {
    if (event->kind == EVENT_FENCE) return true;
    const struct location *at = &graph.location[event->location];
    for (unsigned i = 0; event->kind == EVENT_WRITE && i < at->reads; i++)
        if (same_name(event_of(at->read[i])->from, event->self) && comes_before(at->read[i], event, causes)) return false;
    struct name source = event->kind == EVENT_WRITE ? event->self : event->from;
    if (!comes_before(source, event, causes)) return false;
    for (unsigned i = rank_of(source); i < at->writes; i++)
        if (!same_name(at->write[i], write->self) && comes_before(at->write[i], event, causes)) return false;
    return true;
}

static bool all_maximal(const struct event *read, const struct event *write, const struct clock *causes,
                        const unsigned keep[THREADS]) {
    if (!is_maximal(read, write, causes)) return false;
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned i = keep[t]; i < graph.count[t]; i++)
            if (!is_maximal(&graph.events[t][i], write, causes)) return false;
    return true;
}

static bool is_waiting(const struct event *read) {
    return !satisfies(read, value_of(&graph.location[read->location], read->from));
}

static void revisit(const struct event *read, const struct event *write, const struct clock *causes, unsigned lowest) {
    const struct location *at = &graph.location[write->location];
    /* From one value that it cannot go on with to another such: nothing comes of it. */
    if (is_waiting(read) && !satisfies(read, write->value)) return;
    unsigned keep[THREADS];
    keep_for(read, write, causes, keep);
    if (!all_maximal(read, write, causes, keep)) return;
    struct clock before = read->self.index == 0 ? (struct clock){{0}} : read[-1].before;
    unsigned seen = rank_seen(at, &before);
    put_aside_places(keep, write, seen > lowest ? seen : lowest, at->writes + 1, read);
}

struct event *search_add_write(unsigned thread, int order, unsigned location, uint64_t value, bool exclusive) {
    struct location *at = &graph.location[location];
    struct clock before = clock_before(thread), causes = causes_before(thread);
    struct event *write = graph_append(thread, EVENT_WRITE, order, location);
    write->value = value;
    write->exclusive = exclusive;
    unsigned seen = rank_seen(at, &before), newest = at->writes;
    for (unsigned i = 0; i < at->reads; i++)
        if (!knows(&causes, at->read[i])) revisit(event_of(at->read[i]), write, &causes, seen);
    if (exclusive) {
        if (!is_init(exclusive_after(at, write[-1].from))) return NULL;
        newest = rank_of(write[-1].from);
    } else {
        put_aside_places(graph.count, write, seen, newest, NULL);
    }
    graph_place(write, newest + 1);
    return write;
}
