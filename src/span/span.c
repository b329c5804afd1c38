/* span.c - taking, freeing, lengthening and shortening spans. */
#include "span/span.h"

#include "ace/decay.h"
#include "base/bits.h"
#include "os/assert.h"
#include "region/outside.h"
#include "span/bins.h"
#include "span/pages.h"
#include "span/state.h"

struct span_state spans = {
    .settings = {.decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX},
    .counts = {.half_life_ms = ACE_NEVER},
};

/* Of the settings, and read without the lock. On a cache line of its own: seldom written, and read by slow paths of all threads. */
static struct {
    HAK_ALIGNED(HAK_CACHE_LINE) counter soft_pages;
    counter hard_pages;
} limits;

void span_lock(void) { os_lock_take(&spans.lock); }
void span_unlock(void) { os_lock_drop(&spans.lock); }
void span_lock_reset(void) { os_lock_reset(&spans.lock); }

void span_configure(const struct span_settings *settings) {
    span_lock();
    /* The learned half-life stays if only other options changed. */
    if (settings->decay_half_life_ms != spans.settings.decay_half_life_ms)
        counter_set(&spans.counts.half_life_ms, settings->decay_half_life_ms);
    if (settings->huge_from_pages != spans.settings.huge_from_pages) huge_configure(settings->huge_from_pages);
    spans.settings = *settings;
    counter_set(&limits.soft_pages, settings->soft_pages);
    counter_set(&limits.hard_pages, settings->hard_pages);
    span_unlock();
}

void span_counts_read(struct span_counts *counts) {
#define READ(name, ...) counts->name = counter_read(&spans.counts.name);
    SPAN_COUNTS(READ)
#undef READ
}

void span_reset_peak(void) {
    span_lock();
    counter_set(&spans.counts.used_pages_peak, counter_read(&spans.counts.used_pages));
    span_unlock();
}

struct span_size_counts span_sizes[SPAN_SIZES];

size_t span_end_page(void) { return atomic_load_explicit(&spans.end_page, memory_order_acquire); } /* see span_note_fresh */

/* ---- limits ----------------------------------------------------------------------------------------- */

static uint64_t in_use_pages(void) {
    return counter_read(&spans.counts.used_pages) + (counter_read(&outside_totals.bytes) + PAGE_BYTES - 1) / PAGE_BYTES;
}

uint64_t span_in_use_bytes(void) { return in_use_pages() * PAGE_BYTES; }

static uint64_t held_pages(void) { return in_use_pages() + counter_read(&spans.counts.dirty_pages); }

uint64_t span_held_bytes(void) { return held_pages() * PAGE_BYTES; }

/* Lock held. */
static bool is_allowed(size_t pages) {
    uint64_t hard = spans.settings.hard_pages;
    if (HAK_LIKELY(hard == 0)) return true;
    uint64_t reserve = pages <= SPAN_SMALL_PAGES ? 0 : min_size(SPAN_RESERVE_PAGES, hard / 8);
    return in_use_pages() + pages <= hard - reserve;
}

bool span_is_allowed(size_t pages) {
    span_lock();
    bool allowed = is_allowed(pages);
    span_unlock();
    return allowed;
}

bool span_is_limited(void) { return counter_read(&limits.hard_pages) != 0 || counter_read(&limits.soft_pages) != 0; }

uint64_t span_limit_bytes(void) {
    const uint64_t hard = counter_read(&limits.hard_pages);
    return (hard != 0 ? hard : window.pages) * PAGE_BYTES;
}

bool span_is_over_soft(void) {
    uint64_t soft = counter_read(&limits.soft_pages);
    return HAK_UNLIKELY(soft != 0) && in_use_pages() > soft;
}

uint64_t span_soft_bytes(void) { return counter_read(&limits.soft_pages) * PAGE_BYTES; }

/* ---- taking and giving ---------------------------------------------------------------------------- */

static void note_peak(void) {
    counter_raise(&spans.counts.used_pages_peak, counter_read(&spans.counts.used_pages));
    counter_raise(&spans.held_pages_peak, held_pages());
}

/* Where a span could begin: in the free one at HEAD; 0: nowhere. */
struct place {
    uint32_t head, first;
};

static struct place find_place(size_t pages, struct span_start start, enum span_zone zone) {
    const uint32_t head = is_allowed(pages) ? bins_find((uint32_t)pages, start, zone) : 0;
    return (struct place){head, (uint32_t)bins_start_from(head, start)};
}

