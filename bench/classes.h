/* classes.h - sizes so close to each other that no allocator's size class is left out: every 16 bytes up to 1 KiB, and
 * eight to a doubling up to 64 KiB. */
#ifndef BENCH_CLASSES_H
#define BENCH_CLASSES_H

#include "workload.h"

#define CLASSES_MAX 256

/* Returns how many there are. */
static inline unsigned classes_list(uint64_t *sizes) {
    unsigned count = 0;
    for (uint64_t bytes = 16; bytes <= 1024; bytes += 16) sizes[count++] = bytes;
    for (uint64_t octave = 1024; octave < 65536; octave *= 2) {
        for (unsigned step = 1; step <= 8; step++) sizes[count++] = octave + step * octave / 8;
    }
    return count;
}

static inline void numbers_shuffle(uint64_t *numbers, unsigned count, uint64_t *random) {
    for (unsigned i = count; i > 1; i--) {
        uint64_t other = random_low(random_next(random), i);
        uint64_t number = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = number;
    }
}

#endif
