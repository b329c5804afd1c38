/* state.h - what the files of this floor share. Guarded by the span lock, except where it is said. */
#ifndef HAK_SPAN_STATE_H
#define HAK_SPAN_STATE_H

#include "os/os.h"
#include "span/span.h"

#define SPAN_COUNTER(name, ...) counter name;
struct span_counters {
    SPAN_COUNTS(SPAN_COUNTER)
};
#undef SPAN_COUNTER

struct span_state {
    struct os_lock lock;    /* a leaf: never held across a system call */
    struct os_lock purging; /* whoever gives memory back; taken before all other locks */
    struct span_settings settings;
    struct span_counters counts;
    counter end_page; /* beyond the last page that the window ever gave; there may be gaps before it */
};
extern HAK_HIDDEN struct span_state spans;

/* Tells what was decided. Span lock held. */
HAK_INLINE void span_tell(const struct ace_decision *decision) {
    if (spans.settings.keeper != NULL) spans.settings.keeper(decision);
}

/* Cuts PAGES pages at FIRST out of the free span at HEAD, which holds them, as a used span. */
void span_carve(uint32_t head, uint32_t first, uint32_t pages);

/* Frees pages that are used, merged with the free spans around them. */
void span_free(uint32_t first, uint32_t pages);

/* Gives used pages up, whatever the kernel made of them: nobody uses them any more. */
void span_lose(uint32_t first, uint32_t pages);

/* Gives back the used span at FIRST but for LOST_PAGES pages of it at LOST, which are lost. Takes the span lock. */
void span_give_but(uint32_t first, uint32_t lost, uint32_t lost_pages);

/* Dirty pages were taken, and pages that had been given back: what decay goes by. */
void purge_note_taken(uint32_t returned);

/* ---- huge.c: advice about huge pages. Makes system calls: no lock held. ------------------------------ */

/* The zone that memory for a request of PAGES pages comes from. Span lock held. */
enum span_zone huge_zone_for(bool dense, uint32_t pages);

/* RUN is fresh: names its zone, which the kernel is told. */
void huge_settle(struct page_run run, enum span_zone zone);

/* Pages FIRST .. are about to be given back, and perhaps a part of a huge page with them: breaks what must be broken
 * and keeps the kernel from mending it. */
void huge_break(uint32_t first, uint32_t pages);

/* Pages FIRST .. were mapped afresh: tells the kernel again what is wanted there. */
void huge_advise_again(uint32_t first, uint32_t pages);

/* Pages FIRST .. were just taken: in chunks of which nothing else is in use huge pages are asked for again. */
void huge_mend(uint32_t first, uint32_t pages);

#endif
