/* slab.c - making slabs, taking blocks out of them, putting blocks back. */
#include "slab/slab.h"

#include "base/bits.h"
#include "os/assert.h"
#include "os/os.h"
#include "region/books.h"
#include "region/colour.h"
#include "slab/bitmaps.h"

_Static_assert(sizeof(struct slab) <= SPAN_RECORD_BYTES, "a slab's record is one line");
_Static_assert(sizeof(struct slab_remote) <= REMOTE_RECORD_BYTES, "a remote record is as long as the window says");

#define CLASS_ROW(index, bytes, page_count, block_count, multiplier, shift)                          \
    [index] = {.block_bytes = bytes,                                                               \
               .blocks = block_count,                                                              \
               .pages = page_count,                                                                \
               .inverse_shift = shift,                                                             \
               .inverse = multiplier},
const struct slab_class slab_classes[SIZE_CLASSES] = {SIZE_CLASS_TABLE(CLASS_ROW)};

/* The two ways in which a freed pointer can turn out to be wrong. */
static HAK_COLD _Noreturn void report_not_a_block(const void *block, uint32_t block_bytes) {
    os_panic("free of %p: it points into a slab of %u-byte blocks, but not to the start of one in use",
             block, block_bytes);
}

static HAK_COLD _Noreturn void report_double_free(const void *block, uint32_t block_bytes) {
    os_panic("free of %p: this %u-byte block was already free", block, block_bytes);
}

static unsigned words_of(const struct slab_class *class) { return (class->blocks + 63u) / 64; }

/* Pages of a slab in which blocks may start: their words and records say where they belong. */
static uint32_t named_pages(const struct slab_class *class) { return class->blocks == 1 ? 1 : class->pages; }

/* relaxed: the search for holes looks again. */
HAK_INLINE void mark_changed(struct slab *slab) {
    atomic_store_explicit(&slab->age, SLAB_CHANGED, memory_order_relaxed);
}

/* ---- life of a slab ----------------------------------------------------------------------------- */

uint32_t slab_create(unsigned class, enum ace_fill fill) {
    const struct slab_class *shape = &slab_classes[class];
    uint64_t *bits = NULL;
    if (shape->blocks > 64) {
        bits = bitmap_take(words_of(shape));
        if (HAK_UNLIKELY(bits == NULL) && span_make_gaps(BOOKS_MAPPING_BYTES / PAGE_BYTES)) bits = bitmap_take(words_of(shape));
        if (bits == NULL) return 0;
    }
    uint32_t first = span_take(shape->pages, 1, fill);
    if (first == 0) {
        if (bits != NULL) bitmap_give(bits, words_of(shape));
        return 0;
    }
    struct slab *slab = slab_at(first);
    slab->span.class = (uint8_t)class;
    slab->free = shape->blocks;
    slab->carved = 0;
    slab->low_word = 0;
    mark_changed(slab);
    slab->inline_bits = 0;
    slab->bits = bits != NULL ? bits : &slab->inline_bits;
    for (uint32_t page = first; page < first + named_pages(shape); page++) span_at(page)->head = first;
    return first;
}

void slab_set_owner(uint32_t first, struct heap *owner, uint32_t word) {
    struct slab *slab = slab_at(first);
    /* release: a freer that reads the new owner, and queues the slab there, sees it whole. */
    atomic_store_explicit(&slab->owner, owner, memory_order_release);
    const uint32_t end = first + named_pages(&slab_classes[slab->span.class]);
    for (uint32_t page = first; page < end; page++) page_word_set(page, word);
}

HAK_INLINE void disown(uint32_t first, uint32_t pages) {
    /* relaxed: only the holder of the owner's lock recognises its own slabs by this. */
    atomic_store_explicit(&slab_at(first)->owner, NULL, memory_order_relaxed);
    for (uint32_t page = first; page < first + pages; page++) page_word_set(page, 0);
}

void slab_disown(uint32_t first) { disown(first, named_pages(&slab_classes[slab_at(first)->span.class])); }

void slab_release(uint32_t first) {
    struct slab *slab = slab_at(first);
    const struct slab_class *shape = &slab_classes[slab->span.class];
    HAK_ASSERT(slab->free == shape->blocks);
    disown(first, named_pages(shape));
    if (slab->bits != &slab->inline_bits) bitmap_give(slab->bits, words_of(shape));
    span_give(first);
}

/* ---- the owner's side --------------------------------------------------------------------------- */

/* Stores COUNT neighbours downward from END, four at a time. Returns where the last went. */
HAK_INLINE void **store_run(void **end, char *block, size_t bytes, uint32_t count) {
    for (; count >= 4; count -= 4, end -= 4, block += 4 * bytes) {
        end[-1] = block;
        end[-2] = block + bytes;
        end[-3] = block + 2 * bytes;
        end[-4] = block + 3 * bytes;
    }
    for (; count != 0; count--, block += bytes) *--end = block;
    return end;
}

