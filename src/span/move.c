/* move.c - moves the contents of a span to a new place: with their page tables, or by copying. */
#include "base/bits.h"
#include "span/pages.h"
#include "span/state.h"

#include <string.h>

enum {
    COPY_PIECE_BYTES = 2 << 20,
    COPY_KEPT_PAGES = 128,    /* 8 MiB: less is not returned to the kernel, since it is soon used again */
    MOST_EDGES = 256,         /* mappings that moves may leave */
    RESERVE_KEPT_PAGES = 256, /* 16 MiB */
};

/* A run of pages of one mapping, and where it goes. */
struct piece {
    uint32_t from, to, pages;
};

static struct piece piece_at(uint32_t from, uint32_t to, uint32_t done, uint32_t pages) {
    span_lock();
    uint32_t end = pages_next_edge(from + done, from + pages);
    span_unlock();
    return (struct piece){from + done, to + done, end - (from + done)};
}

static enum os_moved move_piece(struct piece piece) {
    span_lock();
    bool may = pages_edges() < MOST_EDGES;
    span_unlock();
    if (!may) return OS_NOT_MOVED;
    enum os_moved moved = os_move(page_address(piece.from), page_address(piece.to), piece.pages * PAGE_BYTES);
    span_lock();
    if (moved == OS_MOVED) pages_mark_moved(piece.to, piece.pages, true);
    span_unlock();
    /* A moved mapping keeps the advice of its old place. */
    if (moved == OS_MOVED || moved == OS_MOVE_RENEWED) huge_advise_again(piece.to, piece.pages);
    return moved;
}

/* Copies in pieces; if there are many pages, each piece is returned to the kernel once it is copied. True: all were. */
static bool copy_piece(struct piece piece) {
    char *source = page_address(piece.from), *target = page_address(piece.to);
    size_t bytes = piece.pages * PAGE_BYTES;
    bool returned = piece.pages > COPY_KEPT_PAGES;
    for (size_t at = 0; at < bytes; at += COPY_PIECE_BYTES) {
        size_t length = min_size(bytes - at, COPY_PIECE_BYTES);
        memcpy(target + at, source + at, length);
        if (piece.pages > COPY_KEPT_PAGES) returned &= os_purge(source + at, length);
    }
    return returned;
}

/* Moves the contents of PAGES pages. *RETURNED: the old pages now read as zero. The result has pages only if some
 * could not be moved there, and their target is lost: then all contents are where they were. */
static struct piece move_contents(uint32_t from, uint32_t to, uint32_t pages, bool *returned) {
    uint32_t copied = 0;
    *returned = true;
    for (uint32_t done = 0; done < pages;) {
        struct piece piece = piece_at(from, to, done, pages);
        enum os_moved moved = move_piece(piece);
        if (moved == OS_MOVE_LOST) { /* copy back what was moved before */
            copy_piece((struct piece){to, from, done});
            return piece;
        }
        if (moved != OS_MOVED) {
            *returned &= copy_piece(piece);
            copied += piece.pages;
        }
        done += piece.pages;
    }
    span_lock();
    counter_add(copied == 0 ? &spans.counts.moves : &spans.counts.copies, 1);
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

/* The old pages without parts of huge pages: where such a part was moved, the kernel may make a whole page of it
 * again, so it stays dirty. Span lock held. */
static struct page_run surely_gone(size_t first, size_t pages) {
    size_t end = first + pages;
    if (page_chunk(first)->zone == ZONE_HUGE) first = round_up(first, CHUNK_PAGES);
    if (page_chunk(end - 1)->zone == ZONE_HUGE) end = round_down(end, CHUNK_PAGES);
    return (struct page_run){first, first < end ? end - first : 0};
}

uint32_t span_move(uint32_t from, size_t held, size_t pages) {
    /* Huge pages stay whole if both places begin alike. */
    uint32_t to = span_take(pages, pages >= 2 * CHUNK_PAGES ? CHUNK_PAGES : 1, ACE_GROWN);
    if (to == 0) return 0;
    bool returned;
    struct piece lost = move_contents(from, to, (uint32_t)held, &returned);
    if (lost.pages != 0) {
        span_give_but(to, lost.to, lost.pages);
        return 0;
    }
    return_reserve(to, held);
    if (returned) {
        span_lock();
        const struct page_run gone = surely_gone(from, held);
        if (gone.pages != 0) pages_mark_zero((uint32_t)gone.first, (uint32_t)gone.pages); /* decay had no part in it */
        span_unlock();
    }
    span_give(from);
    return to;
}
