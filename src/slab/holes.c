/* holes.c - kernel pages inside a slab that are not needed. Free blocks hold nothing, so the pages that only they lie
 * on can be returned to the kernel. */
#include "base/bits.h"
#include "os/assert.h"
#include "os/os.h"
#include "slab/slab.h"

/* The first block at or after FROM, and before END, whose bit is SET; END when there is none. */
static uint32_t next_block(const uint64_t *bits, uint32_t from, uint32_t end, bool set) {
    while (from < end) {
        uint64_t word = (set ? bits[from / 64] : ~bits[from / 64]) >> (from % 64);
        if (word != 0) return min_u32(from + lowest_bit(word), end);
        from = from - from % 64 + 64;
    }
    return end;
}

static void change_bits(uint64_t *bits, uint32_t block, uint32_t blocks, bool set) {
    for (uint32_t end = block + blocks; block < end; block++) {
        uint64_t bit = (uint64_t)1 << (block % 64);
        bits[block / 64] = set ? bits[block / 64] | bit : bits[block / 64] & ~bit;
    }
}

/* Whether memory may back blocks that were never carved: something was there before, or a huge page is. */
static bool tail_is_present(uint32_t first) {
    return !slab_at(first)->span.zero || span_may_be_huge(first);
}

/* The whole kernel pages of the bytes START .. END of the slab, as a hole; false when there are none. */
static bool pages_between(uint32_t first, size_t start, size_t end, struct slab_hole *hole) {
    start = round_up(start, os_page_bytes());
    end = round_down(end, os_page_bytes());
    hole->start = (char *)page_address(first) + start;
    hole->bytes = start < end ? end - start : 0;
    return start < end;
}

/* The hole of the free blocks BLOCK .. END-1, and of what was never carved if it comes next. */
static bool hole_of(uint32_t first, uint32_t block, uint32_t end, struct slab_hole *hole) {
    const struct slab *slab = slab_at(first);
    const struct slab_class *shape = &slab_classes[slab->span.class];
    size_t end_byte = (size_t)end * shape->block_bytes;
    bool tail = end == slab->carved;
    /* Some block must be held back, otherwise the slab could be released while the kernel works on it. */
    if (block == end && (!tail || end == shape->blocks)) return false;
    if (tail) end_byte = tail_is_present(first) ? shape->pages * PAGE_BYTES : round_up(end_byte, os_page_bytes());
    hole->block = block;
    hole->blocks = end - block;
    hole->carved = tail ? slab->carved : UINT32_MAX;
    hole->held = hole->blocks + (tail ? shape->blocks - slab->carved : 0);
    return pages_between(first, (size_t)block * shape->block_bytes, end_byte, hole);
}

bool slab_hole_take(uint32_t first, uint32_t *from, struct slab_hole *hole) {
    struct slab *slab = slab_at(first);
    const struct slab_class *shape = &slab_classes[slab->span.class];
    if ((size_t)slab->free * shape->block_bytes < os_page_bytes()) return false;
    while (*from <= slab->carved) {
        uint32_t block = next_block(slab->bits, *from, slab->carved, true);
        uint32_t end = next_block(slab->bits, block, slab->carved, false);
        *from = end + 1;
        if (!hole_of(first, block, end, hole)) continue;
        change_bits(slab->bits, hole->block, hole->blocks, false);
        slab->free -= hole->held;
        if (hole->carved != UINT32_MAX) slab->carved = shape->blocks; /* no thread carves meanwhile */
        HAK_ASSERT(slab->free < shape->blocks);
        return true;
    }
    return false;
}

void slab_hole_give(uint32_t first, const struct slab_hole *hole, bool zeroed) {
    struct slab *slab = slab_at(first);
    const struct slab_class *shape = &slab_classes[slab->span.class];
    uint32_t end = hole->block + hole->blocks, freed = next_block(slab->bits, hole->block, end, true);
    if (HAK_UNLIKELY(freed != end))
        os_panic("free of %p: this %u-byte block was already free",
                 (char *)page_address(first) + (size_t)freed * shape->block_bytes, shape->block_bytes);
    change_bits(slab->bits, hole->block, hole->blocks, true);
    slab->low_word = min_u32(slab->low_word, hole->block / 64);
    slab->free += hole->held;
    if (hole->carved == UINT32_MAX) return;
    slab->carved = hole->carved;
    /* If the hole begins behind the end of the last carved block, the end of the kernel page before is as it was. */
    char *tail = (char *)page_address(first) + (size_t)hole->carved * shape->block_bytes;
    bool to_the_end = hole->start + hole->bytes == (char *)page_address(first) + shape->pages * PAGE_BYTES;
    if (zeroed && hole->start <= tail && to_the_end) slab->span.zero = true;
}