/* How many of the PAGES pages there are not dirty. */
static size_t growth_at(struct place place, size_t pages) {
    if (place.head == 0) return pages;
    const struct span *span = span_at(place.head);
    return span->dirty == span->pages ? 0 : pages - pages_count_dirty(place.first, (uint32_t)pages);
}

static uint32_t take_at(struct place place, size_t pages) {
    if (place.head == 0) return 0;
    span_carve(place.head, place.first, (uint32_t)pages);
    counter_add(&spans.counts.taken, 1);
    counter_add(&span_counts_of((uint32_t)pages)->taken, 1);
    counter_add(&span_counts_of((uint32_t)pages)->live, 1);
    note_peak();
    return place.first;
}

/* Clean memory of the other zone is better than none. */
static uint32_t take_of_any_zone(size_t pages, struct span_start start) {
    span_lock();
    uint32_t first = take_at(find_place(pages, start, ZONE_PLAIN), pages);
    if (first == 0) first = take_at(find_place(pages, start, ZONE_HUGE), pages);
    span_unlock();
    return first;
}

static uint64_t brought_pages(void) { return counter_read(&spans.counts.fresh_pages); }

void span_note_fresh(struct page_run run) {
    counter_add(&spans.counts.fresh_pages, run.pages);
    for (size_t page = run.first; page < run.first + run.pages; page += CHUNK_PAGES) page_chunk(page)->given = true;
    const uint64_t end = run.first + run.pages;
    /* release, with acquire in span_end_page: what is below can be looked at without a lock. */
    if (end > counter_read(&spans.end_page)) atomic_store_explicit(&spans.end_page, end, memory_order_release);
}

/* What is to be added. AT_END: not from a gap. */
struct fresh {
    size_t pages;
    enum span_zone zone;
    enum ace_fill fill;
    bool at_end;
};

/* Fresh memory from the window, whose lock is held; false when there is none. */
static bool bring(struct fresh fresh) {
    os_refusal_forget(); /* of others: span_make_gaps asks whether the kernel refused this */
    if (!fresh.at_end && gaps_fill(fresh.pages, fresh.zone, fresh.fill)) return true;
    struct page_run run = window_extend(fresh.pages, fresh.zone == ZONE_HUGE ? huge_most_fresh(fresh.fill) : SIZE_MAX);
    if (run.pages == 0) return false;
    huge_settle(run, fresh.zone, fresh.fill);
    span_lock();
    span_note_fresh(run);
    span_insert((uint32_t)run.first, (uint32_t)run.pages, 0);
    span_unlock();
    return true;
}

/* Adds fresh memory when the ROUND-th round found no span, unless another thread has added some since SEEN pages had
 * been. Threads that lack memory at the same time would otherwise all add some, each a quarter more than the one
 * before. But a thread that finds again and again that what others added is too short, or gone, adds its own. False
 * when there is none. No lock held. */
static bool add_fresh(struct fresh fresh, uint64_t seen, unsigned round) {
    enum { ROUNDS_FOR_OTHERS = 4 };
    window_lock();
    const bool others = round < ROUNDS_FOR_OTHERS && brought_pages() != seen, added = others || bring(fresh);
    window_unlock();
    return added;
}

static struct {
    counter from_pages; /* the most that may be held unnoticed */
    _Atomic(span_spare *) note;
} noted = {.from_pages = UINT64_MAX};

/* relaxed, here and below: which of two marks a thread sees that grows meanwhile does not matter. */
void span_on_growth_beyond(uint64_t held_bytes, span_spare *note) {
    atomic_store_explicit(&noted.note, note, memory_order_relaxed);
    counter_set(&noted.from_pages, held_bytes / PAGE_BYTES);
}

static void note_growth(size_t pages) {
    if (HAK_LIKELY(held_pages() + pages <= counter_read(&noted.from_pages))) return;
    span_spare *note = atomic_load_explicit(&noted.note, memory_order_relaxed);
    if (note != NULL) note(pages);
}

/* Whether neither note_growth nor make_room_after would do anything for PAGES pages. */
static bool is_unnoticed(size_t pages) {
    return held_pages() + pages <= counter_read(&noted.from_pages) && counter_read(&limits.hard_pages) == 0;
}

/* Free dirty memory counts against a hard limit, too: what is beyond is returned to the kernel after GROWTH pages that were not dirty were
 * taken, before anybody touches them. Not before they are taken: of what is dirty they may be a part. Not much more than these at a time:
 * where a limit was set below what is held already, the takes share the work. No lock held. */
