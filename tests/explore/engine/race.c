/* race.c - for each word that was accessed, when each thread last read and wrote each of its bytes. */
#include "race.h"

#include "locks.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum { CELLS_LOG = 16, CELLS = 1 << CELLS_LOG, WORD = 8 };

/* Times are numbers of steps of the thread, plus one; 0: never. */
static struct cell {
    uintptr_t word;
    uint32_t execution;
    uint8_t users; /* threads */
    uint16_t time[ACCESSES][THREADS][WORD];
    uintptr_t code[ACCESSES][THREADS];
    uint64_t held[ACCESSES][THREADS]; /* locks that are not steps */
} *cells;
static uint32_t execution;
static unsigned used;

void race_forget(void) {
    if (cells == NULL) cells = calloc(CELLS, sizeof *cells);
    if (cells == NULL) abort();
    execution++;
    used = 0;
}

static struct cell *cell_of(uintptr_t word) {
    for (uintptr_t i = word * 0x9e3779b97f4a7c15u >> (64 - CELLS_LOG);; i++) {
        struct cell *cell = &cells[i % CELLS];
        if (cell->execution == execution && cell->word == word) return cell;
        if (cell->execution == execution) continue;
        if (++used > CELLS / 2) explore_fail("more than %d words in one execution", CELLS / 2);
        memset(cell, 0, sizeof *cell);
        cell->word = word;
        cell->execution = execution;
        return cell;
    }
}

static bool is_atomic(enum access access) { return access >= ACCESS_ATOMIC_READ; }
static bool is_write(enum access access) { return access == ACCESS_WRITE || access == ACCESS_ATOMIC_WRITE; }

static bool conflict(enum access a, enum access b) { return (is_write(a) || is_write(b)) && !(is_atomic(a) && is_atomic(b)); }

/* Against what OTHER did to the same bytes. */
static void check_other(const struct cell *cell, unsigned other, const struct clock *before, unsigned first, unsigned end,
                        enum access access, uintptr_t code) {
    for (enum access earlier = 0; earlier < ACCESSES; earlier++) {
        if (!conflict(access, earlier)) continue;
        for (unsigned byte = first; byte < end; byte++) {
            if (cell->time[earlier][other][byte] <= before->of[other]) continue;
            locks_blame(cell->held[earlier][other]);
            report_race(cell->word * WORD + byte, is_write(access), code, is_write(earlier), cell->code[earlier][other],
                        other);
        }
    }
}

static void check_word(unsigned thread, const struct clock *before, uintptr_t word, unsigned first, unsigned end,
                       enum access access, uintptr_t code) {
    struct cell *cell = cell_of(word);
    for (unsigned other = 0; other < THREADS; other++)
        if (other != thread && cell->users >> other & 1) check_other(cell, other, before, first, end, access, code);
    cell->users |= (uint8_t)(1u << thread);
    for (unsigned byte = first; byte < end; byte++) cell->time[access][thread][byte] = (uint16_t)(before->of[thread] + 1);
    cell->code[access][thread] = code;
    cell->held[access][thread] = locks_held();
}

void race_check(unsigned thread, const struct clock *before, uintptr_t address, size_t bytes, enum access access,
                uintptr_t code) {
    for (uintptr_t end = address + bytes; address < end;) {
        uintptr_t word = address / WORD, next = (word + 1) * WORD, stop = next < end ? next : end;
        check_word(thread, before, word, (unsigned)(address % WORD), (unsigned)(stop - word * WORD), access, code);
        address = stop;
    }
}
