/* contents.c - patterns: see contents.h. */
#include "contents.h"

#include <string.h>

enum { WORD = sizeof(uint64_t), DENSE = 64 * 1024, EDGE = 512, STRIDE = 16 * 1024, MUCH = 32 * 1024 * 1024 };

/* The place of the word that is written after the one at AT. */
static size_t next_place(size_t at, size_t bytes) {
    if (bytes <= DENSE || at + WORD < EDGE || at + WORD >= bytes - EDGE) return at + WORD;
    size_t stride = bytes <= MUCH ? STRIDE : MUCH, there = (at / stride + 1) * stride;
    return there < bytes - EDGE ? there : bytes - EDGE;
}

static uint64_t word_at(size_t place, uint64_t key) { return (key + place) * 0xd1342543de82ef95u ^ key >> 32; }

/* Usable sizes are multiples of a word, as the model sees to. */
void contents_write(void *start, size_t bytes, uint64_t key) {
    for (size_t at = 0; at + WORD <= bytes; at = next_place(at, bytes)) {
        uint64_t word = word_at(at, key);
        memcpy((char *)start + at, &word, WORD);
    }
}

bool contents_hold(const void *start, size_t bytes, size_t limit, uint64_t key) {
    uint64_t difference = 0;
    for (size_t at = 0; at + WORD <= limit; at = next_place(at, bytes)) {
        uint64_t found;
        memcpy(&found, (const char *)start + at, WORD);
        difference |= found ^ word_at(at, key);
    }
    return difference == 0;
}

bool contents_are_zero(const void *start, size_t bytes) {
    const char *from = start;
    uint64_t found = 0, word;
    size_t step = bytes <= DENSE ? WORD : EDGE, at = 0;
    for (; at + WORD <= bytes && at < MUCH; at += step) {
        memcpy(&word, from + at, WORD);
        found |= word;
    }
    for (at = bytes < EDGE ? 0 : bytes - EDGE; at < bytes; at++) found |= (unsigned char)from[at];
    return found == 0;
}
