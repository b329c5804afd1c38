/* option_depths.c - a number of blocks for each size class, from text and back: one number for all small classes (`64`), or one by
 * block size (`64:512+1040:128`). A number for all does not include medium blocks, since that many of them might be more memory than
 * all the rest; they must be named. Pure functions, as in option_values.c. */
#include "api/setting.h"

#define BLOCK_BYTES(class, bytes, ...) bytes,
static const uint32_t block_bytes[SIZE_CLASSES] = {SIZE_CLASS_TABLE(BLOCK_BYTES)};

/* A size class is named by the exact size of its blocks: if it had several names, two items could contradict each other. */
static const struct option_info block_size = {.type = OPTION_TYPE_BYTES, .minimum = 1, .maximum = MEDIUM_MAX_BYTES};

static unsigned class_of_block(uint64_t bytes) {
    unsigned class = 0;
    while (class < SIZE_CLASSES && block_bytes[class] != bytes) class++;
    return class;
}

/* How many bytes precede STOP in LENGTH bytes at TEXT. */
static size_t length_to(const char *text, size_t length, char stop) {
    size_t at = 0;
    while (at < length && text[at] != stop) at++;
    return at;
}

/* BYTES:DEPTH. */
static enum option_verdict parse_item(const struct option_info *info, const char *text, size_t length,
                                      uint16_t depths[SIZE_CLASSES]) {
    uint64_t bytes, depth;
    size_t colon = length_to(text, length, ':');
    if (colon == length) return OPTION_MALFORMED;
    enum option_verdict verdict = option_parse(&block_size, text, colon, &bytes);
    if (verdict == OPTION_VALID) verdict = option_parse(info, text + colon + 1, length - colon - 1, &depth);
    if (verdict != OPTION_VALID) return verdict;
    unsigned class = class_of_block(bytes);
    if (class == SIZE_CLASSES) return OPTION_OUT_OF_RANGE;
    if (depths[class] != 0 || depth == 0) return OPTION_MALFORMED; /* given twice; or `auto`, which is the default */
    depths[class] = (uint16_t)depth;
    return OPTION_VALID;
}

static enum option_verdict parse_all(const struct option_info *info, const char *text, size_t length,
                                     uint16_t depths[SIZE_CLASSES]) {
    uint64_t depth;
    enum option_verdict verdict = option_parse(info, text, length, &depth);
    for (unsigned class = 0; verdict == OPTION_VALID && class < SMALL_CLASSES; class++) depths[class] = (uint16_t)depth;
    return verdict;
}

enum option_verdict option_parse_depths(const struct option_info *info, const char *text, size_t length,
                                        uint16_t depths[SIZE_CLASSES]) {
    uint16_t read[SIZE_CLASSES] = {0};
    enum option_verdict verdict = OPTION_VALID;
    if (length_to(text, length, ':') == length) {
        verdict = parse_all(info, text, length, read);
    } else {
        for (size_t at = 0; verdict == OPTION_VALID && at <= length;) {
            size_t item = length_to(text + at, length - at, '+');
            verdict = parse_item(info, text + at, item, read);
            at += item + 1;
        }
    }
    for (unsigned class = 0; verdict == OPTION_VALID && class < SIZE_CLASSES; class++) depths[class] = read[class];
    return verdict;
}

/* Whether all small classes have the same number, and the others are `auto`. */
static bool are_equal(const uint16_t depths[SIZE_CLASSES]) {
    for (unsigned class = 1; class < SIZE_CLASSES; class++)
        if (depths[class] != (class < SMALL_CLASSES ? depths[0] : OPTION_AUTO)) return false;
    return true;
}

void option_format_depths(const struct option_info *info, const uint16_t depths[SIZE_CLASSES], char *buffer, size_t bytes) {
    if (are_equal(depths)) {
        option_format(info, depths[0], buffer, bytes);
        return;
    }
    struct sink sink = sink_open(buffer, bytes);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        if (depths[class] == 0) continue;
        if (sink.at != buffer) sink_put(&sink, "+");
        sink_put_number(&sink, block_bytes[class]);
        sink_put(&sink, ":");
        sink_put_number(&sink, depths[class]);
    }
}
