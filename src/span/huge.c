/* huge.c - which memory uses huge pages.
 *
 * There are two zones; spans of one are not merged with spans of the other. In the plain zone the kernel is told to
 * use no huge pages, whatever the system's setting: only pages that are touched are faulted in, and what is returned
 * to the kernel stays away. Once a process uses some memory, spans that will be filled come from the other zone,
 * where huge pages are asked for: few page faults and TLB misses, and no more memory than is filled anyway. Slabs of small blocks
 * are sure to be filled: they come there first, once enough was touched, and in small portions, since what else is put there is resident
 * whether it is touched or not (0085). Whether the program fills the rest of what it takes is seen only where there are no huge
 * pages, since one byte makes all of one resident. So in the memory that comes after each look one chunk is a witness, without huge pages
 * until it was looked at (collapse.c); and no more than a quarter of what was touched may have them, if that was not nearly all (0081).
 *
 * Returning a part of a huge page to the kernel breaks the page. khugepaged would put it together again and fault in
 * all that was returned, so no huge pages are asked for in this chunk any more, until all of it that is in use is one
 * span's, or all of it is in use again and resident. Each such chunk may be a mapping of its own: beyond LONE_CHUNKS
 * whole stretches of chunks are treated together. */
#include "ace/huge.h"
#include "base/bits.h"
#include "span/pages.h"
#include "span/state.h"

enum {
    STRETCH_CHUNKS = 32, /* 64 MiB */
    LONE_CHUNKS = 64,    /* chunks that are treated one by one */
};

static _Atomic uint32_t lone_chunks; /* chunks of the huge zone, witnesses apart, that have no huge pages; written under the span lock */

/* Of the last looks at what the program touches. relaxed, all: two threads may both look. Written under the span lock, wants_witness apart,
 * and not by a look that another setting came to meanwhile. */
static struct {
    _Atomic uint64_t from_pages;         /* in use, from which on it is looked at all */
    _Atomic bool touched, wants_witness; /* for what is dense */
    _Atomic uint64_t again_pages;        /* in use, from which on it is looked again */
    _Atomic size_t seen_chunks;          /* what lies beyond was taken since, or is free */
    _Atomic uint64_t left_pages;         /* that may have huge pages before it is looked again */
    _Atomic uint64_t full_again_pages;   /* as again_pages, for slabs that fill; UINT64_MAX: enough was touched, and that stands */
} look = {.from_pages = UINT64_MAX};

void huge_configure(uint64_t from_pages) {
    const bool always = from_pages == 0;
    atomic_store_explicit(&look.from_pages, always ? UINT64_MAX : from_pages, memory_order_relaxed);
    atomic_store_explicit(&look.touched, always, memory_order_relaxed);
    atomic_store_explicit(&look.wants_witness, false, memory_order_relaxed);
    atomic_store_explicit(&look.again_pages, 0, memory_order_relaxed);
    atomic_store_explicit(&look.seen_chunks, 0, memory_order_relaxed);
    atomic_store_explicit(&look.left_pages, always ? UINT64_MAX : 0, memory_order_relaxed);
    atomic_store_explicit(&look.full_again_pages, always ? UINT64_MAX : 0, memory_order_relaxed);
}

/* Whether what was seen last allows huge pages for a request of PAGES pages. What grows has a reserve that nobody touched yet, and is
 * not asked. */
static bool is_seen(uint32_t pages, enum ace_fill fill) {
    if (fill == ACE_GROWN) return true;
    if (fill == ACE_FULL) return atomic_load_explicit(&look.full_again_pages, memory_order_relaxed) == UINT64_MAX;
    const bool touched = atomic_load_explicit(&look.touched, memory_order_relaxed);
    return touched && pages <= atomic_load_explicit(&look.left_pages, memory_order_relaxed);
}