static void make_room_after(size_t growth) {
    enum { MORE_PAGES = 512 };
    const uint64_t hard = counter_read(&limits.hard_pages);
    if (HAK_LIKELY(hard == 0 || growth == 0)) return;
    const uint64_t held = held_pages();
    if (held <= hard || !span_purging_try()) return;
    for (uint64_t left = held - hard, most = growth + MORE_PAGES; left != 0 && most != 0;) {
        const struct span_purged purged = span_purge(min_size(left, most));
        if (purged.tried_pages == 0) break;
        left -= min_size(left, purged.given_pages);
        most -= min_size(most, purged.tried_pages);
    }
    span_purging_unlock();
}

/* Waits for the purge under way: the pages that it returns to the kernel are free again afterwards. No lock held. */
static HAK_COLD void await_purging(void) {
    span_purging_lock();
    span_purging_unlock();
}

static _Atomic(span_spare *) spare_growth;

/* relaxed, here and below: a function is there from the start. */
void span_on_growth(span_spare *spare) { atomic_store_explicit(&spare_growth, spare, memory_order_relaxed); }

enum { LONG_PAGES = 17 }; /* longer than any slab */

/* Once per take of PAGES pages, of which GROWTH are not dirty. No lock held. */
static void prepare_growth(size_t pages, size_t growth) {
    span_spare *spare = atomic_load_explicit(&spare_growth, memory_order_relaxed);
    if (spare != NULL) spare(pages);
    note_growth(growth);
}

/* As span_take_at. *GROWN: how many of the pages were not dirty when a place was looked for. */
static uint32_t take(size_t pages, struct span_start start, enum ace_fill fill, size_t *grown) {
    if (pages > window.pages || start.align_pages > window.pages) return 0;
    /* Fresh memory begins with a chunk. */
    const size_t fresh_pages = pages + start.at_pages + max_size(start.align_pages, CHUNK_PAGES) - CHUNK_PAGES;
    huge_look((uint32_t)pages, fill);
    huge_collapse_next();
    /* What is free elsewhere is returned last, once a place is found: nothing is if there is none, and what was spared may be it.
     * Of what is added to a block that grows little is touched soon. */
    bool prepared = false, purged = pages < LONG_PAGES || fill == ACE_GROWN, unmapped = false;
    for (unsigned round = 0;; round++) {
        span_lock();
        const uint64_t brought = brought_pages();
        const enum span_zone zone = huge_zone_for((uint32_t)pages, fill);
        const struct place place = find_place(pages, start, zone);
        const bool ready = prepared && (purged || place.head == 0);
        const size_t growth = ready ? 0 : growth_at(place, pages);
        uint32_t first = growth != 0 ? 0 : take_at(place, pages);
        /* PREPARED: not all of it was dirty. */
        if (first != 0 && prepared && page_chunk(first)->zone == ZONE_HUGE) huge_note_taken((uint32_t)pages, fill);
        span_unlock();
        if (HAK_UNLIKELY(growth != 0)) {
            if (prepared)
                purge_before_peak(place.head, growth), purged = true;
            else
                prepare_growth(pages, *grown = growth), prepared = true;
            continue;
        }
        if (first != 0) {
            if (zone == ZONE_HUGE) huge_mend(first, (uint32_t)pages);
            return first;
        }
        if (!span_is_allowed(pages)) return 0;
        /* A limit of the process counts what is mapped: what is there comes before more, and nothing is asked for in vain. */
        if (os_is_limited() && (first = take_of_any_zone(pages, start)) != 0) return first;
        /* Another thread may take it: then the next round adds more. */
        if (add_fresh((struct fresh){fresh_pages, zone, fill, false}, brought, round)) continue;
        first = take_of_any_zone(pages, start);
        if (first == 0) {
            await_purging();
            first = take_of_any_zone(pages, start);
        }
        if (first != 0 || unmapped || !span_make_gaps(fresh_pages)) return first;
        unmapped = true;
    }
}

uint32_t span_take_at(size_t pages, struct span_start start, enum ace_fill fill) {
    size_t grown = 0;
    const uint32_t first = take(pages, start, fill, &grown);
    if (first != 0) make_room_after(grown);
    return first;
}

/* Lock held. */
static void count_given(uint32_t pages) {
    counter_add(&spans.counts.given, 1);
    counter_sub(&span_counts_of(pages)->live, 1);
}