uint32_t slab_take(uint32_t first, void **end, uint32_t want) {
    struct slab *slab = slab_at(first);
    const struct slab_class *shape = &slab_classes[slab->span.class];
    const uint32_t block_bytes = shape->block_bytes;
    char *start = page_address(first);
    uint32_t left = min_u32(want, slab->free);
    const uint32_t taken = left;

    uint32_t from_bits = min_u32(left, slab_returned(first));
    uint32_t word = slab->low_word;
    left -= from_bits;
    for (void **const stop = end - from_bits; end != stop;) {
        uint64_t bits = slab->bits[word];
        char *block = start + (size_t)word * 64 * block_bytes;
        if (bits == ~(uint64_t)0 && end - stop >= 64) { /* common, and a third of the work */
            end = store_run(end, block, block_bytes, 64);
            bits = 0;
        }
        while (bits != 0 && end != stop) {
            *--end = block + (size_t)lowest_bit(bits) * block_bytes;
            bits &= bits - 1;
        }
        slab->bits[word] = bits;
        if (bits == 0) word++;
    }
    slab->low_word = word;

    store_run(end, start + (size_t)slab->carved * block_bytes, block_bytes, left);
    slab->carved += left;

    slab->free -= taken;
    mark_changed(slab);
    return taken;
}

bool slab_next_is_zero(uint32_t first) {
    const struct slab *slab = slab_at(first);
    return slab->span.zero && slab_returned(first) == 0;
}

/* The number of the block at OFFSET in a slab. When OFFSET is not a multiple of the block size, or lies outside
 * the slab on either side, the result is not below the number of blocks: multiplying by the inverse modulo
 * 2^64 divides multiples exactly and sends everything else beyond them (Warren, Hacker's Delight, 10-17). */
HAK_INLINE uint64_t block_number(uint64_t offset, uint64_t inverse, unsigned shift) {
    uint64_t product = offset * inverse;
    return product >> shift | product << (64 - shift);
}

HAK_INLINE bool lies_in(const void *block, uint32_t first, const struct slab_class *shape) {
    return (uintptr_t)block - (uintptr_t)page_address(first) < shape->pages * PAGE_BYTES;
}

/* The address from which the slab's blocks are counted if BLOCK is one: a medium block may begin behind the start of
 * its page. Whether it does is not recorded, so both addresses are accepted. */
HAK_INLINE uintptr_t start_for(uint32_t first, const struct slab_class *shape, const void *block) {
    const uintptr_t start = (uintptr_t)page_address(first);
    return shape->blocks == 1 && (uintptr_t)block == start + colour_of((const void *)start) ? (uintptr_t)block : start;
}

/* These read the block again, so that the loop below need not keep it. */
static HAK_COLD _Noreturn void report_double_free_at(void *const volatile *block, const struct slab_class *shape) {
    report_double_free(*block, shape->block_bytes);
}

/* *AT is not a block of this slab: it is another slab's, or invalid. */
static HAK_NOINLINE void check_foreign(void *const volatile *at, uint32_t first, const struct slab_class *shape) {
    void *block = *at;
    if (HAK_UNLIKELY(lies_in(block, first, shape))) report_not_a_block(block, shape->block_bytes);
}

size_t slab_put(uint32_t first, void *const *blocks, size_t count) {
    struct slab *slab = slab_at(first);
    const struct slab_class *shape = &slab_classes[slab->span.class];
    const uintptr_t start = start_for(first, shape, *blocks);
    const uint64_t inverse = shape->inverse, carved = slab->carved;
    const unsigned shift = shape->inverse_shift; /* held in a register, as is all that the loop needs */
    uint64_t *const words = slab->bits;

    uint64_t number = block_number((uintptr_t)*blocks - start, inverse, shift);
    if (HAK_UNLIKELY(number >= carved)) report_not_a_block(*blocks, shape->block_bytes);
    uint64_t word = number / 64, bits = words[word];
    uint32_t low_word = min_u32(slab->low_word, (uint32_t)word);
    void *const *at = blocks, *const *const end = blocks + count;
    do { /* what ended the loop is determined after it: that needs no registers here */
        number = block_number((uintptr_t)*at - start, inverse, shift);
        if (HAK_UNLIKELY(number >= carved)) break;
        if (HAK_UNLIKELY(number / 64 != word)) {
            words[word] = bits;
            word = number / 64;
            bits = words[word];
            low_word = min_u32(low_word, (uint32_t)word);
        }
        if (HAK_UNLIKELY(set_bit(&bits, number))) report_double_free_at(at, shape);
    } while (++at != end);
    if (at != end) check_foreign(at, first, shape);
    words[word] = bits;
    slab->low_word = low_word;
    slab->free += (uint32_t)(at - blocks);
    mark_changed(slab);
    return (size_t)(at - blocks);
}

