/* bitmaps.c - four sizes, 8 to 64 words, cut from one area, each with a list of pairs that were returned. */
#include "slab/bitmaps.h"

#include "base/bits.h"
#include "os/os.h"
#include "region/books.h"

#include <stdatomic.h>
#include <string.h>

#define HALF_BYTES HAK_KIB(32) /* distance between the two of a pair */
#define FIRST_BYTES HAK_KIB(4) /* holds the bitmap of one slab of each class */

enum { LEAST_LOG = 3, SIZES = 4 };

static struct {
    struct os_lock lock;
    uint64_t *given[SIZES]; /* linked through the first word of the owner's bitmap */
    char *next;             /* rest of the area that new ones are cut from */
    char *end;
} bitmaps;

void bitmaps_lock(void) { os_lock_take(&bitmaps.lock); }
void bitmaps_unlock(void) { os_lock_drop(&bitmaps.lock); }
void bitmaps_lock_reset(void) { os_lock_reset(&bitmaps.lock); }

static unsigned size_of(unsigned words) {
    return words <= 1u << LEAST_LOG ? 0 : highest_bit(words - 1) + 1 - LEAST_LOG;
}

/* One of SIZE that was returned; NULL where there is none. Lock held. */
static uint64_t *take_given(unsigned size) {
    uint64_t *bitmap = bitmaps.given[size];
    if (bitmap == NULL) return NULL;
    bitmaps.given[size] = (uint64_t *)(uintptr_t)bitmap[0];
    bitmap[0] = 0;
    return bitmap;
}

uint64_t *bitmap_take(unsigned words) {
    unsigned size = size_of(words);
    size_t bytes = (size_t)8 << (LEAST_LOG + size);
    bitmaps_lock();
    uint64_t *result = take_given(size);
    if (result == NULL) {
        if ((size_t)(bitmaps.end - bitmaps.next) < bytes) {
            char *area = books_take(2 * HALF_BYTES);
            if (area != NULL) {
                bitmaps.next = area;
                bitmaps.end = area + HALF_BYTES;
                os_populate(area, FIRST_BYTES);
            }
        }
        if ((size_t)(bitmaps.end - bitmaps.next) >= bytes) {
            result = (uint64_t *)(void *)bitmaps.next;
            bitmaps.next += bytes;
        }
        /* Where there is no more memory, a longer one will do. It is then one of this size. */
        while (result == NULL && ++size < SIZES) result = take_given(size);
    }
    bitmaps_unlock();
    return result;
}

_Atomic uint64_t *bitmap_remote(uint64_t *bitmap) {
    return (_Atomic uint64_t *)(void *)((char *)bitmap + HALF_BYTES);
}

void bitmap_give(uint64_t *bitmap, unsigned words) {
    unsigned size = size_of(words);
    memset(bitmap, 0, words * sizeof *bitmap);
    bitmaps_lock();
    bitmap[0] = (uintptr_t)bitmaps.given[size];
    bitmaps.given[size] = bitmap;
    bitmaps_unlock();
}
