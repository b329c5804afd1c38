/* move.c - moves the contents of a span to a new place. Whole chunks that are whole there, too, go with their page tables; the rest is
 * copied: a mapping of its own that begins or ends within a chunk would keep that from having a huge page. So the new place of a long
 * span begins where the old one does within a chunk, less than a chunk at either end is copied, and huge pages stay whole. */
#include "base/bits.h"
#include "span/pages.h"
#include "span/state.h"

#include <string.h>

enum {
    ALIKE_LEAST_PAGES = 2 * CHUNK_PAGES, /* the new place of shorter spans starts with a chunk, or anywhere */
    COPY_PIECE_BYTES = 2 << 20,
    COPY_KEPT_PAGES = 128,    /* 8 MiB: less is not returned to the kernel, since it is soon used again */
    MOST_EDGES = 256,         /* mappings that moves may leave */
    RESERVE_KEPT_PAGES = 256, /* 16 MiB */
};

/* A run of pages, and where it goes. */
struct piece {
    uint32_t from, to, pages;
};

/* What comes next of ALL behind its first DONE pages: whole chunks in which no mapping begins, or what lies before such, or behind the
 * last. */
static struct piece piece_at(struct piece all, uint32_t done) {
    const uint32_t at = all.from + done;
    span_lock();
    uint32_t end = pages_next_edge(at, all.from + all.pages);
    span_unlock();
    const struct page_run whole = whole_chunks((struct page_run){at, end - at});
    if (whole.pages != 0) end = (uint32_t)(whole.first == at ? at + whole.pages : whole.first);
    return (struct piece){at, all.to + done, end - at};
}

static bool is_whole(struct piece piece) { return (piece.from | piece.to | piece.pages) % CHUNK_PAGES == 0; }

static bool may_move(struct piece piece) {
    if (!is_whole(piece)) return false;
    span_lock();
    const bool few = pages_edges() < MOST_EDGES;
    span_unlock();
    return few;
}

/* Moves PIECE chunk by chunk, until one cannot be: *LAST says what became of the last that was tried. A chunk lies in one mapping, as far
 * as is known here, all of PIECE perhaps not: the kernel does not join all mappings that look alike, and where there are several it may
 * move some, and fail then. Returns how many pages were moved. */
static uint32_t move_chunks(struct piece piece, enum os_moved *last) {
    uint32_t done = 0;
    *last = OS_NOT_MOVED;
    if (!may_move(piece)) return 0;
    while (done < piece.pages) {
        *last = os_move(page_address(piece.from + done), page_address(piece.to + done), CHUNK_PAGES * PAGE_BYTES);
        if (*last != OS_MOVED) break;
        done += CHUNK_PAGES;
    }
    return done;
}

/* The first PAGES pages of PIECE were moved. A moved mapping keeps the advice of its old place. */
static void note_moved(struct piece piece, uint32_t pages) {
    span_lock();
    pages_mark_moved(piece.to, pages, true);
    span_unlock();
    huge_advise_again(piece.to, pages);
}

/* Copies PIECE, in parts; where it is not KEPT, each is returned to the kernel once it is copied. True: all were. */
static bool copy_piece(struct piece piece, bool kept) {
    char *source = page_address(piece.from), *target = page_address(piece.to);
    size_t bytes = piece.pages * PAGE_BYTES;
    bool returned = !kept;
    for (size_t at = 0; at < bytes; at += COPY_PIECE_BYTES) {
        size_t length = min_size(bytes - at, COPY_PIECE_BYTES);
        memcpy(target + at, source + at, length);
        if (!kept) returned &= os_purge(source + at, length);
    }
    return returned;
}

/* PIECE now reads as zero where it was: decay had no part in it. */
static void mark_gone(struct piece piece) {
    span_lock();
    pages_mark_zero(piece.from, piece.pages);
    span_unlock();
}

/* The contents are where they were. */
static void bring_back(struct piece piece) {
    copy_piece((struct piece){piece.to, piece.from, piece.pages}, piece.pages <= COPY_KEPT_PAGES);
    span_lock();
    pages_mark_used(piece.from, piece.pages);
    span_unlock();
}

/* Moves the contents of ALL. The result has pages only if some could not be moved there, and their target is lost: then all contents are
 * where they were. */
static struct piece move_contents(struct piece all) {
    bool any_moved = false;
    uint32_t kept_pages = 0; /* of what was copied */
    for (uint32_t done = 0; done < all.pages;) {
        const struct piece piece = piece_at(all, done);
        enum os_moved last;
        const uint32_t moved = move_chunks(piece, &last);
        if (moved != 0) note_moved(piece, moved);
        if (last == OS_MOVE_LOST) {
            bring_back((struct piece){all.from, all.to, done + moved});
            return (struct piece){piece.from + moved, piece.to + moved, CHUNK_PAGES};
        }
        const struct piece rest = {piece.from + moved, piece.to + moved, piece.pages - moved};
        if (last == OS_MOVE_RENEWED) huge_advise_again(rest.to, CHUNK_PAGES);
        if (moved != 0) mark_gone((struct piece){piece.from, piece.to, moved});
        /* Only whole chunks: a part that is returned would break a huge page. */
        const bool kept = !is_whole(rest) || kept_pages + rest.pages <= COPY_KEPT_PAGES;
        if (kept) kept_pages += rest.pages;
        if (rest.pages != 0 && copy_piece(rest, kept)) mark_gone(rest);
        any_moved |= moved != 0;
        done += piece.pages;
    }
    span_lock();
    counter_add(any_moved ? &spans.counts.moves : &spans.counts.copies, 1);
    span_unlock();
    return (struct piece){0};
}

/* The reserve behind the block is soon needed, or is not: a little of it stays dirty, the rest is returned to the
 * kernel. Whole chunks. */
static void return_reserve(uint32_t first, size_t held) {
    size_t kept = min_size(held / 2, RESERVE_KEPT_PAGES);
    size_t from = round_up(first + held + kept, CHUNK_PAGES),
           end = round_down(first + span_at(first)->pages, CHUNK_PAGES);
    if (!span_at(first)->zero && from < end) os_purge(page_address(from), (end - from) * PAGE_BYTES);
}

/* Where the new place starts of a span whose HELD pages lie at FROM. */
static struct span_start start_for(uint32_t from, size_t held, size_t pages) {
    if (held >= ALIKE_LEAST_PAGES) return (struct span_start){CHUNK_PAGES, from % CHUNK_PAGES};
    return (struct span_start){pages >= ALIKE_LEAST_PAGES ? CHUNK_PAGES : 1, 0};
}

uint32_t span_move(uint32_t from, size_t held, size_t pages) {
    const uint32_t to = span_take_at(pages, start_for(from, held, pages), ACE_GROWN);
    if (to == 0) return 0;
    const struct piece lost = move_contents((struct piece){from, to, (uint32_t)held});
    if (lost.pages != 0) {
        span_give_but(to, lost.to, lost.pages);
        return 0;
    }
    return_reserve(to, held);
    span_give(from);
    return to;
}