enum span_zone huge_zone_for(uint32_t pages, enum ace_fill fill) {
    if (fill == ACE_SPARSE) return ZONE_PLAIN;
    const uint64_t used_pages = counter_read(&spans.counts.used_pages);
    const bool admitted = ace_huge_admits((struct ace_huge_input){
        .used_pages = used_pages,
        .pages = pages,
        .from_pages = spans.settings.huge_from_pages,
        .fill = fill,
    });
    return admitted && is_seen(pages, fill) ? ZONE_HUGE : ZONE_PLAIN;
}

size_t huge_most_fresh(enum ace_fill fill) {
    enum { FULL_PAGES = 2 * CHUNK_PAGES, SHARE = 16 }; /* of what is in use: few calls and decisions where that is much */
    if (fill == ACE_FULL) return max_size(FULL_PAGES, round_up(counter_read(&spans.counts.used_pages) / SHARE, CHUNK_PAGES));
    const uint64_t left = atomic_load_explicit(&look.left_pages, memory_order_relaxed);
    return fill == ACE_DENSE && left != UINT64_MAX ? round_down(left, CHUNK_PAGES) + CHUNK_PAGES : SIZE_MAX; /* and the witness */
}

/* The chunks FIRST .. END-1. */
struct chunks {
    size_t first, end;
};

/* What is in use in the chunk of PAGE, if that shows what was touched; 0 where huge pages may be. What was collapsed was touched, but for a
 * small part of all that is in use. Span lock held. */
static size_t shown_bytes(uint32_t page) {
    const struct chunk *chunk = page_chunk(page);
    return chunk->zone == ZONE_PLAIN || chunk->witness || chunk->collapsed ? pages_used_in_chunk(page) * PAGE_BYTES : 0;
}

/* The first page of the first chunk of SOME that shows something, which is stored in *USED_BYTES; 0 where none does. */
static uint32_t first_to_show(struct chunks some, size_t *used_bytes) {
    *used_bytes = 0;
    span_lock();
    while (some.first < some.end && (*used_bytes = shown_bytes((uint32_t)(some.first * CHUNK_PAGES))) == 0) some.first++;
    span_unlock();
    return *used_bytes != 0 ? (uint32_t)(some.first * CHUNK_PAGES) : 0;
}

/* Samples ALL, evenly spread: how much is in use there, and how much of that was ever touched. */
static void look_at_some(struct chunks all, size_t *used_bytes, size_t *touched_bytes) {
    enum { PARTS = 16 };
    const size_t count = all.end - all.first;
    *used_bytes = *touched_bytes = 0;
    for (size_t part = 0; part < PARTS; part++) {
        size_t used;
        const uint32_t page = first_to_show((struct chunks){all.first + count * part / PARTS, all.first + count * (part + 1) / PARTS}, &used);
        if (page == 0) continue;
        *used_bytes += used;
        /* This includes free memory that was touched: no more than what is in use counts. */
        *touched_bytes += min_size(used, os_resident_bytes(page_address(page), CHUNK_PAGES * PAGE_BYTES));
    }
}

/* Span lock held. */
static void tell_untouched(size_t used_bytes, size_t touched_bytes) {
    const uint64_t pages = counter_read(&spans.counts.huge_pages);
    span_tell(&(struct ace_decision){
        .reason = ACE_REASON_UNTOUCHED, .from = pages, .to = pages, .inputs = {used_bytes, touched_bytes}});
}

/* How many of the USED_PAGES in use were touched, where TOUCHED_BYTES of USED_BYTES, a sample of them, were. */
static uint64_t touched_pages_of(uint64_t used_pages, size_t used_bytes, size_t touched_bytes) {
    return used_pages * (touched_bytes / 1024) / (used_bytes / 1024);
}

/* How many more may have huge pages, of the same. */
static uint64_t most_pages(uint64_t used_pages, size_t used_bytes, size_t touched_bytes, enum ace_objective objective) {
    const uint64_t touched_pages = touched_pages_of(used_pages, used_bytes, touched_bytes);
    const uint64_t most = ace_huge_most(used_pages * PAGE_BYTES, touched_pages * PAGE_BYTES, objective);
    return most == UINT64_MAX ? most : most / PAGE_BYTES;
}

