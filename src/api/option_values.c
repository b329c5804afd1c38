/* option_values.c - values of options from text and back, and how much two names differ. Pure functions
 * over the caller's buffers: they run before libc has started, so they call nothing of it.
 */
#include "api/setting.h"

#include "base/bits.h"

struct unit {
    enum option_type type;
    char suffix[5];
    uint64_t factor;
};

/* By type, the largest first and of equals the one to print first; the last of a type is its base unit.
 * KB and MB are missing on purpose: for many users they mean powers of 1000. */
static const struct unit units[] = {
    {OPTION_TYPE_COUNT, "", 1},
    {OPTION_TYPE_DEPTHS, "", 1}, /* of one size */
    {OPTION_TYPE_BYTES, "TiB", UINT64_C(1) << 40},
    {OPTION_TYPE_BYTES, "T", UINT64_C(1) << 40},
    {OPTION_TYPE_BYTES, "GiB", UINT64_C(1) << 30},
    {OPTION_TYPE_BYTES, "G", UINT64_C(1) << 30},
    {OPTION_TYPE_BYTES, "MiB", UINT64_C(1) << 20},
    {OPTION_TYPE_BYTES, "M", UINT64_C(1) << 20},
    {OPTION_TYPE_BYTES, "KiB", UINT64_C(1) << 10},
    {OPTION_TYPE_BYTES, "K", UINT64_C(1) << 10},
    {OPTION_TYPE_BYTES, "B", 1},
    {OPTION_TYPE_MILLISECONDS, "min", 60000},
    {OPTION_TYPE_MILLISECONDS, "s", 1000},
    {OPTION_TYPE_MILLISECONDS, "ms", 1},
};
#define UNIT_COUNT (sizeof units / sizeof units[0])

static const char *const on_words[] = {"on", "1", "yes", "true"};
static const char *const off_words[] = {"off", "0", "no", "false"};

static enum option_verdict parse_bool(const char *text, size_t length, uint64_t *value);
static enum option_verdict parse_choice(const struct option_info *info, const char *text, size_t length,
                                        uint64_t *value);
static enum option_verdict parse_number(const struct option_info *info, const char *text, size_t length,
                                        uint64_t *value);

enum option_verdict option_parse(const struct option_info *info, const char *text, size_t length,
                                 uint64_t *value) {
    if (info->type == OPTION_TYPE_BOOL) return parse_bool(text, length, value);
    if (info->type == OPTION_TYPE_CHOICE) return parse_choice(info, text, length, value);
    return parse_number(info, text, length, value);
}

static enum option_verdict parse_bool(const char *text, size_t length, uint64_t *value) {
    for (size_t i = 0; i < sizeof on_words / sizeof on_words[0]; i++) {
        bool on = option_is_word(text, length, on_words[i]);
        if (!on && !option_is_word(text, length, off_words[i])) continue;
        *value = on;
        return OPTION_VALID;
    }
    return OPTION_MALFORMED;
}

static enum option_verdict parse_choice(const struct option_info *info, const char *text, size_t length,
                                        uint64_t *value) {
    for (size_t i = 0; i < info->choice_count; i++) {
        if (!option_is_word(text, length, info->choices[i].word)) continue;
        *value = i;
        return OPTION_VALID;
    }
    return option_is_word("off", 3, info->choices[0].word) ? parse_bool(text, length, value) : OPTION_MALFORMED;
}

/* The factor of the unit that LENGTH bytes at TEXT name; no unit means the base unit. 0 if unknown. */
static uint64_t unit_factor(enum option_type type, const char *text, size_t length) {
    if (length == 0) return 1;
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (units[i].type == type && option_is_word(text, length, units[i].suffix)) return units[i].factor;
    return 0;
}

static enum option_verdict parse_number(const struct option_info *info, const char *text, size_t length,
                                        uint64_t *value) {
    if (info->word && option_is_word(text, length, info->word)) {
        *value = info->word_value;
        return OPTION_VALID;
    }
    uint64_t number = 0;
    bool overflow = false; /* judged last: what follows the digits may be malformed */
    size_t i = 0;
    for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
        overflow |= __builtin_mul_overflow(number, 10, &number);
        overflow |= __builtin_add_overflow(number, (uint64_t)(text[i] - '0'), &number);
    }
    if (i == 0) return OPTION_MALFORMED;
    while (i < length && text[i] == ' ') i++;
    uint64_t factor = unit_factor(info->type, text + i, length - i);
    if (factor == 0) return OPTION_MALFORMED;
    overflow |= __builtin_mul_overflow(number, factor, &number);
    if (overflow || number < info->minimum || number > info->maximum) return OPTION_OUT_OF_RANGE;
    *value = number;
    return OPTION_VALID;
}

/* ---- writing -------------------------------------------------------------------------------------- */

struct sink sink_open(char *buffer, size_t bytes) {
    buffer[0] = 0;
    return (struct sink){buffer, bytes - 1};
}

