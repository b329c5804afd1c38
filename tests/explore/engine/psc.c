/* psc.c - the axiom of RC11 for seq_cst: the partial order that accesses and fences of that order stand in has no cycle.
 *
 * Named as in the paper: psc is what must be acyclic, eco is the order that one location's values give its events. For
 * a fence, all that happens before or after it counts; an edge of happens-before from or to a fence is always one of psc. */
#include "graph.h"

enum { NODES = 256 };

static struct event *nodes[NODES];
static bool edge[NODES][NODES];

static bool happens_before(const struct event *a, const struct event *b) { return a != b && knows(&b->before, a->self); }

static bool is_fence(const struct event *event) { return event->kind == EVENT_FENCE; }

static bool same_location(const struct event *a, const struct event *b) {
    return !is_fence(a) && !is_fence(b) && a->location == b->location;
}

/* The rank of the write that the event is, or reads from. */
static unsigned rank_at(const struct event *event) {
    return event->kind == EVENT_WRITE ? event->rank : rank_of(event->from);
}

/* Of two events of one location: modification order, or from-read (co and fr). */
static bool overwritten_by(const struct event *a, const struct event *b) {
    return b->kind == EVENT_WRITE && rank_at(a) < b->rank;
}

/* The same with reads-from at its end, or alone. */
static bool eco(const struct event *a, const struct event *b) {
    if (b->kind == EVENT_WRITE) return overwritten_by(a, b);
    return a->kind == EVENT_WRITE ? a->rank <= rank_at(b) : rank_at(a) < rank_at(b);
}

/* Whether some step of a's thread after A, at another location, happens before a step of b's thread before B, at
 * another location than B. The first such and the last such decide. */
static bool ordered_beyond(const struct event *a, const struct event *b) {
    const struct event *after = a + 1, *before = b - 1;
    const struct event *end = &graph.events[a->self.thread][graph.executed[a->self.thread]];
    const struct event *start = graph.events[b->self.thread];
    while (after < end && same_location(after, a)) after++;
    while (before >= start && same_location(before, b)) before--;
    return after < end && before >= start && (after == before || happens_before(after, before));
}

static bool accesses_ordered(const struct event *a, const struct event *b) {
    if (a->self.thread == b->self.thread) return a->self.index < b->self.index;
    if (same_location(a, b) && (happens_before(a, b) || overwritten_by(a, b))) return true;
    return ordered_beyond(a, b);
}

static bool reaches(const struct event *node, const struct event *event) {
    return node == event || (is_fence(node) && happens_before(node, event));
}
static bool reached_by(const struct event *event, const struct event *node) {
    return node == event || (is_fence(node) && happens_before(event, node));
}

/* Whether a pair of events of one location orders X before Y, of which one is a fence. */
static bool pair_orders(const struct event *x, const struct event *y, const struct event *a, const struct event *b) {
    bool related = is_fence(x) && is_fence(y) ? eco(a, b) : overwritten_by(a, b);
    return a != b && related && reaches(x, a) && reached_by(b, y);
}

static struct event *event_at(const struct location *location, unsigned i) {
    return event_of(i < location->writes ? location->write[i] : location->read[i - location->writes]);
}

static bool location_orders(const struct location *location, const struct event *x, const struct event *y) {
    unsigned events = location->writes + location->reads;
    for (unsigned i = 0; i < events; i++) {
        if (!reaches(x, event_at(location, i))) continue;
        for (unsigned j = 0; j < events; j++)
            if (pair_orders(x, y, event_at(location, i), event_at(location, j))) return true;
    }
    return false;
}

static bool ordered(const struct event *x, const struct event *y) {
    if (!is_fence(x) && !is_fence(y)) return accesses_ordered(x, y);
    if (happens_before(x, y)) return true;
    if (happens_before(y, x)) return false; /* if it were, there would be a cycle in coherence */
    for (unsigned i = 0; i < graph.locations; i++)
        if (location_orders(&graph.location[i], x, y)) return true;
    return false;
}

static unsigned collect_nodes(unsigned *threads) {
    unsigned count = 0;
    *threads = 0;
    for (unsigned t = 0; t < THREADS; t++) {
        unsigned before = count;
        for (unsigned i = 0; i < graph.executed[t] && count < NODES; i++)
            if (graph.events[t][i].order == memory_order_seq_cst) nodes[count++] = &graph.events[t][i];
        *threads += count != before;
    }
    if (count == NODES) explore_fail("more than %d seq_cst events", NODES);
    return count;
}

/* Takes away, one after the other, nodes that nothing comes before. */
static bool is_acyclic(unsigned count) {
    static unsigned before[NODES];
    static bool gone[NODES];
    for (unsigned j = 0; j < count; j++) {
        gone[j] = false;
        before[j] = 0;
        for (unsigned i = 0; i < count; i++) before[j] += edge[i][j];
    }
    for (unsigned left = count; left > 0; left--) {
        unsigned next = 0;
        while (next < count && (gone[next] || before[next] != 0)) next++;
        if (next == count) return false;
        gone[next] = true;
        for (unsigned j = 0; j < count; j++) before[j] -= edge[next][j];
    }
    return true;
}

bool graph_is_sc(void) {
    unsigned threads, count = collect_nodes(&threads);
    if (threads < 2) return true;
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < count; j++) edge[i][j] = i != j && ordered(nodes[i], nodes[j]);
    return is_acyclic(count);
}