/* In use from which on it is looked again for a request of FILL. */
static uint64_t again_pages_of(enum ace_fill fill) {
    return atomic_load_explicit(fill == ACE_FULL ? &look.full_again_pages : &look.again_pages, memory_order_relaxed);
}

/* What is in use, if a look that began under FROM_PAGES for FILL still counts: the setting is the same, and no other thread's look was noted
 * meanwhile. Otherwise 0. Runs that are being purged count as in use only while nobody has the lock. Span lock held. */
static uint64_t used_if_due(uint64_t from_pages, enum ace_fill fill) {
    const uint64_t used_pages = counter_read(&spans.counts.used_pages);
    const bool is_still = atomic_load_explicit(&look.from_pages, memory_order_relaxed) == from_pages;
    return is_still && used_pages >= again_pages_of(fill) ? used_pages : 0;
}

/* Whether so much was touched that the 2 MiB which slabs wait to fill are little. What is in use may be slabs of many sizes, each nearly
 * empty. Once there is enough, that stands. */
static void look_for_full(uint64_t from_pages) {
    size_t used_bytes, touched_bytes;
    look_at_some((struct chunks){0, counter_read(&spans.end_page) / CHUNK_PAGES}, &used_bytes, &touched_bytes);
    span_lock();
    const uint64_t used_pages = used_if_due(from_pages, ACE_FULL);
    const uint64_t touched_pages = used_bytes == 0 ? used_pages : touched_pages_of(used_pages, used_bytes, touched_bytes);
    const bool much = touched_pages >= ace_huge_full_from(from_pages);
    if (used_pages != 0)
        atomic_store_explicit(&look.full_again_pages, much ? UINT64_MAX : used_pages + used_pages / 8 + 1, memory_order_relaxed);
    span_unlock();
}

/* Where SOME ends that was looked at: behind the last chunk that shows what was touched. What lies free behind it counts once it is used;
 * and a witness goes on to show until all of it is in use, since what came with it shows nothing. Span lock held. */
static size_t seen_end(struct chunks some) {
    size_t shown = 0;
    while (some.end > some.first && (shown = shown_bytes((uint32_t)((some.end - 1) * CHUNK_PAGES))) == 0) some.end--;
    const bool goes_on = shown != 0 && shown < CHUNK_PAGES * PAGE_BYTES && page_chunk((some.end - 1) * CHUNK_PAGES)->witness;
    return some.end - goes_on;
}

bool huge_was_seen(size_t page) {
    const bool nobody_looks = atomic_load_explicit(&look.from_pages, memory_order_relaxed) == UINT64_MAX;
    return nobody_looks || page / CHUNK_PAGES < atomic_load_explicit(&look.seen_chunks, memory_order_relaxed);
}

/* TOUCHED_BYTES of USED_BYTES were touched of what was taken since the last look, where USED_PAGES are in use. A few pages show
 * nothing once there was a look. Span lock held. */
static void note_dense(uint64_t used_pages, struct chunks since, size_t used_bytes, size_t touched_bytes) {
    const enum ace_objective objective = spans.settings.objective;
    const size_t least_bytes = since.first != 0 ? CHUNK_PAGES * PAGE_BYTES / 2 : 1;
    const bool shows = used_bytes >= least_bytes;
    atomic_store_explicit(&look.wants_witness, true, memory_order_relaxed); /* without huge pages it is not needed, and waits */
    atomic_store_explicit(&look.again_pages, used_pages + used_pages / (shows ? 4 : 32) + 1, memory_order_relaxed);
    if (!shows && since.first != 0) return;
    const bool enough = !shows || touched_bytes >= ace_huge_touched_least(used_bytes, objective);
    const uint64_t left = shows ? most_pages(used_pages, used_bytes, touched_bytes, objective) : UINT64_MAX;
    atomic_store_explicit(&look.touched, enough, memory_order_relaxed);
    atomic_store_explicit(&look.left_pages, left, memory_order_relaxed);
    if (shows) atomic_store_explicit(&look.seen_chunks, seen_end(since), memory_order_relaxed);
    if (!enough) tell_untouched(used_bytes, touched_bytes);
}

