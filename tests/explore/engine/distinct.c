/* distinct.c - a set of hashes of graphs, of 64 bits each. */
#include "distinct.h"

#include <stdlib.h>
#include <string.h>

static uint64_t *table;
static size_t room, count;

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Of what makes one graph another: for each event its location, its source and its place. */
static uint64_t hash_graph(void) {
    uint64_t hash = 1;
    for (unsigned t = 0; t < THREADS; t++) {
        hash = mix(hash, graph.count[t]);
        for (unsigned i = 0; i < graph.count[t]; i++) {
            const struct event *event = &graph.events[t][i];
            uint64_t from = event->kind == EVENT_READ ? (uint64_t)(event->from.thread + 1) << 16 | event->from.index : event->rank;
            hash = mix(hash, from << 20 | (uint64_t)event->location << 4 | event->kind);
        }
    }
    return hash | 1; /* 0 is an empty place */
}

static bool insert(uint64_t hash) {
    size_t i = hash >> 8 & (room - 1);
    for (; table[i] != 0; i = (i + 1) & (room - 1))
        if (table[i] == hash) return false;
    table[i] = hash;
    count++;
    return true;
}

static void grow(void) {
    uint64_t *old = table;
    size_t old_room = room;
    room = room == 0 ? 1024 : 2 * room;
    table = calloc(room, sizeof *table);
    if (table == NULL) abort();
    count = 0;
    for (size_t i = 0; i < old_room; i++)
        if (old[i] != 0) insert(old[i]);
    free(old);
}

bool distinct_add(void) {
    if (2 * count >= room) grow();
    return insert(hash_graph());
}

void distinct_forget(void) {
    free(table);
    table = NULL;
    room = count = 0;
}
