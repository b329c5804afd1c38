/* span.h - runs of 64 KiB pages: taken, freed, merged with their neighbours, lengthened, moved, and returned to the
 * kernel when they stay free for a while.
 *
 * Each page that was given to this layer belongs to exactly one span, used, free or lost. The records of a span's
 * first and last page say so; records between them may be stale. Free spans are in bins by length.
 *
 * All of it is guarded by one lock, a leaf: it is never held across a system call, and nothing else is taken under
 * it. A thread that returns memory to the kernel holds another, the purging lock, which comes before all locks of
 * this and the higher layers: it is held across the system calls. "Any locks": the caller may hold locks of higher
 * layers. */
#ifndef HAK_SPAN_SPAN_H
#define HAK_SPAN_SPAN_H

#include "ace/decision.h"
#include "ace/huge.h"
#include "ace/objective.h"
#include "base/counter.h"
#include "region/window.h"

/* What the record of a span's first or last page says of it. */
enum span_kind {
    SPAN_NONE,      /* never given to this layer */
    SPAN_FREE,      /* first page of a free span */
    SPAN_FREE_LAST, /* last page of a free span of several pages; head is its first */
    SPAN_USED,
    SPAN_LOST, /* given up: what is mapped there is unknown */
};

/* The part of a page's record that this layer knows. The slab layer continues it. While a span is used, kind and
 * pages are guarded by the span lock, because neighbours look at them; the rest is its user's. */
struct span {
    uint8_t kind;
    uint8_t class; /* of a slab's blocks; written by the slab layer, like head in slabs */
    uint8_t bin;   /* of a free span */
    uint8_t zero;  /* a span just taken reads as zero; the slab layer keeps it up to date */
    uint32_t pages;
    uint32_t head;
    uint32_t prev; /* list links are page indexes; 0 ends a list */
    uint32_t next;
    uint32_t dirty; /* pages of a free span that could be returned to the kernel */
};

HAK_INLINE struct span *span_at(size_t page) { return page_span(page); }

/* Where huge pages are asked for: huge.c. What was unmapped is of neither zone: gaps.c. */
enum span_zone { ZONE_PLAIN, ZONE_HUGE, ZONES, ZONE_GAP = ZONES };

struct span_settings {
    uint64_t decay_half_life_ms; /* 0: return immediately; ACE_NEVER: keep */
    uint64_t huge_from_pages;    /* ask for huge pages once this many pages are in use; UINT64_MAX: never */
    uint64_t soft_pages;         /* soft limit: span_is_over_soft; 0: none */
    uint64_t hard_pages;         /* hard limit, the last pages below it for small spans alone; 0: none */
    enum ace_objective objective;
    bool fixed;                  /* the half-life stays as it is set, and does not follow the program */
    ace_keeper *keeper;          /* receives decisions; may be NULL */
};

/* Only spans of up to SPAN_SMALL_PAGES may have the last SPAN_RESERVE_PAGES below the hard limit, or its last eighth
 * if that is less: small requests must work for a program to notice that larger blocks are refused, and to free some. */
enum { SPAN_SMALL_PAGES = 8, SPAN_RESERVE_PAGES = 64 };

/* At start, and whenever the settings change. */
void span_configure(const struct span_settings *settings);

/* Where a span may start: AT_PAGES behind an address aligned to ALIGN_PAGES pages, a power of two above AT_PAGES. */
struct span_start {
    size_t align_pages, at_pages;
};

/* A used span of PAGES pages that starts as START says. FILL says whether huge pages suit it. Returns its first page, or 0 when there is
 * no memory. May make system calls: call it without locks. */
uint32_t span_take_at(size_t pages, struct span_start start, enum ace_fill fill);

HAK_INLINE uint32_t span_take(size_t pages, size_t align_pages, enum ace_fill fill) {
    return span_take_at(pages, (struct span_start){align_pages, 0}, fill);
}

/* Called by span_take before it takes pages that are not dirty, which the kernel would have to fault in: a layer that
 * keeps spans may free some. No lock held; once per take. */
typedef void span_spare(size_t pages);
void span_on_growth(span_spare *spare);

/* The same, once that would make it hold more than HELD_BYTES, in use or dirty; by span_extend, too. In place of what was said
 * before. */
void span_on_growth_beyond(uint64_t held_bytes, span_spare *note);

/* What limits count: used spans, and blocks outside the window. Any locks. */
uint64_t span_in_use_bytes(void);

/* That and free dirty memory. Any locks. */
uint64_t span_held_bytes(void);

/* Whether PAGES more may be in use. Any locks; a hint. */
bool span_is_allowed(size_t pages);

/* Whether there is a hard or a soft limit. Any locks. */
bool span_is_limited(void);

/* The most that may be in use, in bytes: the hard limit, or the window. Any locks. */
uint64_t span_limit_bytes(void);

/* Whether more is in use than the soft limit; and the limit in bytes, 0 when there is none. Any locks; a hint. */
bool span_is_over_soft(void);
uint64_t span_soft_bytes(void);

/* Frees the used span that starts at FIRST. No system calls: may be called under a heap's lock. */
void span_give(uint32_t first);