/* Whether the program touches what it takes: otherwise huge pages would fault in memory that is never used. Looks at what was taken since
 * the last time; an answer stands until a quarter more is in use, or a little more if nothing shows. */
static void look_for_dense(uint64_t from_pages) {
    const size_t first = atomic_load_explicit(&look.seen_chunks, memory_order_relaxed);
    const struct chunks since = {first, max_size(first, counter_read(&spans.end_page) / CHUNK_PAGES)};
    size_t used_bytes, touched_bytes;
    look_at_some(since, &used_bytes, &touched_bytes);
    span_lock();
    const uint64_t used_pages = used_if_due(from_pages, ACE_DENSE);
    if (used_pages != 0) note_dense(used_pages, since, used_bytes, touched_bytes);
    span_unlock();
}

void huge_look(uint32_t pages, enum ace_fill fill) {
    if (fill != ACE_DENSE && fill != ACE_FULL) return;
    const uint64_t used_pages = counter_read(&spans.counts.used_pages);
    const uint64_t from_pages = atomic_load_explicit(&look.from_pages, memory_order_relaxed);
    const bool enough = used_pages + pages >= (fill == ACE_FULL ? ace_huge_full_from(from_pages) : from_pages);
    if (!enough || used_pages < again_pages_of(fill)) return;
    fill == ACE_FULL ? look_for_full(from_pages) : look_for_dense(from_pages);
}

/* PAGES more pages come with huge pages, for a request of FILL. Span lock held. */
static void tell_huge(size_t pages, enum ace_fill fill) {
    const uint64_t before = counter_read(&spans.counts.huge_pages), from_pages = spans.settings.huge_from_pages;
    counter_add(&spans.counts.huge_pages, pages);
    span_tell(&(struct ace_decision){
        .reason = ACE_REASON_IN_USE,
        .from = before,
        .to = before + pages,
        .inputs = {counter_read(&spans.counts.used_pages), fill == ACE_FULL ? ace_huge_full_from(from_pages) : from_pages},
    });
}

/* How many fresh pages of the huge zone come without huge pages: the witness. */
static size_t plain_pages_of(enum ace_fill fill) {
    if (fill == ACE_FULL) return 0; /* what fills bears no witness to what is dense */
    return atomic_exchange_explicit(&look.wants_witness, false, memory_order_relaxed) ? CHUNK_PAGES : 0;
}

void huge_note_taken(uint32_t pages, enum ace_fill fill) {
    const uint64_t left = atomic_load_explicit(&look.left_pages, memory_order_relaxed);
    if (fill != ACE_DENSE || left == UINT64_MAX) return;
    atomic_store_explicit(&look.left_pages, left - min_size(left, pages), memory_order_relaxed);
}

void huge_settle(struct page_run run, enum span_zone zone, enum ace_fill fill) {
    char *start = page_address(run.first);
    const size_t plain_pages = zone == ZONE_PLAIN ? run.pages : plain_pages_of(fill);
    if (plain_pages != 0) os_avoid_huge(start, plain_pages * PAGE_BYTES);
    if (plain_pages != run.pages) os_prefer_huge(start + plain_pages * PAGE_BYTES, (run.pages - plain_pages) * PAGE_BYTES);
    span_lock();
    for (size_t page = run.first; page < run.first + run.pages; page += CHUNK_PAGES) {
        struct chunk *chunk = page_chunk(page);
        chunk->zone = (uint8_t)zone;
        if (zone == ZONE_HUGE) chunk->no_huge = chunk->broken = chunk->witness = page < run.first + plain_pages;
    }
    if (zone == ZONE_HUGE && plain_pages != run.pages) tell_huge(run.pages - plain_pages, fill);
    span_unlock();
}

