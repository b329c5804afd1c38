/* gaps.c - free runs of pages whose addresses are returned to the kernel, too: a limit of addresses or of data counts what is
 * mapped, whether there is memory behind it or not.
 *
 * When the kernel refuses memory, whole chunks of the longest free runs are unmapped, as many as are asked for. They are not given to this
 * layer any more, and make gaps of the window: free spans of a zone of their own, which merge with each other, and from which nothing
 * is taken. When memory is brought later, a gap that is long enough is mapped again, unless something else lies there by then: it
 * is lost.
 *
 * While the kernel works on a run it is held, as a used span, so no thread takes or merges it. What is unmapped is not purged at the
 * same time: that takes the purging lock. */
#include "base/bits.h"
#include "span/bins.h"
#include "span/pages.h"
#include "span/state.h"

enum {
    FILLED_PAGES = HAK_MIB(16) / PAGE_BYTES, /* at least, where a gap has them: few calls, few mappings */
    PAGES_PER_RECORD_PAGE = 512,             /* pages whose records take less than a page */
};

/* By all calls, but for those that were lost: fresh_pages counts what comes again anew. Written under the span lock. */
static counter unmapped_pages;

/* ---- while the kernel works (span lock held) -------------------------------------------------------- */

/* Frees a run that was held, in the zone that its chunks have by now. */
static void release(struct page_run run) {
    counter_add(&spans.counts.used_pages, run.pages);
    span_free((uint32_t)run.first, (uint32_t)run.pages);
}

/* ---- unmapping (purging lock held) ------------------------------------------------------------------ */

static struct page_run chunks_at(uint32_t head) { return whole_chunks((struct page_run){head, span_at(head)->pages}); }

static uint32_t spared_from; /* the page from which on nothing is unmapped */

static bool has_chunks(uint32_t head) { return head < spared_from && chunks_at(head).pages != 0; }

/* Unmaps whole chunks of one of the longest free runs, MOST pages at most; returns how many, 0 when there are none or the kernel
 * has no room for one mapping more. */
static size_t unmap_one(size_t most) {
    span_lock();
    const uint32_t head = bins_find_longest(has_chunks);
    struct page_run run = head != 0 ? chunks_at(head) : (struct page_run){0, 0};
    run.pages = min_size(run.pages, most);
    if (run.pages != 0) span_hold(head, run);
    span_unlock();
    if (run.pages == 0) return 0;
    const bool done = os_unmap(page_address(run.first), run.pages * PAGE_BYTES);
    span_lock();
    if (done) {
        purge_note_taken(0); /* what was dirty there is gone */
        pages_forget_returned((uint32_t)run.first, (uint32_t)run.pages);
        pages_mark_zero((uint32_t)run.first, (uint32_t)run.pages);
        pages_mark_moved((uint32_t)run.first, (uint32_t)run.pages, false);
        huge_forget(run);
        counter_add(&unmapped_pages, run.pages);
    }
    release(run);
    span_unlock();
    return done ? run.pages : 0;
}

/* Whether there would be PAGES pages if all that is free were unmapped, but for what is spared. */
static bool would_do(size_t pages) {
    span_lock();
    const struct span_counters *counts = &spans.counts;
    const size_t all = counter_read(&counts->fresh_pages) - counter_read(&unmapped_pages), end = counter_read(&spans.end_page);
    const size_t spared_pages = end - min_size(end, spared_from), taken_pages = counter_read(&counts->used_pages) + counter_read(&counts->lost_pages);
    const size_t free_pages = all - min_size(all, taken_pages + spared_pages);
    span_unlock();
    if (free_pages >= pages) return true;
    const size_t rest_bytes = (pages - free_pages) * PAGE_BYTES;
    void *rest = os_map(rest_bytes, os_page_bytes());
    if (rest != NULL) os_unmap(rest, rest_bytes);
    return rest != NULL;
}

bool gaps_make(size_t pages, uint32_t spared) {
    if (os_refusal.error == 0) return false; /* the window is used up */
    size_t left = round_up(pages + pages / PAGES_PER_RECORD_PAGE, CHUNK_PAGES) + CHUNK_PAGES;
    bool any = false;
    span_purging_lock();
    spared_from = spared;
    if (would_do(left))
        for (size_t done; left != 0 && (done = unmap_one(left)) != 0; left -= done) any = true;
    span_purging_unlock();
    return any;
}

bool span_make_gaps(size_t pages) { return gaps_make(pages, UINT32_MAX); }

/* ---- mapping again ---------------------------------------------------------------------------------- */

/* A gap of at least PAGES pages, or its beginning of MOST pages, held; PAGES is 0 where there is none. */
static struct page_run hold_gap(size_t pages, size_t most) {
    span_lock();
    const uint32_t head = bins_find_gap((uint32_t)pages);
    struct page_run run = {head, 0};
    if (head != 0) {
        run.pages = min_size(span_at(head)->pages, most);
        span_hold(head, run);
    }
    span_unlock();
    return run;
}

static void lose(struct page_run run) {
    counter_sub(&unmapped_pages, run.pages); /* lost_pages counts them from now on */
    counter_add(&spans.counts.used_pages, run.pages);
    span_lose((uint32_t)run.first, (uint32_t)run.pages);
}

/* Fills one gap of at least PAGES pages, MOST at most; false where there is none, something lies there, or the kernel refuses. No refusal
 * is remembered before. */
static bool fill_one(size_t pages, size_t most, enum span_zone zone, enum ace_fill fill) {
    const struct page_run run = hold_gap(pages, most);
    if (run.pages == 0) return false;
    void *start = page_address(run.first);
    const bool mapped = os_map_at(start, run.pages * PAGE_BYTES), taken = !mapped && os_refusal.error == 0;
    if (mapped) {
        os_name(start, run.pages * PAGE_BYTES, OS_NAME_BLOCKS);
        huge_settle(run, zone, fill);
    }
    span_lock();
    if (taken) lose(run);
    if (mapped) {
        /* The kernel need not merge it with its neighbours. */
        pages_mark_moved((uint32_t)run.first, (uint32_t)run.pages, true);
        span_note_fresh(run);
    }
    if (!taken) release(run);
    span_unlock();
    return mapped;
}

bool gaps_fill(size_t pages, enum span_zone zone, enum ace_fill fill) {
    if (HAK_LIKELY(counter_read(&unmapped_pages) == 0)) return false;
    const size_t least = round_up(pages, CHUNK_PAGES), usual = max_size(least, FILLED_PAGES);
    if (fill_one(pages, usual, zone, fill)) return true;
    const struct os_refusal refusal = os_refusal;
    if (least == usual || refusal.error == 0) return false;
    os_refusal_forget();
    if (fill_one(pages, least, zone, fill)) return true; /* a limit that refuses so much may let through what is needed */
    os_refusal = refusal;
    return false;
}
