/* size_classes.h - three small classes instead of 82, so that a slab is filled and emptied by a few operations: one with a
 * bitmap of two words, one of two blocks on a page, one over several pages; and two medium classes. Found before
 * src/base/size_classes.h. */
#ifndef HAK_BASE_SIZE_CLASSES_H
#define HAK_BASE_SIZE_CLASSES_H

#define SIZE_CLASSES 5
#define SMALL_CLASSES 3
#define ALIGNED_CLASS 2
#define ALIGNED_LEAST_BYTES 65536
#define SMALL_MAX_BYTES 65536
#define MEDIUM_MAX_BYTES 196608
#define SMALLEST_BLOCK_BYTES 16
#define SLAB_MAX_PAGES 4
#define SLAB_MAX_WORDS 2
#define SLABS_OF_SMALL_CLASSES_PAGES 6

/* As there: class, block bytes, pages of a slab, blocks in it, multiplier, rotation. */
#define SIZE_CLASS_TABLE(X)                                                                                            \
    X(0, 512, 1, 128, 0x0000000000000001u, 9)                                                                          \
    X(1, 32768, 1, 2, 0x0000000000000001u, 15)                                                                         \
    X(2, 65536, 4, 4, 0x0000000000000001u, 16)                                                                         \
    X(3, 131072, 2, 1, 0x0000000000000001u, 17)                                                                        \
    X(4, 196608, 3, 1, 0xaaaaaaaaaaaaaaabu, 16)

#define SIZE_CLASS_LOOKUP [0 ... 32] = 0, [33 ... 2048] = 1, [2049 ... 4096] = 2,
#define ALIGNED_CLASS_LOOKUP [1] = 2,
#define MEDIUM_CLASS_LOOKUP [2] = 3, [3] = 4,

#endif