void sink_put(struct sink *sink, const char *text) {
    for (; *text && sink->left > 0; sink->left--) *sink->at++ = *text++;
    *sink->at = 0;
}

void sink_put_number(struct sink *sink, uint64_t number) {
    char digits[21]; /* 2^64 has 20 */
    char *at = digits + sizeof digits - 1;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    sink_put(sink, at);
}

/* The largest unit of TYPE that divides VALUE, or the base unit, which is the type's last. */
static const struct unit *largest_unit(enum option_type type, uint64_t value) {
    const struct unit *unit = NULL;
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        if (units[i].type != type) continue;
        unit = &units[i];
        if (value >= unit->factor && value % unit->factor == 0) break;
    }
    return unit;
}

static void put_value(struct sink *sink, const struct option_info *info, uint64_t value) {
    if (info->type == OPTION_TYPE_BOOL) {
        sink_put(sink, value ? on_words[0] : off_words[0]);
    } else if (info->type == OPTION_TYPE_CHOICE) {
        sink_put(sink, info->choices[value].word);
    } else if (info->type == OPTION_TYPE_PATH) {
        sink_put(sink, "");
    } else if (info->word && value == info->word_value) {
        sink_put(sink, info->word);
    } else {
        const struct unit *unit = largest_unit(info->type, value);
        sink_put_number(sink, value / unit->factor);
        sink_put(sink, unit->suffix);
    }
}

void option_format(const struct option_info *info, uint64_t value, char *buffer, size_t bytes) {
    struct sink sink = sink_open(buffer, bytes);
    put_value(&sink, info, value);
}

void option_describe(const struct option_info *info, char *buffer, size_t bytes) {
    struct sink sink = sink_open(buffer, bytes);
    if (info->type == OPTION_TYPE_BOOL) {
        sink_put(&sink, "on or off");
    } else if (info->type == OPTION_TYPE_PATH) {
        sink_put(&sink, "a path");
    } else if (info->type == OPTION_TYPE_CHOICE) {
        for (size_t i = 0; i < info->choice_count; i++) {
            if (i > 0) sink_put(&sink, i + 1 < info->choice_count ? ", " : " or ");
            sink_put(&sink, info->choices[i].word);
        }
    } else {
        put_value(&sink, info, info->minimum);
        sink_put(&sink, " to ");
        put_value(&sink, info, info->maximum);
        if (info->word) {
            sink_put(&sink, info->type == OPTION_TYPE_DEPTHS ? ", " : ", or ");
            sink_put(&sink, info->word);
        }
        if (info->type == OPTION_TYPE_DEPTHS) sink_put(&sink, ", or by the size of blocks: 64:512+1040:128");
    }
}

const char *option_type_name(enum option_type type) {
    static const char *const names[] = {"bool", "count", "bytes", "milliseconds", "choice", "path", "depths"};
    return names[type];
}

/* ---- names ---------------------------------------------------------------------------------------- */

static char to_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

bool option_is_word(const char *text, size_t length, const char *word) {
    size_t i = 0;
    while (i < length && word[i] && to_lower(text[i]) == to_lower(word[i])) i++;
    return i == length && word[i] == 0;
}

/* True when TEXT occurs in NAME. */
static bool contains(const char *name, size_t name_length, const char *text, size_t length) {
    for (size_t start = 0; start + length <= name_length; start++) {
        size_t i = 0;
        while (i < length && to_lower(text[i]) == to_lower(name[start + i])) i++;
        if (i == length) return true;
    }
    return false;
}

/* Damerau and Levenshtein's distance in its restricted form (no edit inside a swapped pair), by rows: one
 * per byte of TEXT, of which the last three are kept. */
unsigned option_distance(const char *text, size_t length, const char *name) {
    unsigned rows[3][OPTION_NAME_BYTES + 1];
    size_t name_length = 0;
    while (name_length < OPTION_NAME_BYTES && name[name_length]) name_length++;
    length = min_size(length, OPTION_NAME_BYTES);
    /* HAKMEM_CACHE means thread_cache, however many letters it lacks. */
    if (length >= 3 && length < name_length && contains(name, name_length, text, length)) return 1;

    for (unsigned j = 0; j <= name_length; j++) rows[0][j] = j;
    for (size_t i = 1; i <= length; i++) {
        const unsigned *before = rows[(i + 1) % 3]; /* i - 2; not read when i is 1 */
        const unsigned *above = rows[(i - 1) % 3];
        unsigned *row = rows[i % 3];
        char c = to_lower(text[i - 1]);
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= name_length; j++) {
            char d = to_lower(name[j - 1]);
            unsigned least = min_u32(min_u32(above[j], row[j - 1]) + 1, above[j - 1] + (c != d));
            if (i > 1 && j > 1 && c == to_lower(name[j - 2]) && d == to_lower(text[i - 2]))
                least = min_u32(least, before[j - 2] + 1);
            row[j] = least;
        }
    }
    return rows[length % 3][name_length];
}
