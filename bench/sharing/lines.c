/* lines.c - the state of each cache line, and what it costs to have it.
 *
 * The protocol is MESI with a directory: no core has the line, or one core has written it and no other has it, or
 * some cores have copies. A read needs a copy, a write the only copy. Caches are unlimited: a line leaves a core only
 * because another writes it. */
#include "sharing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SET_WORDS = (CORES_ALL + 63) / 64, FIRST_LINES = 1 << 16, FIRST_PLACES = 1 << 10 };

struct line {
    uintptr_t number; /* 0: none */
    uint64_t copies[SET_WORDS];
    bool dirty; /* its only copy was written */
};

struct counts counts[ENTRIES], measured[ENTRIES];

static struct {
    struct line *table;
    size_t size, used;
    unsigned shift;
    unsigned cores;
    uint64_t node[PARTITIONS][CORES_ALL][SET_WORDS]; /* the cores of a core's node */
    const char *(*name)(uintptr_t address);
    bool measuring, naming;
} lines;

bool lines_is_naming(void) { return lines.naming; }

static struct {
    struct place *table;
    size_t size, used;
} places;

static void *zeroed(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (memory != NULL) return memory;
    fprintf(stderr, "sharing: out of memory\n");
    exit(2);
}

static size_t scatter(uintptr_t a, uintptr_t b) {
    uint64_t mixed = (a ^ b * UINT64_C(0x94d049bb133111eb)) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed ^ mixed >> 29);
}

/* ---- lines ---------------------------------------------------------------------------------------- */

static struct line *line_slot(struct line *table, size_t size, uintptr_t number) {
    size_t at = scatter(number, 0) & (size - 1);
    while (table[at].number != 0 && table[at].number != number) at = (at + 1) & (size - 1);
    return &table[at];
}

static void lines_grow(void) {
    size_t size = lines.size * 2;
    struct line *table = zeroed(size, sizeof *table);
    for (size_t i = 0; i < lines.size; i++)
        if (lines.table[i].number != 0) *line_slot(table, size, lines.table[i].number) = lines.table[i];
    free(lines.table);
    lines.table = table;
    lines.size = size;
}

static struct line *line_of(uintptr_t number) {
    struct line *line = line_slot(lines.table, lines.size, number);
    if (line->number != 0) return line;
    if (lines.used >= lines.size / 2) {
        lines_grow();
        line = line_slot(lines.table, lines.size, number);
    }
    lines.used++;
    line->number = number;
    return line;
}

static bool set_has(const uint64_t *set, unsigned core) { return (set[core / 64] >> core % 64 & 1) != 0; }
static void set_add(uint64_t *set, unsigned core) { set[core / 64] |= UINT64_C(1) << core % 64; }
static unsigned set_count(const uint64_t *set) {
    unsigned count = 0;
    for (unsigned i = 0; i < SET_WORDS; i++) count += (unsigned)__builtin_popcountll(set[i]);
    return count;
}
static bool set_meets(const uint64_t *a, const uint64_t *b) {
    for (unsigned i = 0; i < SET_WORDS; i++)
        if ((a[i] & b[i]) != 0) return true;
    return false;
}

void lines_open(unsigned line_bytes, unsigned cores, const char *(*name)(uintptr_t address)) {
    lines.size = FIRST_LINES;
    lines.table = zeroed(lines.size, sizeof *lines.table);
    places.size = FIRST_PLACES;
    places.table = zeroed(places.size, sizeof *places.table);
    lines.shift = (unsigned)__builtin_ctz(line_bytes);
    lines.cores = cores;
    lines.name = name;
    for (unsigned p = 0; p < PARTITIONS; p++) {
        unsigned nodes = 2u << p;
        for (unsigned core = 0; core < CORES_ALL; core++)
            for (unsigned other = 0; other < CORES_ALL; other++) {
                /* Threads of the allocator's own are on the first node. */
                unsigned of_core = core < cores ? core * nodes / cores : 0;
                unsigned of_other = other < cores ? other * nodes / cores : 0;
                if (of_core == of_other) set_add(lines.node[p][core], other);
            }
    }
}

/* ---- places --------------------------------------------------------------------------------------- */