/* ---- the remote side ---------------------------------------------------------------------------- */

static _Atomic uint64_t *remote_bits(uint32_t first, const struct slab_class *shape) {
    return shape->blocks > 64 ? bitmap_remote(slab_at(first)->bits) : &slab_remote_at(first)->inline_bits;
}

/* release: what the freeing thread did with the blocks came before; pairs with the acquire in slab_drain. */
static void give_bits(_Atomic uint64_t *word, uint64_t bits, const void *block, uint32_t block_bytes) {
    uint64_t before = atomic_fetch_or_explicit(word, bits, memory_order_release);
    if (HAK_UNLIKELY((before & bits) != 0)) report_double_free(block, block_bytes);
}

/* On a cache line of its own: seldom written, and read by all threads that free blocks of other heaps. */
static struct {
    HAK_ALIGNED(HAK_CACHE_LINE) _Atomic bool expected;
} child;

/* relaxed, both: one more block that is written to costs a copied page at most. */
void slab_expect_child(bool expected) { atomic_store_explicit(&child.expected, expected, memory_order_relaxed); }

/* Not if several blocks share a cache line: other threads write to that. */
static bool is_rewritten(uint32_t block_bytes) {
    return block_bytes >= HAK_CACHE_LINE && !atomic_load_explicit(&child.expected, memory_order_relaxed);
}

/* A cache line that one thread wrote and another only read is in both caches, and the next write to it waits until it
 * is in one again: several times as long as for a line that the other had written, too. So a block that is returned
 * to its owner is rewritten here, where no thread waits for it, with what it holds. */
HAK_INLINE void rewrite(void *block) {
    volatile uint64_t *word = block;
    *word = *word;
}

/* Until the last bit is given, one of the slab's blocks is this thread's, so the slab stays what it is; nothing of it
 * is read afterwards. */
size_t slab_put_remote(uint32_t first, void *const *blocks, size_t count) {
    const struct slab_class *shape = &slab_classes[slab_at(first)->span.class];
    _Atomic uint64_t *words = remote_bits(first, shape);
    const uintptr_t start = start_for(first, shape, *blocks);
    const bool rewritten = is_rewritten(shape->block_bytes);
    uint64_t word = 0, bits = 0;
    void *const *at = blocks;
    for (void *const *end = blocks + count; at != end; at++) {
        uint64_t number = block_number((uintptr_t)*at - start, shape->inverse, shape->inverse_shift);
        if (number >= shape->blocks) { /* another slab's, or invalid */
            if (HAK_UNLIKELY(lies_in(*at, first, shape))) report_not_a_block(*at, shape->block_bytes);
            break;
        }
        if (rewritten) rewrite(*at);
        if (number / 64 != word) {
            if (bits != 0) give_bits(&words[word], bits, at[-1], shape->block_bytes);
            word = number / 64;
            bits = 0;
        }
        if (HAK_UNLIKELY(set_bit(&bits, number))) report_double_free(*at, shape->block_bytes);
    }
    if (bits != 0) give_bits(&words[word], bits, at[-1], shape->block_bytes);
    return (size_t)(at - blocks);
}

uint32_t slab_drain(uint32_t first) {
    struct slab *slab = slab_at(first);
    const struct slab_class *shape = &slab_classes[slab->span.class];
    _Atomic uint64_t *words = remote_bits(first, shape);
    uint32_t drained = 0;
    for (unsigned word = 0; word < words_of(shape); word++) {
        /* relaxed: a bit that is missed here belongs to a freer that will queue the slab again. */
        if (atomic_load_explicit(&words[word], memory_order_relaxed) == 0) continue;
        /* acquire: pairs with the release in give_bits. */
        uint64_t bits = atomic_exchange_explicit(&words[word], 0, memory_order_acquire);
        if (HAK_UNLIKELY(bits != 0 && word * 64 + highest_bit(bits) >= slab->carved))
            report_not_a_block((char *)page_address(first) + (word * 64 + highest_bit(bits)) * (size_t)shape->block_bytes,
                               shape->block_bytes);
        if (HAK_UNLIKELY((slab->bits[word] & bits) != 0))
            report_double_free((char *)page_address(first) +
                                   (word * 64 + lowest_bit(slab->bits[word] & bits)) * (size_t)shape->block_bytes,
                               shape->block_bytes);
        slab->bits[word] |= bits;
        drained += count_bits(bits);
        if (word < slab->low_word) slab->low_word = word;
    }
    slab->free += drained;
    mark_changed(slab);
    return drained;
}
