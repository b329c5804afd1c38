/* option_values_test.c - tests of src/api/option_values.c, and of every row of the table by them. */
#include "api/options.h"

#include "check.h"

static const struct option_info *info_of(enum option_id id) { return &option_infos[id]; }

/* ---- values --------------------------------------------------------------------------------------- */

#define UNTOUCHED UINT64_C(0xDEAD)

/* The value of TEXT; UNTOUCHED after a malformed text, UNTOUCHED + 1 after one out of range. */
static uint64_t parsed(const struct option_info *info, const char *text) {
    uint64_t value = UNTOUCHED;
    enum option_verdict verdict = option_parse(info, text, strlen(text), &value);
    if (verdict == OPTION_VALID) return value;
    CHECK(value == UNTOUCHED);
    return verdict == OPTION_MALFORMED ? UNTOUCHED : UNTOUCHED + 1;
}
#define MALFORMED UNTOUCHED
#define OUT_OF_RANGE (UNTOUCHED + 1)

static const struct option_info any_bytes = {.type = OPTION_TYPE_BYTES, .maximum = UINT64_MAX};
static const struct option_info any_count = {.type = OPTION_TYPE_COUNT, .maximum = UINT64_MAX};
static const struct option_info any_time = {.type = OPTION_TYPE_MILLISECONDS, .maximum = UINT64_MAX};