static struct place *place_slot(struct place *table, size_t size, const struct place *like) {
    size_t at = scatter(like->code, (uintptr_t)like->object + like->address + like->entry) & (size - 1);
    while (table[at].code != 0 && (table[at].code != like->code || table[at].entry != like->entry ||
                                   table[at].object != like->object || table[at].address != like->address))
        at = (at + 1) & (size - 1);
    return &table[at];
}

static struct place *place_of(enum entry entry, uintptr_t address, uintptr_t code) {
    struct place like = {.entry = entry, .code = code};
    lines.naming = true;
    like.object = lines.name != NULL ? lines.name(address) : NULL;
    lines.naming = false;
    if (like.object == NULL) like.address = address & ~(uintptr_t)7;
    struct place *place = place_slot(places.table, places.size, &like);
    if (place->code != 0) return place;
    if (places.used >= places.size / 2) {
        struct place *table = zeroed(places.size * 2, sizeof *table);
        for (size_t i = 0; i < places.size; i++)
            if (places.table[i].code != 0) *place_slot(table, places.size * 2, &places.table[i]) = places.table[i];
        free(places.table);
        places.table = table;
        places.size *= 2;
        place = place_slot(places.table, places.size, &like);
    }
    places.used++;
    *place = like;
    return place;
}

void lines_visit(void (*visit)(const struct place *place, void *context), void *context) {
    for (size_t i = 0; i < places.size; i++)
        if (places.table[i].code != 0) visit(&places.table[i], context);
}

void lines_measure(void) {
    memset(counts, 0, sizeof counts);
    memset(places.table, 0, places.size * sizeof *places.table);
    places.used = 0;
    lines.measuring = true;
}

void lines_stop(void) {
    memcpy(measured, counts, sizeof measured);
    lines.measuring = false;
}

/* ---- accesses ------------------------------------------------------------------------------------- */

/* What the directory had to do. */
struct work {
    bool transfer, dirty, upgrade, cold;
    bool remote[PARTITIONS];
    unsigned invalidations;
};

static struct work line_get(struct line *line, unsigned core, bool write) {
    struct work work = {.transfer = false};
    bool here = set_has(line->copies, core);
    if (here && (!write || line->dirty)) return work;
    unsigned others = set_count(line->copies) - here;
    if (!here && others != 0) {
        work.transfer = true;
        work.dirty = line->dirty;
        for (unsigned p = 0; p < PARTITIONS; p++) work.remote[p] = !set_meets(line->copies, lines.node[p][core]);
    }
    work.cold = !here && others == 0;
    work.upgrade = here && others != 0; /* an only copy that is clean is written without telling the other cores */
    if (write) {
        work.invalidations = others;
        memset(line->copies, 0, sizeof line->copies);
    }
    line->dirty = write;
    set_add(line->copies, core);
    return work;
}

static void count(enum entry entry, uintptr_t address, uintptr_t code, struct work work, bool atomic) {
    struct counts *sum = &counts[entry];
    bool contended = atomic && (work.transfer || work.upgrade);
    sum->contended += contended;
    sum->cold += work.cold;
    if (!work.transfer && !work.upgrade) return;
    struct place *place = place_of(entry, address, code);
    sum->transfers += work.transfer, place->transfers += work.transfer;
    sum->dirty += work.dirty, place->dirty += work.dirty;
    sum->upgrades += work.upgrade, place->upgrades += work.upgrade;
    sum->invalidations += work.invalidations, place->invalidations += work.invalidations;
    place->contended += contended;
    for (unsigned p = 0; p < PARTITIONS; p++) sum->remote[p] += work.remote[p], place->remote[p] += work.remote[p];
}

void lines_access(unsigned core, enum entry entry, uintptr_t address, size_t bytes, enum access access,
                  uintptr_t code) {
    counts[entry].accesses++;
    counts[entry].atomics += access == ACCESS_ATOMIC;
    uintptr_t last = (address + (bytes != 0 ? bytes - 1 : 0)) >> lines.shift;
    for (uintptr_t number = address >> lines.shift; number <= last; number++) {
        struct work work = line_get(line_of(number), core, access != ACCESS_READ);
        uintptr_t start = number << lines.shift;
        if (lines.measuring) count(entry, start > address ? start : address, code, work, access == ACCESS_ATOMIC);
    }
}