/* Lengthens the used span at FIRST to PAGES pages, no fewer than it has, into a free neighbour or fresh memory behind it; false if that is
 * impossible. May make system calls. */
bool span_extend(uint32_t first, size_t pages);

/* Shortens the used span at FIRST to PAGES pages, at least one. */
void span_trim(uint32_t first, size_t pages);

/* Moves the contents of the first HELD pages of the span at FROM to a new span of PAGES pages, and frees the old one. Whole chunks go
 * with their page tables if they are whole there, too, as those of a long span are, and the rest is copied. Where the kernel moves
 * nothing all is copied; of many pages each piece is returned to it before the next, so that there is never twice as much. Returns the
 * new span; 0 when there is no memory, and the old one stays; the addresses that the kernel failed to move to are lost. Makes system
 * calls. */
uint32_t span_move(uint32_t from, size_t held, size_t pages);

/* The kernel has just refused this thread mappings of PAGES pages, for blocks or for metadata: unmaps as much of what is free, the longest
 * runs first, and returns whether it is worth asking again. No lock held; makes system calls. */
bool span_make_gaps(size_t pages);

/* ---- returning memory to the kernel (purge.c). The purging lock is held, and no other. ------------------- */

bool span_purging_try(void);
void span_purging_lock(void);
void span_purging_unlock(void);
void span_purging_reset(void); /* in the child of a fork */

/* While the program works, pages that it was seen to use again decay more slowly, and huge pages are returned whole
 * or not at all. */
enum span_pace { SPAN_PACE_WORK, SPAN_PACE_IDLE };

struct span_purged {
    uint64_t tried_pages; /* returned to the kernel, or refused by it: these are not tried again */
    uint64_t given_pages;
};

/* Returns to the kernel what has been free for long enough, about MOST_PAGES at most; *MORE: others are due. */
struct span_purged span_decay(enum span_pace pace, uint64_t most_pages, bool *more);

/* How long after a span_decay the next is due at the earliest: a share of the half-life. Any locks. */
uint64_t span_decay_tick_ms(void);

/* Resets the half-life to the configured one, whatever was learned. */
void span_decay_forget(void);

/* Returns to the kernel what is free, about MOST_PAGES at most; if fewer were tried, that was all. */
struct span_purged span_purge(uint64_t most_pages);

/* Returns BYTES bytes at ADDRESS to the kernel, whole kernel pages of one used span. True when they now read as zero. */
bool span_purge_part(void *address, size_t bytes);

/* Asks for huge pages again in the chunk that begins with PAGE, which was given to this layer, if all of it is in use
 * and nearly all resident. */
void span_mend(uint32_t page);

/* Whether a huge page may back PAGE. Any locks. */
bool span_may_be_huge(uint32_t page);

/* Dirty pages that are left for decay. Any locks. */
uint64_t span_dirty_left(void);

/* The page after the last that this layer was ever given: the words and records below it can be read. Any locks. */
size_t span_end_page(void);

/* What is counted, in pages and spans unless the name says otherwise. X(NAME, KIND, TEXT): a gauge is the present
 * value, a counter only grows. */
#define SPAN_COUNTS(X)                                                                                        \
    X(used_pages, GAUGE, "pages of spans in use")                                                             \
    X(used_pages_peak, GAUGE, "the most that were in use at once")                                            \
    X(lost_pages, GAUGE, "pages given up: the kernel failed as it moved them, or took them back")             \
    X(dirty_pages, GAUGE, "free pages that were not given back")                                              \
    X(fresh_pages, COUNTER, "pages asked of the window")                                                      \
    X(huge_pages, COUNTER, "of these, with huge pages")                                                       \
    X(taken, COUNTER, "spans taken")                                                                          \
    X(given, COUNTER, "spans given back")                                                                     \
    X(returned_pages, COUNTER, "free pages given back to the kernel")                                         \
    X(retaken_pages, COUNTER, "of these, pages that were used again: each costs faults")                      \
    X(part_bytes, COUNTER, "bytes given back inside used spans")                                              \
    X(moves, COUNTER, "spans moved by their page tables")                                                     \
    X(copies, COUNTER, "spans moved by copying")                                                              \
    X(half_life_ms, GAUGE, "half-life of free memory, milliseconds; the largest number: never")

#define SPAN_COUNT_FIELD(name, ...) uint64_t name;
struct span_counts {
    SPAN_COUNTS(SPAN_COUNT_FIELD)
};
#undef SPAN_COUNT_FIELD
/* Any locks: no lock is taken. */
void span_counts_read(struct span_counts *counts);

/* Used spans of 2^N to 2^(N+1) - 1 pages, slabs included. */
enum { SPAN_SIZES = 32 };
struct span_size_counts {
    counter live, taken; /* taken: since the start */
};
extern HAK_HIDDEN struct span_size_counts span_sizes[SPAN_SIZES];

/* Sets the peak to what is in use now. */
void span_reset_peak(void);

/* For fork: no span changes between the two. The window's lock is taken before. */
void span_lock(void);
void span_unlock(void);
void span_lock_reset(void);

#endif
