/* bits_test.c - arithmetic on words, compared with loops that count bit by bit.
 *
 * Planted defects it was seen to catch:
 *   bit_range shifts a 32-bit one                bit_ranges_hold_exactly_their_bits (32 bits)
 *   highest_bit counts from the wrong end        bits_of_a_word
 *   round_up adds a whole power                  rounding
 */
#include "base/bits.h"
#include "blocks.h"

static void check_word(uint64_t word) {
    unsigned lowest = 64, highest = 64, count = 0;
    for (unsigned bit = 0; bit < 64; bit++) {
        if ((word >> bit & 1) == 0) continue;
        if (lowest == 64) lowest = bit;
        highest = bit;
        count++;
    }
    CHECK_AT(count_bits(word) == count, word);
    CHECK_AT(is_power_of_two(word) == (count == 1), word);
    if (word == 0) return;
    CHECK_AT(lowest_bit(word) == lowest, word);
    CHECK_AT(highest_bit(word) == highest, word);
}

TEST(bits_of_a_word) {
    struct rng rng = {check_now.seed};
    check_word(0);
    check_word(UINT64_MAX);
    for (unsigned bit = 0; bit < 64; bit++) {
        check_word((uint64_t)1 << bit);
        check_word(((uint64_t)1 << bit) - 1);
        check_word(UINT64_MAX << bit);
    }
    for (size_t i = 0; i < 10000; i++) check_word(rng_next(&rng) & rng_next(&rng));
}

TEST(bit_ranges_hold_exactly_their_bits) {
    for (unsigned first = 0; first < 32; first++) {
        for (unsigned count = 1; first + count <= 32; count++) {
            uint32_t expected = 0;
            for (unsigned bit = first; bit < first + count; bit++) expected |= (uint32_t)1 << bit;
            CHECK_AT(bit_range(first, count) == expected, first * 100 + count);
        }
    }
}

TEST(rounding) {
    for (unsigned log = 0; log < 20; log++) {
        size_t power = (size_t)1 << log;
        for (size_t n = 0; n < 3000; n++) {
            size_t multiple = n / power * power;
            CHECK_AT(round_down(n, power) == multiple, n);
            CHECK_AT(round_up(n, power) == (multiple == n ? n : multiple + power), n);
        }
        CHECK_EQ(round_down(SIZE_MAX, power), SIZE_MAX - (power - 1));
    }
}

TEST(smaller_and_larger) {
    const size_t values[] = {0, 1, 2, UINT32_MAX, (size_t)UINT32_MAX + 1, SIZE_MAX};
    for (size_t i = 0; i < 6; i++) {
        for (size_t j = 0; j < 6; j++) {
            size_t a = values[i], b = values[j];
            CHECK(min_size(a, b) == values[i < j ? i : j]);
            CHECK(max_size(a, b) == values[i < j ? j : i]);
            if (i > 3 || j > 3) continue;
            CHECK(min_u32((uint32_t)a, (uint32_t)b) == values[i < j ? i : j]);
            CHECK(max_u32((uint32_t)a, (uint32_t)b) == values[i < j ? j : i]);
        }
    }
}
