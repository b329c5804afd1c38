/* bitmaps.h - bitmaps for slabs of more than 64 blocks, in pairs: the owner's, and another for remote
 * threads at a fixed distance, in memory that stays untouched until one of them writes. */
#ifndef HAK_SLAB_BITMAPS_H
#define HAK_SLAB_BITMAPS_H

#include <stdint.h>

/* A pair of at least WORDS words each, both all zero: the owner's; NULL when there is no memory. */
uint64_t *bitmap_take(unsigned words);

/* The remote one of the pair. */
_Atomic uint64_t *bitmap_remote(uint64_t *bitmap);

/* Returns a pair of WORDS words. Its remote one is all zero. */
void bitmap_give(uint64_t *bitmap, unsigned words);

/* For fork. */
void bitmaps_lock(void);
void bitmaps_unlock(void);
void bitmaps_lock_reset(void);

#endif
