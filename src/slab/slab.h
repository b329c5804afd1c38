/* slab.h - a span cut into equal blocks. The metadata lies outside the blocks:
 *
 *   owner side (the span's record; guarded by the lock of the heap that owns the slab)
 *     bits     a bit for each block that was handed out and returned
 *     carved   blocks beyond it were never handed out
 *   remote side (the remote record; any thread)
 *     bits     a bit for each block that another thread freed, until the owner drains it
 *     queued   1 while the slab is in an inbox, or about to be
 *
 * A block is in exactly one place: in use, in a thread's stack or buffer, in bits, in the remote
 * bits, or beyond carved.
 *
 * Records are type-stable: a late freer may still queue a slab that was released or made anew, so queued is never
 * reset when a slab is made or released, and the thread that drains an inbox checks the owner, which is NULL from the
 * release of a slab until the next one is owned. */
#ifndef HAK_SLAB_SLAB_H
#define HAK_SLAB_SLAB_H

#include "base/size_classes.h"
#include "span/span.h"

struct heap;

struct slab {
    struct span span; /* its prev and next link the owner's lists */
    uint32_t free;    /* blocks in bits and beyond carved */
    uint32_t carved;
    _Atomic(struct heap *) owner; /* written under the locks of the old owner and the new */
    uint64_t *bits;
    uint64_t inline_bits; /* serves slabs of at most 64 blocks */
    uint8_t bucket;       /* the owner's list that holds it */
    _Atomic uint8_t age;  /* see enum slab_age */
    uint32_t low_word;    /* no bit is set below this word of bits */
};

/* For how many visits of the search for holes a slab has stayed unchanged. */
enum slab_age {
    SLAB_CHANGED = 0,
    SLAB_OLDEST = 254,
    SLAB_SEARCHED = 255, /* its holes were returned to the kernel */
};

struct slab_remote {
    _Atomic uint32_t queued;
    _Atomic uint32_t inbox_next; /* written by the thread that set queued */
    _Atomic uint64_t inline_bits; /* serves slabs of at most 64 blocks; others: bitmap_remote(bits). 0 in large blocks,
                                   * or the next whose free waits: large.c */
};

/* The shape of a class, from base/size_classes.h. */
struct slab_class {
    uint64_t inverse;
    uint32_t block_bytes;
    uint16_t blocks;
    uint8_t pages;
    uint8_t inverse_shift;
};

extern HAK_HIDDEN const struct slab_class slab_classes[SIZE_CLASSES];

HAK_INLINE struct slab *slab_at(uint32_t first) { return page_span(first); }

HAK_INLINE struct slab_remote *slab_remote_at(uint32_t first) { return page_remote(first); }

/* First page of the slab that PAGE, whose word is not 0, belongs to. */
HAK_INLINE uint32_t slab_head(size_t page) { return span_at(page)->head; }

/* A slab for blocks of CLASS with every block free, or 0 when there is no memory. FILL as in span_take. It has no
 * owner yet, its words are 0. May make system calls: call it without locks. */
uint32_t slab_create(unsigned class, enum ace_fill fill);

/* Sets OWNER and writes WORD to each page in which blocks may start. Under the locks of the owner before, if any, and
 * the new one. */
void slab_set_owner(uint32_t first, struct heap *owner, uint32_t word);

/* The slab at FIRST has no owner from now on, and no block starts in it. Owner's lock. */
void slab_disown(uint32_t first);

/* Frees the span of a slab whose blocks are all free. The slab has no owner, or its owner's lock is held. */
void slab_release(uint32_t first);

/* Takes up to WANT free blocks, lowest address first, and stores them downward from END: the lowest
 * ends up nearest to END. Returns how many. Owner's lock. */
uint32_t slab_take(uint32_t first, void **end, uint32_t want);

/* Whether the block that slab_take would return first reads as zero. Owner's lock. */
bool slab_next_is_zero(uint32_t first);

/* Free blocks of the slab that were handed out before. Owner's lock. */
HAK_INLINE uint32_t slab_returned(uint32_t first) {
    const struct slab *slab = slab_at(first);
    return slab->free - (slab_classes[slab->span.class].blocks - slab->carved);
}

/* Puts back the leading blocks of BLOCKS that lie in this slab, of which there is at least one. Returns how many. A
 * block that is not in use or not a block ends the process. Owner's lock. */
size_t slab_put(uint32_t first, void *const *blocks, size_t count);

/* The same for a thread that does not own the slab: the blocks become the owner's once it drains them.
 * The caller must then queue the slab. Any thread, no lock. */
size_t slab_put_remote(uint32_t first, void *const *blocks, size_t count);

/* EXPECTED: this process is about to have a child that shares its pages, and a page that is written to is copied.
 * From now on blocks are not written to when they are returned to their owners. Otherwise they are again. Any thread. */
void slab_expect_child(bool expected);

/* Moves the blocks that other threads freed into bits; returns how many. Owner's lock. */
uint32_t slab_drain(uint32_t first);

/* ---- holes (holes.c): kernel pages that no block in use or in a stack lies on ------------------------ */

struct slab_hole {
    char *start; /* whole kernel pages */
    size_t bytes;
    uint32_t block, blocks; /* the blocks that are held back meanwhile, as far as they were carved */
    uint32_t carved;        /* slab.carved as it was; UINT32_MAX: what was never carved is no part of the hole */
    uint32_t held;          /* all blocks that are taken meanwhile */
};

/* The next hole at or after block *FROM, whose blocks are then taken; false when there is none. Owner's lock. */
bool slab_hole_take(uint32_t first, uint32_t *from, struct slab_hole *hole);

/* Frees the blocks of a hole again. ZEROED: its pages were returned to the kernel and read as zero. Owner's lock. */
void slab_hole_give(uint32_t first, const struct slab_hole *hole, bool zeroed);

#endif
