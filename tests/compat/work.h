/* work.h - what the programs of this folder do with memory, wherever they are: blocks of all sizes by every call,
 * filled to their usable end and verified before they are resized or freed.
 *
 * Nothing here calls anything but malloc's family, so that it can run where nothing else may.
 */
#ifndef HAK_TESTS_COMPAT_WORK_H
#define HAK_TESTS_COMPAT_WORK_H

#include "preload/served.h" /* first: it says _GNU_SOURCE */

#include "blocks.h"

/* musl has none. */
extern int malloc_trim(size_t pad) __attribute__((weak));

static inline void work_give_back(void) {
    if (malloc_trim) malloc_trim(0);
}

enum { WORK_SLOTS = 150 };

struct work_slot {
    void *block;
    size_t bytes;
};

static inline void work_verify(const struct work_slot *slot) {
    if (slot->block) CHECK(block_holds(slot->block, slot->bytes, block_key(slot->block, slot->bytes)));
}

static inline void work_free(struct work_slot *slot) {
    work_verify(slot);
    free(slot->block);
    *slot = (struct work_slot){NULL, 0};
}

/* A refusal says ENOMEM, and leaves the block of a realloc as it was; success keeps errno, whatever was refused behind it.
 * Returns whether it was served. */
static inline bool work_resize(struct work_slot *slot, size_t size) {
    work_verify(slot);
    unsigned char first[16], *old = (unsigned char *)slot->block;
    size_t kept = slot->bytes < size ? slot->bytes : size;
    if (kept > sizeof first) kept = sizeof first;
    if (old) memcpy(first, old, kept);
    errno = 0;
    void *block = realloc(slot->block, size);
    if (block == NULL) {
        CHECK_EQ(errno, ENOMEM);
        work_verify(slot);
        return false;
    }
    CHECK_EQ(errno, 0);
    if (old) CHECK(memcmp(block, first, kept) == 0);
    slot->block = block;
    return true;
}

static inline bool work_allocate(struct work_slot *slot, struct rng *rng, size_t size) {
    size_t alignment = (size_t)16 << rng_below(rng, 9);
    errno = 0;
    switch (rng_below(rng, 4)) {
    case 0:
        slot->block = calloc(1, size);
        if (slot->block) CHECK(block_is_zero(slot->block, size));
        break;
    case 1:
        slot->block = aligned_alloc(alignment, size);
        if (slot->block) CHECK(is_aligned(slot->block, alignment));
        break;
    default:
        slot->block = malloc(size);
    }
    CHECK_EQ(errno, slot->block ? 0 : ENOMEM);
    return slot->block != NULL;
}

/* Returns how many operations were refused. */
static inline size_t work(uint64_t seed, size_t operations) {
    struct work_slot slots[WORK_SLOTS] = {{NULL, 0}};
    struct rng rng = {mix64(seed)};
    size_t refused = 0;
    while (operations-- > 0) {
        struct work_slot *slot = &slots[rng_below(&rng, WORK_SLOTS)];
        size_t size = rng_size(&rng, 300);
        bool resize = slot->block && rng_below(&rng, 3) == 0;
        if (!resize) work_free(slot);
        if (!(resize ? work_resize(slot, size) : work_allocate(slot, &rng, size))) {
            refused++;
            continue;
        }
        slot->bytes = malloc_usable_size(slot->block);
        CHECK(slot->bytes >= size);
        block_fill(slot->block, slot->bytes, block_key(slot->block, slot->bytes));
    }
    for (size_t i = 0; i < WORK_SLOTS; i++) work_free(&slots[i]);
    return refused;
}

/* COUNT blocks of SIZE, dirty, then all free: what is to go back to the kernel. */
static inline void work_leave_dirty(size_t count, size_t size) {
    void **first = NULL, **block;
    for (; count > 0 && (block = (void **)malloc(size)) != NULL; count--) {
        memset(block, 0x5a, size);
        *block = first;
        first = block;
    }
    while ((block = first) != NULL) {
        first = (void **)*block;
        free(block);
    }
}

#endif