void span_give(uint32_t first) {
    span_lock();
    HAK_ASSERT(span_at(first)->kind == SPAN_USED);
    const uint32_t pages = span_at(first)->pages;
    count_given(pages);
    span_free(first, pages);
    span_unlock();
}

void span_give_but(uint32_t first, uint32_t lost, uint32_t lost_pages) {
    span_lock();
    const uint32_t pages = span_at(first)->pages, before = lost - first, behind = pages - before - lost_pages;
    count_given(pages);
    span_lose(lost, lost_pages);
    if (before != 0) span_free(first, before);
    if (behind != 0) span_free(lost + lost_pages, behind);
    span_unlock();
}

/* ---- changing the length -------------------------------------------------------------------------- */

/* How many of WANTED pages are free behind the span at FIRST. *AT_END: they end with the memory that there is so far. Lock held. */
static size_t free_behind(uint32_t first, size_t wanted, bool *at_end) {
    const uint32_t end = (uint32_t)counter_read(&spans.end_page);
    uint32_t at = first + span_at(first)->pages;
    size_t found = 0;
    while (found < wanted && at != end && span_at(at)->kind == SPAN_FREE && page_chunk(at)->given) {
        found += span_at(at)->pages;
        at += span_at(at)->pages; /* behind a free span there may be another, of the other zone */
    }
    *at_end = at == end;
    return min_size(found, wanted);
}

/* Lengthens the span to PAGES pages, of which all that it lacks are free behind it. Lock held. */
static void carve_behind(uint32_t first, size_t pages) {
    struct span *span = span_at(first);
    while (span->pages != pages) {
        const uint32_t after = first + span->pages, more = min_u32((uint32_t)pages - span->pages, span_at(after)->pages);
        span_carve(after, after, more);
        span_set_length(first, span->pages + more);
    }
    note_peak();
}

/* What a span needs to be lengthened. */
struct lack {
    size_t missing;   /* pages that are not free behind it: SIZE_MAX where a used span is in the way, or a limit */
    size_t growth;    /* pages that are not dirty, the missing ones included; only if nothing is taken */
    uint64_t brought; /* how many fresh pages had been added */
};

/* Lengthens the span into what is free behind it, if that does and TAKE. Nothing is taken of what does not do: it would pass for used
 * again. */
static struct lack extend_into_free(uint32_t first, size_t pages, bool take) {
    span_lock();
    const size_t more = pages - span_at(first)->pages;
    bool at_end;
    const size_t free_pages = free_behind(first, more, &at_end);
    struct lack lack = {.missing = more - free_pages, .brought = brought_pages()};
    if (!take) lack.growth = more - pages_count_dirty(first + span_at(first)->pages, (uint32_t)free_pages);
    if (more != 0 && ((lack.missing != 0 && !at_end) || !is_allowed(more))) lack.missing = SIZE_MAX;
    if (lack.missing == 0 && take) carve_behind(first, pages);
    span_unlock();
    return lack;
}

bool span_extend(uint32_t first, size_t pages) {
    const size_t before = span_at(first)->pages;
    if (pages > window.pages) return false;
    HAK_ASSERT(pages >= before);
    bool told = is_unnoticed(pages - before), unmapped = false;
    size_t grown = 0;
    for (unsigned round = 0;; round++) {
        const struct lack lack = extend_into_free(first, pages, told);
        if (lack.missing == SIZE_MAX) return false;
        if (HAK_UNLIKELY(!told)) {
            if (lack.growth != 0) note_growth(grown = lack.growth);
            told = true;
            continue;
        }
        if (lack.missing == 0) {
            make_room_after(grown);
            return true;
        }
        span_lock();
        enum span_zone zone = huge_zone_for((uint32_t)lack.missing, ACE_GROWN);
        span_unlock();
        if (add_fresh((struct fresh){lack.missing, zone, ACE_GROWN, true}, lack.brought, round)) continue;
        if (unmapped || !gaps_make(lack.missing, (uint32_t)(first + before))) return false; /* what is free behind it is needed */
        unmapped = true;
    }
}

void span_trim(uint32_t first, size_t pages) {
    struct span *span = span_at(first);
    span_lock();
    uint32_t surplus = span->pages - (uint32_t)pages;
    if (surplus != 0) {
        span_split(first, (uint32_t)pages);
        span_free(first + (uint32_t)pages, surplus);
    }
    span_unlock();
}
