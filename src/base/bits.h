/* bits.h - arithmetic on words and powers of two. Every argument named POWER is a power of two. */
#ifndef HAK_BASE_BITS_H
#define HAK_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

static inline size_t round_up(size_t n, size_t power) { return (n + power - 1) & ~(power - 1); }

static inline size_t round_down(size_t n, size_t power) { return n & ~(power - 1); }

static inline size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

static inline size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static inline uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Index of the lowest set bit; WORD is not 0. */
static inline unsigned lowest_bit(uint64_t word) { return (unsigned)__builtin_ctzll(word); }

/* Index of the highest set bit; WORD is not 0. */
static inline unsigned highest_bit(uint64_t word) { return 63u - (unsigned)__builtin_clzll(word); }

/* Bits set. Baseline x86-64 has no instruction for it and compilers call a function with a table. */
static inline unsigned count_bits(uint64_t word) {
#if defined(__x86_64__) && !defined(__POPCNT__)
    word -= word >> 1 & 0x5555555555555555u;
    word = (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return (unsigned)(word * 0x0101010101010101u >> 56);
#else
    return (unsigned)__builtin_popcountll(word);
#endif
}

/* Sets bit N of *WORD, N taken modulo 64; true when it was set already. For x86-64 compilers generate five
 * instructions, and take a register that the loops around it need for something else. */
static inline bool set_bit(uint64_t *word, uint64_t n) {
    bool was_set;
#if defined(__x86_64__)
    __asm__("btsq %2, %0" : "+r"(*word), "=@ccc"(was_set) : "r"(n));
#else
    uint64_t bit = (uint64_t)1 << (n % 64);
    was_set = (*word & bit) != 0;
    *word |= bit;
#endif
    return was_set;
}

/* A word whose bits FIRST .. FIRST+COUNT-1 are set; 0 < COUNT, FIRST + COUNT <= 32. */
static inline uint32_t bit_range(unsigned first, unsigned count) {
    return (uint32_t)((((uint64_t)1 << count) - 1) << first);
}

#endif
