/* blocks.h - filled and verified blocks, sizes at class boundaries, random numbers, resident memory.
 *
 * Every word of a filled block is derived from a key and the word's index; the key from the block's
 * address and a seed. A block that overlaps another, was handed out twice, lost bytes in a move or
 * was written after its free does not hold its pattern any more.
 *
 * Nothing here allocates except class_sizes, which asks the tested allocator.
 */
#ifndef HAK_TESTS_BLOCKS_H
#define HAK_TESTS_BLOCKS_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include "allocator.h"

#include <fcntl.h>

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GIB(n) ((size_t)(n) << 30)

static inline uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng) { return mix64(rng->state++); }

static inline size_t rng_below(struct rng *rng, size_t limit) { return (size_t)(rng_next(rng) % limit); }

/* Sizes as programs ask for them: mostly small, some to 64 KiB, one in SPAN_ONE_IN up to 4 MiB. */
static inline size_t rng_size(struct rng *rng, size_t span_one_in) {
    uint64_t dice = rng_next(rng);
    if (span_one_in && dice % span_one_in == 0) return KIB(64) + rng_below(rng, MIB(4) - KIB(64));
    dice = (dice >> 32) % 100;
    if (dice < 60) return 1 + rng_below(rng, 512);
    if (dice < 88) return 1 + rng_below(rng, KIB(8));
    return 1 + rng_below(rng, KIB(64));
}

static inline uint64_t block_key(const void *block, uint64_t seed) {
    return mix64((uint64_t)(uintptr_t)block ^ mix64(seed));
}

#define BLOCK_STEP 0xd1342543de82ef95u

static inline void block_fill(void *block, size_t bytes, uint64_t key) {
    unsigned char *to = (unsigned char *)block;
    uint64_t word = key;
    for (; bytes >= sizeof word; bytes -= sizeof word, to += sizeof word, word += BLOCK_STEP)
        memcpy(to, &word, sizeof word);
    for (; bytes > 0; bytes--, word >>= 8) *to++ = (unsigned char)word;
}

static inline bool block_holds(const void *block, size_t bytes, uint64_t key) {
    const unsigned char *from = (const unsigned char *)block;
    uint64_t word = key, difference = 0;
    for (; bytes >= sizeof word; bytes -= sizeof word, from += sizeof word, word += BLOCK_STEP) {
        uint64_t found;
        memcpy(&found, from, sizeof found);
        difference |= found ^ word;
    }
    for (; bytes > 0; bytes--, word >>= 8) difference |= (uint64_t)(*from++ ^ (unsigned char)word);
    return difference == 0;
}

static inline bool block_is_zero(const void *block, size_t bytes) {
    const unsigned char *from = (const unsigned char *)block;
    uint64_t found = 0, word;
    for (; bytes >= sizeof word; bytes -= sizeof word, from += sizeof word) {
        memcpy(&word, from, sizeof word);
        found |= word;
    }
    for (; bytes > 0; bytes--) found |= *from++;
    return found == 0;
}

static inline bool is_aligned(const void *block, size_t alignment) {
    return ((uintptr_t)block & (alignment - 1)) == 0;
}

/* The largest request of each size class up to LIMIT bytes, as far as hak_usable_size shows them,
 * in rising order; at most MOST of them (then evenly thinned). Returns how many. */
CHECK_UNUSED static size_t class_sizes(size_t *sizes, size_t most, size_t limit) {
    size_t count = 0, keep_one_in = 1, seen = 0;
    for (size_t request = 1; request <= limit; seen++) {
        void *block = hak_malloc(request);
        CHECK_AT(block != NULL, request);
        size_t usable = hak_usable_size(block);
        hak_free(block);
        CHECK_AT(usable >= request, request);
        if (seen % keep_one_in == 0) {
            if (count == most) {
                for (size_t i = 0; 2 * i < count; i++) sizes[i] = sizes[2 * i];
                count = (count + 1) / 2;
                keep_one_in *= 2;
            }
            sizes[count++] = usable;
        }
        request = usable + 1;
    }
    return count;
}

/* A field of /proc/self/status that is told in KiB, as bytes; 0 where it cannot be read. Unlike statm it does not count in pages, which
 * are the kernel's, and not those that an emulator plays. */
CHECK_UNUSED static size_t status_bytes(const char *field) {
    char text[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return 0;
    text[length] = '\0';
    const char *at = strstr(text, field);
    return at != NULL ? (size_t)strtoul(at + strlen(field), NULL, 10) << 10 : 0;
}

CHECK_UNUSED static size_t address_space_bytes(void) { return status_bytes("VmSize:"); }
CHECK_UNUSED static size_t resident_bytes(void) { return status_bytes("VmRSS:"); }

/* Resident memory must not have grown by more than SLACK bytes since it was BEFORE. */
#define CHECK_RESIDENT(before, slack)                                                                        \
    do {                                                                                                     \
        size_t check_resident = resident_bytes();                                                            \
        if (!CHECK_SHADOWED && check_resident > (before) + (slack)) {                                        \
            check_say("FAIL %s: %s:%d resident memory grew from %zu to %zu KiB", check_now.name, __FILE__,   \
                      __LINE__, (size_t)(before) >> 10, check_resident >> 10);                               \
            check_leave(CHECK_FAILED);                                                                       \
        }                                                                                                    \
    } while (0)

#endif