void huge_forget(struct page_run run) {
    for (size_t page = run.first; page < run.first + run.pages; page += CHUNK_PAGES) {
        struct chunk *chunk = page_chunk(page);
        lone_chunks -= chunk->zone == ZONE_HUGE && chunk->no_huge && !chunk->witness;
        chunk->zone = ZONE_GAP;
        chunk->given = chunk->no_huge = chunk->broken = chunk->witness = chunk->collapsed = false;
    }
}

/* The pages of the chunk of PAGE and of the chunks next to it, within its aligned group of CHUNKS chunks and up to
 * the first gap on either side. Span lock held. */
static struct page_run stretch_of(uint32_t page, size_t chunks) {
    const size_t least = round_down(page, chunks * CHUNK_PAGES), most = least + chunks * CHUNK_PAGES;
    size_t first = round_down(page, CHUNK_PAGES), end = first + CHUNK_PAGES;
    while (first > least && page_chunk(first - CHUNK_PAGES)->given) first -= CHUNK_PAGES;
    while (end < most && end < counter_read(&spans.end_page) && page_chunk(end)->given) end += CHUNK_PAGES;
    return (struct page_run){first, end - first};
}

/* Marks the chunk of PAGE broken; false when it already was. RUN: where the kernel is then to be told to use no huge
 * pages. */
static bool mark_broken(uint32_t page, struct page_run *run) {
    *run = (struct page_run){0, 0};
    span_lock();
    bool fresh = !page_chunk(page)->broken;
    page_chunk(page)->broken = true;
    if (fresh && !page_chunk(page)->no_huge) {
        *run = stretch_of(page, lone_chunks < LONE_CHUNKS ? 1 : STRETCH_CHUNKS);
        for (size_t at = run->first; at < run->first + run->pages; at += CHUNK_PAGES) {
            if (page_chunk(at)->zone != ZONE_HUGE || page_chunk(at)->no_huge) continue; /* plain ones never had any */
            lone_chunks++;
            page_chunk(at)->no_huge = true;
        }
    }
    span_unlock();
    return fresh;
}

static void break_at(uint32_t page) {
    struct page_run run;
    if (page_chunk(page)->zone != ZONE_HUGE || !mark_broken(page, &run)) return;
    if (run.pages != 0) os_avoid_huge(page_address(run.first), run.pages * PAGE_BYTES);
    os_split_huge(page_address(page), os_page_bytes());
}

void huge_break(uint32_t first, uint32_t pages) {
    uint32_t end = first + pages;
    bool whole_start = first % CHUNK_PAGES == 0 && pages >= CHUNK_PAGES;
    if (!whole_start) break_at(first);
    if (end % CHUNK_PAGES != 0 && (whole_start || end / CHUNK_PAGES != first / CHUNK_PAGES)) break_at(end - 1);
}

/* The next run of chunks without huge pages of which FIRST .. END holds every used page. Marks them whole. */
static struct page_run mark_whole(uint32_t *first, uint32_t end) {
    struct page_run run = {0, 0};
    span_lock();
    for (uint32_t at = *first; at < end; at += CHUNK_PAGES - at % CHUNK_PAGES) {
        struct chunk *chunk = page_chunk(at);
        uint32_t within = at % CHUNK_PAGES, pages = min_u32(end - at, CHUNK_PAGES - within);
        bool whole = chunk->zone == ZONE_HUGE && chunk->no_huge && !chunk->witness && (chunk->used & ~bit_range(within, pages)) == 0;
        if (whole) {
            if (run.pages == 0) run.first = round_down(at, CHUNK_PAGES);
            run.pages += CHUNK_PAGES;
            chunk->no_huge = chunk->broken = false;
            lone_chunks--;
        }
        *first = at + CHUNK_PAGES - within;
        if (!whole && run.pages != 0) break;
    }
    span_unlock();
    return run;
}