TEST(units) {
    static const struct {
        const struct option_info *info;
        const char *text;
        uint64_t value;
    } cases[] = {
        {&any_bytes, "0", 0},
        {&any_bytes, "4096", 4096},
        {&any_bytes, "4096B", 4096},
        {&any_bytes, "64K", 65536},
        {&any_bytes, "64KiB", 65536},
        {&any_bytes, "64kib", 65536},
        {&any_bytes, "64 KiB", 65536},
        {&any_bytes, "2M", 2097152},
        {&any_bytes, "2MiB", 2097152},
        {&any_bytes, "1G", 1073741824},
        {&any_bytes, "1GiB", 1073741824},
        {&any_bytes, "3T", UINT64_C(3) << 40},
        {&any_bytes, "3tib", UINT64_C(3) << 40},
        {&any_bytes, "0000000000000000000000000000001", 1},
        {&any_bytes, "64KB", MALFORMED}, /* 1000 or 1024: nobody knows */
        {&any_bytes, "64Ki", MALFORMED},
        {&any_bytes, "64KiBs", MALFORMED},
        {&any_bytes, "64ms", MALFORMED},
        {&any_bytes, "25%", MALFORMED},
        {&any_bytes, "K", MALFORMED},
        {&any_time, "10", 10},
        {&any_time, "10ms", 10},
        {&any_time, "2s", 2000},
        {&any_time, "2 s", 2000},
        {&any_time, "3min", 180000},
        {&any_time, "3m", MALFORMED},
        {&any_time, "2K", MALFORMED},
        {&any_count, "12", 12},
        {&any_count, "12K", MALFORMED},
        {&any_count, "", MALFORMED},
        {&any_count, "-1", MALFORMED},
        {&any_count, "+1", MALFORMED},
        {&any_count, "0x10", MALFORMED},
        {&any_count, "1.5", MALFORMED},
        {&any_count, "1e3", MALFORMED},
        {&any_count, "1 2", MALFORMED},
        {&any_count, "auto", MALFORMED}, /* only where the row names the word */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_AT(parsed(cases[i].info, cases[i].text) == cases[i].value, i);
}

TEST(overflow) {
    CHECK_EQ(parsed(&any_count, "18446744073709551615"), UINT64_MAX);
    CHECK_EQ(parsed(&any_count, "18446744073709551616"), OUT_OF_RANGE);
    CHECK_EQ(parsed(&any_count, "99999999999999999999999999999999999999999999"), OUT_OF_RANGE);
    CHECK_EQ(parsed(&any_count, "99999999999999999999999999999999999999999999x"), MALFORMED);
    CHECK_EQ(parsed(&any_bytes, "16777215TiB"), UINT64_C(16777215) << 40);
    CHECK_EQ(parsed(&any_bytes, "16777216TiB"), OUT_OF_RANGE);
    CHECK_EQ(parsed(&any_time, "18446744073709551615s"), OUT_OF_RANGE);
    /* 10 * 2^64: the product wraps to 0, which would be in range. */
    CHECK_EQ(parsed(&any_count, "184467440737095516160"), OUT_OF_RANGE);
}

TEST(range_ends) {
    const struct option_info *depth = info_of(OPTION_bin_depth);
    CHECK_EQ(parsed(depth, "1"), 1);
    CHECK_EQ(parsed(depth, "8192"), 8192);
    CHECK_EQ(parsed(depth, "0"), OUT_OF_RANGE);
    CHECK_EQ(parsed(depth, "8193"), OUT_OF_RANGE);
    CHECK_EQ(parsed(depth, "Auto"), OPTION_AUTO);
    const struct option_info *cache = info_of(OPTION_thread_cache);
    CHECK_EQ(parsed(cache, "64K"), 65536);
    CHECK_EQ(parsed(cache, "65535"), OUT_OF_RANGE);
    CHECK_EQ(parsed(cache, "1GiB"), 1 << 30);
    CHECK_EQ(parsed(cache, "1073741825"), OUT_OF_RANGE);
    CHECK_EQ(parsed(cache, "auto"), MALFORMED);
    const struct option_info *decay = info_of(OPTION_decay);
    CHECK_EQ(parsed(decay, "0"), 0);
    CHECK_EQ(parsed(decay, "3600s"), 3600000);
    CHECK_EQ(parsed(decay, "3600001ms"), OUT_OF_RANGE);
    CHECK_EQ(parsed(decay, "never"), OPTION_NEVER);
    CHECK_EQ(parsed(decay, "18446744073709551615"), OUT_OF_RANGE); /* OPTION_NEVER by its number */
    const struct option_info *window = info_of(OPTION_window);
    CHECK_EQ(parsed(window, "64M"), 64 << 20);
    CHECK_EQ(parsed(window, "67108863"), OUT_OF_RANGE);
    CHECK_EQ(parsed(window, "64T"), UINT64_C(1) << 46);
    CHECK_EQ(parsed(window, "65T"), OUT_OF_RANGE);
}

TEST(words) {
    const struct option_info *quiet = info_of(OPTION_quiet);
    static const char *const on[] = {"1", "on", "yes", "true", "ON", "True"};
    static const char *const off[] = {"0", "off", "no", "false", "No", "FALSE"};
    static const char *const neither[] = {"", "2", "o", "onn", "10", "truely", "auto"};
    for (size_t i = 0; i < 6; i++) CHECK_AT(parsed(quiet, on[i]) == 1, i);
    for (size_t i = 0; i < 6; i++) CHECK_AT(parsed(quiet, off[i]) == 0, i);
    for (size_t i = 0; i < 7; i++) CHECK_AT(parsed(quiet, neither[i]) == MALFORMED, i);
    const struct option_info *huge = info_of(OPTION_huge_pages);
    CHECK_EQ(parsed(huge, "auto"), HUGE_PAGES_AUTO);
    CHECK_EQ(parsed(huge, "never"), HUGE_PAGES_NEVER);
    CHECK_EQ(parsed(huge, "Always"), HUGE_PAGES_ALWAYS);
    CHECK_EQ(parsed(huge, "alway"), MALFORMED);
    CHECK_EQ(parsed(huge, "0"), MALFORMED); /* an enumerator's number is nobody's business */
}

static bool formats_as(const struct option_info *info, uint64_t value, const char *text) {
    char buffer[OPTION_TEXT_BYTES];
    option_format(info, value, buffer, sizeof buffer);
    return strcmp(buffer, text) == 0;
}

TEST(format_takes_the_largest_unit) {
    CHECK(formats_as(&any_bytes, 0, "0B"));
    CHECK(formats_as(&any_bytes, 1023, "1023B"));
    CHECK(formats_as(&any_bytes, 1024, "1KiB"));
    CHECK(formats_as(&any_bytes, 1536, "1536B"));
    CHECK(formats_as(&any_bytes, 64 << 20, "64MiB"));
    CHECK(formats_as(&any_bytes, UINT64_C(1) << 46, "64TiB"));
    CHECK(formats_as(&any_bytes, UINT64_MAX, "18446744073709551615B"));
    CHECK(formats_as(&any_time, 0, "0ms"));
    CHECK(formats_as(&any_time, 1500, "1500ms"));
    CHECK(formats_as(&any_time, 2000, "2s"));
    CHECK(formats_as(&any_time, 3600000, "60min"));
    CHECK(formats_as(&any_count, 60000, "60000"));
    CHECK(formats_as(info_of(OPTION_decay), OPTION_NEVER, "never"));
    char cut[6];
    memset(cut, 'x', sizeof cut);
    option_format(&any_bytes, UINT64_MAX, cut, 5);
    CHECK(strcmp(cut, "1844") == 0 && cut[5] == 'x');
    option_describe(info_of(OPTION_huge_pages), cut, 1);
    CHECK(cut[0] == 0 && cut[1] == '8');
}

/* ---- the table ------------------------------------------------------------------------------------ */

static void check_round_trip(const struct option_info *info, uint64_t value) {
    char text[OPTION_TEXT_BYTES];
    option_format(info, value, text, sizeof text);
    CHECK_EQ(parsed(info, text), value);
}

static void check_numbers(const struct option_info *info) {
    CHECK(info->minimum < info->maximum);
    check_round_trip(info, info->initial);
    check_round_trip(info, info->minimum);
    check_round_trip(info, info->maximum);
    if (info->word == NULL) return;
    CHECK(info->word_value < info->minimum || info->word_value > info->maximum);
    check_round_trip(info, info->word_value);
}

/* What one row may get wrong. */
TEST(table_is_sound) {
    for (size_t i = 0; i < OPTION_TOTAL; i++) {
        const struct option_info *info = &option_infos[i];
        size_t length = strlen(info->name);
        CHECK_AT(length > 0 && length < OPTION_NAME_BYTES, i);
        CHECK_AT(strspn(info->name, "abcdefghijklmnopqrstuvwxyz0123456789_") == length, i);
        for (size_t j = 0; j < i; j++) CHECK_AT(strcmp(option_infos[j].name, info->name) != 0, i);
        for (size_t j = 0; j < OPTION_OTHERS; j++) CHECK_AT(strcmp(option_other_variables[j], info->name) != 0, i);
        if (info->type != OPTION_TYPE_PATH) check_numbers(info);
        CHECK_AT((info->type == OPTION_TYPE_CHOICE) == (info->choice_count > 0), i);
        for (size_t j = 0; j < info->choice_count; j++) check_round_trip(info, j);
        char text[OPTION_TEXT_BYTES];
        option_describe(info, text, sizeof text);
        CHECK_AT(strlen(text) < sizeof text - 1, i); /* nothing was cut */
        CHECK_AT(info->cost[0] != 0 && info->text[strlen(info->text) - 1] == '.', i);
    }
}

/* ---- names ---------------------------------------------------------------------------------------- */

TEST(distance) {
    static const struct {
        const char *text, *name;
        unsigned distance;
    } cases[] = {
        {"", "", 0},
        {"", "decay", 5},
        {"decay", "", 5},
        {"decay", "decay", 0},
        {"DECAY", "decay", 0},
        {"decoy", "decay", 1},
        {"deca", "decay", 1},
        {"decays", "decay", 1},
        {"deacy", "decay", 1}, /* a swap is one step */
        {"edcya", "decay", 2},
        {"ca", "abc", 3},      /* 3 and not 2: nothing happens inside a swapped pair */
        {"kitten", "sitting", 3},
        {"cache", "thread_cache", 1}, /* a part counts as near */
        {"ca", "thread_cache", 10},   /* unless it is too short to mean anything */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_AT(option_distance(cases[i].text, strlen(cases[i].text), cases[i].name) == cases[i].distance, i);
    char giant[4096], name[OPTION_NAME_BYTES];
    memset(giant, 'q', sizeof giant);
    memset(name, 'w', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK_EQ(option_distance(giant, sizeof giant, name), OPTION_NAME_BYTES);
}
