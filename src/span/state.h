/* state.h - what the files of this layer share. Guarded by the span lock, unless said otherwise. */
#ifndef HAK_SPAN_STATE_H
#define HAK_SPAN_STATE_H

#include "base/bits.h"
#include "os/os.h"
#include "span/span.h"

#define SPAN_COUNTER(name, ...) counter name;
struct span_counters {
    SPAN_COUNTS(SPAN_COUNTER)
};
#undef SPAN_COUNTER

struct span_state {
    struct os_lock lock;    /* a leaf: never held across a system call */
    struct os_lock purging; /* held while memory is returned to the kernel; taken before all other locks */
    struct span_settings settings;
    struct span_counters counts;
    counter end_page; /* the page after the last that the window ever gave; there may be gaps before it */
    counter held_pages_peak; /* the most that were in use, or free and dirty */
};
extern HAK_HIDDEN struct span_state spans;

/* Reports a decision. Span lock held. */
HAK_INLINE void span_tell(const struct ace_decision *decision) {
    if (spans.settings.keeper != NULL) spans.settings.keeper(decision);
}

/* The counts of spans of PAGES pages. */
HAK_INLINE struct span_size_counts *span_counts_of(uint32_t pages) { return &span_sizes[highest_bit(pages)]; }

/* ---- cut.c (span lock held) ------------------------------------------------------------------------- */

/* Inserts a run of free pages of one zone, DIRTY of them dirty, merged with the free spans on both sides. */
void span_insert(uint32_t first, uint32_t pages, uint32_t dirty);

/* Cuts PAGES pages at FIRST out of the free span at HEAD, which holds them, as a used span. */
void span_carve(uint32_t head, uint32_t first, uint32_t pages);

/* As span_carve, but RUN stays as it is, clean or dirty: nobody touches it. Not really in use: no limit and no peak counts it. */
void span_hold(uint32_t head, struct page_run run);

/* The used span at FIRST has PAGES pages from now on. */
void span_set_length(uint32_t first, uint32_t pages);

/* Ends the used span at FIRST after PAGES pages: what lies behind them is another. */
void span_split(uint32_t first, uint32_t pages);

/* Frees pages that are used, merged with the free spans around them. */
void span_free(uint32_t first, uint32_t pages);

/* Gives used pages up, in whatever state the kernel left them: they are never used again. */
void span_lose(uint32_t first, uint32_t pages);

/* ---- span.c --------------------------------------------------------------------------------------------- */

/* Frees the used span at FIRST, except LOST_PAGES pages of it at LOST, which are lost. Takes the span lock. */
void span_give_but(uint32_t first, uint32_t lost, uint32_t lost_pages);

/* RUN is fresh memory: counts it. Span lock held. */
void span_note_fresh(struct page_run run);

/* ---- purge.c ------------------------------------------------------------------------------------------- */

/* GROWTH pages that are not dirty are about to be taken for a long span: if more would be held than ever, some of the dirty ones are
 * returned, but not those of the free span at SPARED, which it will be cut from. Makes system calls: no lock held. */
void purge_before_peak(uint32_t spared, size_t growth);

/* Dirty pages were taken, and RETURNED pages that had been returned to the kernel: decay depends on both. */
void purge_note_taken(uint32_t returned);

/* ---- gaps.c: addresses that are returned to the kernel (span.h: span_make_gaps). ----------------------- */

/* As span_make_gaps, but all that is free from the page SPARED on stays. */
bool gaps_make(size_t pages, uint32_t spared);

/* Maps PAGES pages or more of a gap again, as fresh memory of ZONE for a request of FILL; false where there is none. The window's
 * lock is held. */
bool gaps_fill(size_t pages, enum span_zone zone, enum ace_fill fill);

/* ---- huge.c: advice about huge pages. Makes system calls: no lock held. ------------------------------ */

/* The zone that memory for a request of PAGES pages comes from. Span lock held. */
enum span_zone huge_zone_for(uint32_t pages, enum ace_fill fill);

/* Before a request of PAGES pages is served: looks at how much of what is in use the program touched, if that is due. */
void huge_look(uint32_t pages, enum ace_fill fill);

/* PAGES pages that may have huge pages were taken for a request of FILL, and are about to be touched for the first time. Span lock held. */
void huge_note_taken(uint32_t pages, enum ace_fill fill);

/* Whether it was looked at what the program touched in the chunk at PAGE, or in one behind it, or nobody looks any more. */
bool huge_was_seen(size_t page);

/* How many fresh pages, if they are to have huge pages, are added for a request of FILL that needs fewer. */
size_t huge_most_fresh(enum ace_fill fill);

/* Huge pages may be requested once FROM_PAGES are in use, and what was seen does not count any more. Span lock held. */
void huge_configure(uint64_t from_pages);

/* RUN is fresh: sets its zone, and advises the kernel accordingly. FILL: of what it is for. The window's lock is held. */
void huge_settle(struct page_run run, enum span_zone zone, enum ace_fill fill);

/* PAGES pages from FIRST are about to be returned to the kernel, perhaps with a part of a huge page: breaks what must
 * be broken and keeps the kernel from mending it. */
void huge_break(uint32_t first, uint32_t pages);

/* PAGES pages from FIRST were mapped afresh: gives the kernel the advice for them again. */
void huge_advise_again(uint32_t first, uint32_t pages);

/* Once some memory has huge pages: looks whether some that came before is worth one, if that is due (collapse.c). */
void huge_collapse_next(void);

/* In the child of a fork: what it shares with its parent, and would have to copy, is never collapsed. */
void huge_note_child(void);

/* RUN, whole chunks, was unmapped: it is a gap, and nothing is advised there. Span lock held. */
void huge_forget(struct page_run run);

/* PAGES pages from FIRST were just taken: asks for huge pages again in chunks of which nothing else is in use. */
void huge_mend(uint32_t first, uint32_t pages);

#endif