/* Whether huge pages are asked for in the chunk of PAGE. Span lock held. */
static bool is_asked(uint32_t page) {
    const struct chunk *chunk = page < counter_read(&spans.end_page) ? page_chunk(page) : NULL;
    return chunk != NULL && chunk->given && chunk->zone == ZONE_HUGE && !chunk->no_huge;
}

static bool is_asked_now(size_t page) {
    span_lock();
    const bool asked = is_asked((uint32_t)page);
    span_unlock();
    return asked;
}

static void tell_kernel(struct page_run run, bool huge) {
    char *start = page_address(run.first);
    huge ? os_prefer_huge(start, run.pages * PAGE_BYTES) : os_avoid_huge(start, run.pages * PAGE_BYTES);
}

/* RUN was to have huge pages, or none. A chunk that another thread changed meanwhile, and advised before this one did, is advised again. */
static void advise(struct page_run run, bool huge) {
    tell_kernel(run, huge);
    for (size_t page = round_down(run.first, CHUNK_PAGES); page < run.first + run.pages; page += CHUNK_PAGES)
        if (HAK_UNLIKELY(is_asked_now(page) != huge)) tell_kernel((struct page_run){page, CHUNK_PAGES}, !huge);
}

void huge_mend(uint32_t first, uint32_t pages) {
    /* relaxed: a thread that breaks a chunk of this span meanwhile does so for its neighbours, and it stays broken. */
    if (HAK_LIKELY(atomic_load_explicit(&lone_chunks, memory_order_relaxed) == 0)) return;
    for (uint32_t end = first + pages; first < end;) {
        struct page_run run = mark_whole(&first, end);
        if (run.pages != 0) advise(run, true);
    }
}

/* Whether all of the chunk at PAGE is in use, and huge pages may be asked for there again. Where there are many such
 * chunks, from one to the next: then few mappings are added. Span lock held. */
static bool may_mend(uint32_t page) {
    const struct chunk *chunk = page_chunk(page);
    if (!chunk->no_huge || chunk->witness || chunk->used != UINT32_MAX) return false;
    const bool starts = lone_chunks <= LONE_CHUNKS || page % (STRETCH_CHUNKS * CHUNK_PAGES) == 0;
    return starts || is_asked(page - CHUNK_PAGES) || is_asked(page + CHUNK_PAGES);
}

static bool may_mend_now(uint32_t page) {
    span_lock();
    const bool may = may_mend(page);
    span_unlock();
    return may;
}

void span_mend(uint32_t page) {
    /* relaxed: a chunk that another thread breaks meanwhile can wait. */
    if (HAK_LIKELY(atomic_load_explicit(&lone_chunks, memory_order_relaxed) == 0) || !may_mend_now(page)) return;
    void *start = page_address(page);
    const size_t bytes = CHUNK_PAGES * PAGE_BYTES;
    size_t resident_bytes;
    /* What was returned would come back: where the kernel does not tell, nothing is mended. */
    if (!os_tells_resident(start, bytes, &resident_bytes) || !ace_huge_mends(resident_bytes, bytes)) return;
    uint32_t first = page;
    if (mark_whole(&first, page + CHUNK_PAGES).pages != 0) os_prefer_huge(start, bytes);
}

void huge_advise_again(uint32_t first, uint32_t pages) {
    for (uint32_t at = first, end = first + pages; at < end;) {
        span_lock();
        uint32_t next = pages_next_advice(at, end);
        const bool huge = is_asked(at);
        span_unlock();
        advise((struct page_run){at, next - at}, huge);
        at = next;
    }
}

bool span_may_be_huge(uint32_t page) {
    span_lock();
    bool may = page_chunk(page)->zone == ZONE_HUGE && !page_chunk(page)->broken;
    span_unlock();
    return may;
}
