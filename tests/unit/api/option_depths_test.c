/* option_depths_test.c - a number of blocks for each size class, from text and back.
 *
 * Planted defects it was seen to catch:
 *   a size that no class has is taken for the next   what_is_wrong_is_refused
 *   the second of two settings of a size counts      what_is_wrong_is_refused
 *   the last size is not written                     what_is_written_is_read_back
 */
#include "api/options.h"
#include "blocks.h"

static const struct option_info *info(void) { return &option_infos[OPTION_bin_depth]; }

static uint16_t depths[SIZE_CLASSES];

static enum option_verdict parse(const char *text) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) depths[class] = 4711;
    return option_parse_depths(info(), text, strlen(text), depths);
}

/* Only class 3 has a depth, and only this. */
static bool is_alone(uint16_t depth) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        if (depths[class] != (class == 3 ? depth : 0)) return false;
    return true;
}

TEST(one_for_all) {
    CHECK_EQ(parse("64"), OPTION_VALID);
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        CHECK_AT(depths[class] == (class < SMALL_CLASSES ? 64 : OPTION_AUTO), class);
    CHECK_EQ(parse("auto"), OPTION_VALID);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) CHECK_AT(depths[class] == OPTION_AUTO, class);
}

TEST(by_the_size_of_blocks) {
    static const char *const same[] = {"64:512", "64B:512", "064:0512"};
    for (size_t i = 0; i < 3; i++) CHECK_AT(parse(same[i]) == OPTION_VALID && is_alone(512), i);
    CHECK_EQ(parse("64:512+1040:128+64K:8"), OPTION_VALID);
    CHECK(depths[3] == 512 && depths[31] == 128 && depths[SMALL_CLASSES - 1] == 8 && depths[0] == 0);
    CHECK_EQ(parse("1M:3+128K:5"), OPTION_VALID);
    CHECK(depths[SMALL_CLASSES] == 5 && depths[SIZE_CLASSES - 1] == 3 && depths[SMALL_CLASSES - 1] == 0);
    CHECK_EQ(parse("1040:128+16:1"), OPTION_VALID); /* in any order */
    CHECK(depths[31] == 128 && depths[0] == 1);
}

TEST(what_is_wrong_is_refused) {
    static const struct {
        const char *text;
        enum option_verdict verdict;
    } cases[] = {
        {"", OPTION_MALFORMED},           {"64:", OPTION_MALFORMED},         {":5", OPTION_MALFORMED},
        {"64:5+", OPTION_MALFORMED},      {"+64:5", OPTION_MALFORMED},       {"64:5++80:5", OPTION_MALFORMED},
        {"64:5+80", OPTION_MALFORMED},    {"64:5:6", OPTION_MALFORMED},      {"64:auto", OPTION_MALFORMED},
        {"64:5+64:6", OPTION_MALFORMED},  {"64:5 80:6", OPTION_MALFORMED},   {"64:5;80:6", OPTION_MALFORMED},
        {"x:5", OPTION_MALFORMED},        {"64:x", OPTION_MALFORMED},        {"-64:5", OPTION_MALFORMED},
        {"64:0", OPTION_OUT_OF_RANGE},    {"64:8193", OPTION_OUT_OF_RANGE},  {"0:5", OPTION_OUT_OF_RANGE},
        {"60:5", OPTION_OUT_OF_RANGE},    {"65552:5", OPTION_OUT_OF_RANGE},  {"2M:5", OPTION_OUT_OF_RANGE},
        {"100K:5", OPTION_OUT_OF_RANGE},  {"1048577:5", OPTION_OUT_OF_RANGE},
        {"64:5+60:5", OPTION_OUT_OF_RANGE}, {"0", OPTION_OUT_OF_RANGE},      {"8193", OPTION_OUT_OF_RANGE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK_AT(parse(cases[i].text) == cases[i].verdict, i);
        for (unsigned class = 0; class < SIZE_CLASSES; class++) CHECK_AT(depths[class] == 4711, i); /* untouched */
    }
}

/* As hakmem.h promises. */
TEST(the_longest_fits_in_1000_bytes) {
    uint16_t written[SIZE_CLASSES];
    char text[1000];
    CHECK(sizeof text <= OPTION_VALUE_BYTES && OPTION_PATH_BYTES <= sizeof text);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) written[class] = 8192;
    option_format_depths(info(), written, text, sizeof text);
    CHECK_EQ(parse(text), OPTION_VALID);
    CHECK_EQ(memcmp(depths, written, sizeof written), 0);
}

TEST(what_is_written_is_read_back) {
    struct rng rng = {check_now.seed};
    for (size_t round = 0; round < check_count(2000); round++) {
        uint16_t written[SIZE_CLASSES];
        char text[OPTION_VALUE_BYTES];
        for (unsigned class = 0; class < SIZE_CLASSES; class++)
            written[class] = rng_below(&rng, 4) < round % 5 ? (uint16_t)(1 + rng_below(&rng, 8192)) : 0;
        option_format_depths(info(), written, text, sizeof text);
        CHECK_AT(strlen(text) < sizeof text - 1, round);
        CHECK_AT(parse(text) == OPTION_VALID, round);
        CHECK_AT(memcmp(depths, written, sizeof written) == 0, round);
    }
    char text[OPTION_VALUE_BYTES];
    CHECK_EQ(parse("64:512+1040:128"), OPTION_VALID);
    option_format_depths(info(), depths, text, sizeof text);
    CHECK(strcmp(text, "64:512+1040:128") == 0);
    CHECK_EQ(parse("77"), OPTION_VALID);
    option_format_depths(info(), depths, text, sizeof text);
    CHECK(strcmp(text, "77") == 0);
}

/* The longest value fits, and a buffer that is too short cuts it. */
TEST(no_text_is_longer_than_its_buffer) {
    char text[OPTION_VALUE_BYTES + 1];
    for (unsigned class = 0; class < SIZE_CLASSES; class++) depths[class] = (uint16_t)(8000 + class);
    option_format_depths(info(), depths, text, OPTION_VALUE_BYTES);
    const size_t length = strlen(text);
    CHECK(length < OPTION_VALUE_BYTES - 1 && strncmp(text, "16:8000+32:8001+", 16) == 0);
    char whole[OPTION_VALUE_BYTES];
    memcpy(whole, text, length + 1);
    for (size_t bytes = 1; bytes <= length; bytes++) {
        memset(text, '#', sizeof text);
        option_format_depths(info(), depths, text, bytes);
        CHECK_AT(strlen(text) == bytes - 1 && strncmp(text, whole, bytes - 1) == 0 && text[bytes] == '#', bytes);
    }

}

TEST(it_is_set_at_the_start) {
    char value[OPTION_VALUE_BYTES];
    CHECK(hak_option_get("bin_depth", value, sizeof value) == 0 && strcmp(value, "auto") == 0);
    CHECK(hak_option_set("bin_depth", "64:5") == -1 && errno == EPERM);
}
