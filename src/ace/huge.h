/* huge.h - when huge pages are requested. One byte may fault in 2 MiB, which is a small share only if much memory is in use. Nobody knows
 * how much of a new block will be touched, so one that is much larger than all else gets none; but a block that grows was filled so
 * far, and a slab of small blocks is sure to be touched once its blocks are taken. Pure functions; any thread. */
#ifndef HAK_ACE_HUGE_H
#define HAK_ACE_HUGE_H

#include "ace/objective.h"

#include <stdbool.h>

/* What will be touched of memory about to be taken. */
enum ace_fill {
    ACE_SPARSE, /* perhaps next to nothing */
    ACE_DENSE,  /* all of it, if the program touches what it takes */
    ACE_FULL,   /* all of it: it is cut into blocks that are as short as the kernel's pages, or hardly longer */
    ACE_GROWN,  /* as dense, for a block in use that grows, with a reserve that is touched later */
};

struct ace_huge_input {
    uint64_t used_pages; /* in use */
    uint64_t pages;      /* about to be taken */
    uint64_t from_pages; /* pages in use from which on huge pages are requested, or from half of it where FILL is ACE_FULL:
                          * ace_huge_from_bytes, or an option; 0: always */
    enum ace_fill fill;  /* of those about to be taken */
};

/* The same as FROM_PAGES of slabs that fill. */
static inline uint64_t ace_huge_full_from(uint64_t from_pages) { return from_pages / 2; }

static inline bool ace_huge_admits(struct ace_huge_input input) {
    const uint64_t from_pages = input.fill == ACE_FULL ? ace_huge_full_from(input.from_pages) : input.from_pages;
    const bool enough = input.used_pages + input.pages >= from_pages;
    const bool suits = input.fill == ACE_GROWN || from_pages == 0 || input.pages <= 2 * input.used_pages;
    return input.fill != ACE_SPARSE && enough && suits;
}

/* Whether so much of what is in use is resident that huge pages cost little memory. */
static inline bool ace_huge_mends(uint64_t resident_bytes, uint64_t bytes) { return bytes - resident_bytes <= bytes / 16; }

/* A part of memory as long as a huge page, all of it in use. */
struct ace_collapse_input {
    uint64_t used_bytes;    /* in use, in all */
    uint64_t brought_bytes; /* that were never touched, and became resident because their parts were collapsed */
    uint64_t bytes;         /* of the part; and how many of these are not resident */
    uint64_t missing_bytes;
    enum ace_objective objective;
};

/* Whether it is worth a huge page: half of it is resident, and the rest, with what came so before, is a small part of what
 * is in use. Where there is no rest it costs nothing, however much came before. */
bool ace_huge_collapses(struct ace_collapse_input input);

uint64_t ace_huge_from_bytes(enum ace_objective objective);

/* How many of USED_BYTES must have been touched: otherwise huge pages would fault in memory that is not used. */
uint64_t ace_huge_touched_least(uint64_t used_bytes, enum ace_objective objective);

/* How many bytes more may have huge pages until it is looked again, where TOUCHED_BYTES of USED_BYTES were touched: if these are not nearly
 * all, a quarter of them, so that no more than that is faulted in for nothing. UINT64_MAX: any number, as for speed. */
uint64_t ace_huge_most(uint64_t used_bytes, uint64_t touched_bytes, enum ace_objective objective);

#endif
