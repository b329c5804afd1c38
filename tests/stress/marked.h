/* marked.h - blocks that describe and prove themselves, and slots to hand them over in.
 *
 * A marked block begins with its requested size and a key made from its address, that size and the
 * seed of the run; the rest, to the last usable byte, is the pattern of that key. Any thread that
 * gets the pointer can verify the block without further knowledge.
 *
 * Slots are exchanged with acquire and release: what one thread wrote into a block is there for the
 * next. TSan therefore sees no race but the allocator's own.
 */
#ifndef HAK_TESTS_MARKED_H
#define HAK_TESTS_MARKED_H

#include "blocks.h"

#include <stdatomic.h>

struct mark {
    uint64_t request, key;
};

/* Set before the first thread starts. MAY_FAIL: NULL with ENOMEM is no error. */
static uint64_t mark_seed;
static bool may_fail;

static inline uint64_t mark_key(const struct mark *mark) {
    return block_key(mark, mark_seed ^ mark->request);
}

static inline struct mark *mark_block(void *block, size_t request) {
    struct mark *mark = (struct mark *)block;
    mark->request = request;
    mark->key = mark_key(mark);
    block_fill(mark + 1, hak_usable_size(mark) - sizeof *mark, mark->key);
    return mark;
}

static inline void verify_block(const struct mark *mark) {
    CHECK(is_aligned(mark, 16));
    CHECK(mark->key == mark_key(mark));
    CHECK(hak_usable_size(mark) >= mark->request);
    CHECK(block_holds(mark + 1, hak_usable_size(mark) - sizeof *mark, mark->key));
}

static inline void free_marked(struct mark *mark) {
    if (mark == NULL) return;
    verify_block(mark);
    mark->key = 0; /* a second free of it will not verify */
    hak_free(mark);
}

/* Mostly small, so that the run is about the allocator and not about filling; one in 2000 a span. */
static inline size_t marked_size(struct rng *rng) {
    size_t dice = rng_below(rng, 2000), top = dice < 1500 ? 500 : dice < 1900 ? KIB(4) : KIB(64);
    return sizeof(struct mark) + rng_below(rng, dice == 1999 ? MIB(4) : top);
}

/* By malloc mostly, calloc (checked to be zero) and memalign. NULL only if MAY_FAIL. */
static inline struct mark *make_marked(struct rng *rng, size_t size) {
    size_t dice = rng_below(rng, 16), alignment = (size_t)32 << rng_below(rng, 10);
    void *block;
    errno = 0;
    if (dice < 2)
        block = hak_calloc(size, 1);
    else if (dice == 2)
        block = hak_memalign(alignment, size);
    else
        block = hak_malloc(size);
    if (block == NULL) {
        CHECK_EQ(errno, ENOMEM);
        CHECK_AT(may_fail, size);
        return NULL;
    }
    if (dice < 2) CHECK_AT(block_is_zero(block, size), size);
    if (dice == 2) CHECK_AT(is_aligned(block, alignment), alignment);
    return mark_block(block, size);
}

/* The block with a new size, or as it was when there is no memory. */
static inline struct mark *resize_marked(struct rng *rng, struct mark *mark) {
    size_t size = marked_size(rng);
    if (mark == NULL) return NULL;
    verify_block(mark);
    uint64_t key = mark->key, request = mark->request;
    errno = 0;
    struct mark *moved = hak_realloc(mark, size);
    if (moved == NULL) {
        CHECK_EQ(errno, ENOMEM);
        CHECK_AT(may_fail, size);
        verify_block(mark);
        return mark;
    }
    size_t kept = (request < size ? request : size) - sizeof *mark;
    CHECK(moved->request == request && moved->key == key);
    CHECK(block_holds(moved + 1, kept & ~(size_t)7, key));
    return mark_block(moved, size);
}

enum { SHARED_SLOTS = 2048 };
static _Atomic(struct mark *) shared_slots[SHARED_SLOTS];

/* Puts a block, or NULL, into a slot and takes out what was there. */
static inline struct mark *swap_slot(size_t i, struct mark *mark) {
    return atomic_exchange_explicit(&shared_slots[i], mark, memory_order_acq_rel);
}

static inline size_t argument_or(int argc, char **argv, int index, size_t otherwise) {
    return argc > index ? (size_t)strtoull(argv[index], NULL, 0) : otherwise;
}

#endif
