/* options.c - from the environment to struct hak_options.
 *
 * The environment is read twice if need be: first in silence, and again with messages if something was
 * wrong and `quiet`, which may stand anywhere, is not on. Settings carry their source, and a weaker one
 * never replaces a stronger one, so the order in which they are found does not matter.
 */
#include "api/options.h"

#include "os/os.h"

#include <sys/auxv.h>

/* ---- the table ------------------------------------------------------------------------------------ */

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])
#define NOTHING(...)
#define CHOICE_ENTRY(id, word, text, ...) {word, text},
#define CHOICE_ARRAY(name, list, ...) \
    static const struct option_choice name##_choices[] = {list(CHOICE_ENTRY)};
OPTION_TABLE(NOTHING, NOTHING, CHOICE_ARRAY)

#define BOOL_INFO(name, initial, cost, text) \
    {#name, OPTION_TYPE_BOOL, 0, 1, NULL, 0, NULL, 0, initial, cost, text},
#define NUMBER_INFO(name, type, minimum, maximum, word, word_value, initial, cost, text) \
    {#name, OPTION_TYPE_##type, minimum, maximum, word, word_value, NULL, 0, initial, cost, text},
#define CHOICE_INFO(name, list, initial, cost, text)                                   \
    {#name, OPTION_TYPE_CHOICE, 0, LENGTH(name##_choices) - 1, NULL, 0, name##_choices, \
     LENGTH(name##_choices), initial, cost, text},
static const struct option_info table[OPTION_TOTAL] = {OPTION_TABLE(BOOL_INFO, NUMBER_INFO, CHOICE_INFO)};

#define PROFILE_SETTINGS(id, word, text, settings) settings,
static const char *const profile_settings[] = {OPTION_PROFILES(PROFILE_SETTINGS)};

static const char *const other_variables[] = {OPTION_OTHER_VARIABLES};

const struct option_info *options_table(size_t *count) {
    *count = OPTION_TOTAL;
    return table;
}

/* ---- reading -------------------------------------------------------------------------------------- */

/* Bytes of the environment or of the table, without a final 0 of their own. */
struct text {
    const char *start;
    size_t length;
};

struct setting {
    struct text name; /* without HAKMEM_ */
    struct text value;
    enum option_source source;
};

struct reader {
    uint64_t values[OPTION_TOTAL];
    uint8_t sources[OPTION_TOTAL];
    bool silent;
    bool mistaken; /* something deserved a message */
};

static void read_all(struct reader *reader, const char *const *environment);
static void read_variable(struct reader *reader, const char *variable);
static void read_list(struct reader *reader, struct text list, enum option_source source);
static bool is_named(const struct setting *setting, const char *name);
static void apply(struct reader *reader, const struct setting *setting);
static void report_unknown(const struct setting *setting);
static void report_value(const struct setting *setting, const struct option_info *info,
                         enum option_verdict verdict);

void options_read(struct hak_options *out, const char *const *environment, bool secure) {
    struct reader reader = {.silent = true};
    read_all(&reader, secure ? NULL : environment);
    if (reader.mistaken && !reader.values[OPTION_quiet]) {
        reader.silent = false;
        read_all(&reader, environment);
    }
#define TAKE_BOOL(name, ...) out->name = reader.values[OPTION_##name] != 0;
#define TAKE_NUMBER(name, ...) out->name = reader.values[OPTION_##name];
#define TAKE_CHOICE(name, ...) out->name = (enum hak_##name)reader.values[OPTION_##name];
    OPTION_TABLE(TAKE_BOOL, TAKE_NUMBER, TAKE_CHOICE)
    for (size_t i = 0; i < OPTION_TOTAL; i++) out->sources[i] = reader.sources[i];
}

static struct text text_of(const char *string) {
    struct text text = {string, 0};
    while (string[text.length]) text.length++;
    return text;
}

#define PREFIX "HAKMEM_"
#define PREFIX_BYTES (sizeof PREFIX - 1)

/* All that a process without options pays, once per variable; mostly one comparison. */
static bool is_ours(const char *variable) {
    for (size_t i = 0; i < PREFIX_BYTES; i++)
        if (variable[i] != PREFIX[i]) return false;
    return true;
}

static void read_all(struct reader *reader, const char *const *environment) {
    for (size_t i = 0; i < OPTION_TOTAL; i++) {
        reader->values[i] = table[i].initial;
        reader->sources[i] = OPTION_FROM_DEFAULT;
    }
    if (environment == NULL) return;
    for (; *environment; environment++)
        if (is_ours(*environment)) read_variable(reader, *environment + PREFIX_BYTES);
    /* Last, because only now the profile is known; being the weakest it changes what is still default. */
    read_list(reader, text_of(profile_settings[reader->values[OPTION_profile]]), OPTION_FROM_PROFILE);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static struct text trim(struct text text) {
    while (text.length > 0 && is_blank(text.start[0])) text.start++, text.length--;
    while (text.length > 0 && is_blank(text.start[text.length - 1])) text.length--;
    return text;
}

/* Takes what stands before the first of two STOPS off *REST, and that byte too. No text holds a 0, so
 * a single stop may be written as a string. */
static struct text take_until(struct text *rest, const char stops[2]) {
    struct text head = {rest->start, 0};
    while (head.length < rest->length && head.start[head.length] != stops[0] &&
           head.start[head.length] != stops[1])
        head.length++;
    size_t taken = head.length + (head.length < rest->length);
    rest->start += taken;
    rest->length -= taken;
    return head;
}

/* VARIABLE is NAME=value after the prefix. */
static void read_variable(struct reader *reader, const char *variable) {
    struct text value = text_of(variable);
    struct text name = take_until(&value, "=");
    value = trim(value);
    struct setting setting = {name, value, OPTION_FROM_ENVIRONMENT};
    if (is_named(&setting, "conf")) {
        read_list(reader, value, OPTION_FROM_CONF);
        return;
    }
    for (size_t i = 0; i < LENGTH(other_variables); i++)
        if (is_named(&setting, other_variables[i])) return;
    apply(reader, &setting);
}

/* LIST is a:b,c:d; = is as good as a colon, blanks around names and values and empty items are skipped. */
static void read_list(struct reader *reader, struct text list, enum option_source source) {
    while (list.length > 0) {
        struct text value = trim(take_until(&list, ","));
        if (value.length == 0) continue;
        struct text name = trim(take_until(&value, ":="));
        apply(reader, &(struct setting){name, trim(value), source});
    }
}

/* Variables are upper case and nothing else, or HAKMEM_stats would work here and nowhere else. */
static bool is_named(const struct setting *setting, const char *name) {
    if (!option_is_word(setting->name.start, setting->name.length, name)) return false;
    if (setting->source != OPTION_FROM_ENVIRONMENT) return true;
    for (size_t i = 0; i < setting->name.length; i++)
        if (setting->name.start[i] >= 'a' && setting->name.start[i] <= 'z') return false;
    return true;
}

static void apply(struct reader *reader, const struct setting *setting) {
    size_t id = 0;
    while (id < OPTION_TOTAL && !is_named(setting, table[id].name)) id++;
    if (id == OPTION_TOTAL) {
        reader->mistaken = true;
        if (!reader->silent) report_unknown(setting);
        return;
    }
    /* A shell that says HAKMEM_STATS= means: not set. In a list it is a slip. */
    if (setting->value.length == 0 && setting->source == OPTION_FROM_ENVIRONMENT) return;
    uint64_t value;
    enum option_verdict verdict = option_parse(&table[id], setting->value.start, setting->value.length, &value);
    if (verdict != OPTION_VALID) {
        reader->mistaken = true;
        if (!reader->silent) report_value(setting, &table[id], verdict);
    } else if (setting->source >= reader->sources[id]) {
        reader->values[id] = value;
        reader->sources[id] = (uint8_t)setting->source;
    }
}

/* ---- messages ------------------------------------------------------------------------------------- */

/* How much of a name or value is repeated: a line must stay a line. */
#define QUOTE_BYTES 48

static const char *const origins[OPTION_SOURCES] = {"", "profile: ", PREFIX "CONF: ", PREFIX};

/* Copies TEXT so that it prints on one line, cut with an ellipsis. */
static const char *quote(struct text text, char buffer[QUOTE_BYTES]) {
    bool cut = text.length >= QUOTE_BYTES;
    size_t length = cut ? QUOTE_BYTES - 4 : text.length;
    for (size_t i = 0; i < length; i++)
        buffer[i] = text.start[i] >= ' ' && text.start[i] <= '~' ? text.start[i] : '?';
    for (size_t i = 0; cut && i < 3; i++) buffer[length++] = '.';
    buffer[length] = 0;
    return buffer;
}

/* NAME as the user has to write it in SOURCE. */
static const char *spell(const char *name, enum option_source source, char buffer[OPTION_NAME_BYTES]) {
    size_t i = 0;
    for (; i < OPTION_NAME_BYTES - 1 && name[i]; i++) {
        bool raise = source == OPTION_FROM_ENVIRONMENT && name[i] >= 'a' && name[i] <= 'z';
        buffer[i] = raise ? (char)(name[i] - 'a' + 'A') : name[i];
    }
    buffer[i] = 0;
    return buffer;
}

struct nearest {
    struct text to;
    const char *name; /* NULL before the first candidate */
    unsigned distance;
};

/* Keeps NAME if nothing nearer was seen. */
static bool is_nearer(struct nearest *nearest, const char *name) {
    unsigned distance = option_distance(nearest->to.start, nearest->to.length, name);
    if (nearest->name && distance >= nearest->distance) return false;
    nearest->name = name;
    nearest->distance = distance;
    return true;
}

static void report_unknown(const struct setting *setting) {
    struct nearest nearest = {.to = setting->name};
    bool variable = setting->source == OPTION_FROM_ENVIRONMENT;
    char accepts[OPTION_TEXT_BYTES] = "";
    for (size_t i = 0; i < OPTION_TOTAL; i++)
        if (is_nearer(&nearest, table[i].name)) option_describe(&table[i], accepts, sizeof accepts);
    for (size_t i = 0; variable && i < LENGTH(other_variables); i++)
        if (is_nearer(&nearest, other_variables[i])) accepts[0] = 0;
    char given[QUOTE_BYTES], name[OPTION_NAME_BYTES];
    os_message("%s%s is not an option and is ignored; the nearest is %s%s%s%s%s", origins[setting->source],
               quote(setting->name, given), variable ? PREFIX : "",
               spell(nearest.name, setting->source, name), accepts[0] ? " (" : "", accepts,
               accepts[0] ? ")" : "");
}

static void report_value(const struct setting *setting, const struct option_info *info,
                         enum option_verdict verdict) {
    struct nearest nearest = {.to = setting->value}; /* stays without a name unless INFO is a choice */
    for (size_t i = 0; i < info->choice_count; i++) is_nearer(&nearest, info->choices[i].word);
    char name[OPTION_NAME_BYTES], given[QUOTE_BYTES], accepts[OPTION_TEXT_BYTES];
    option_describe(info, accepts, sizeof accepts);
    os_message("%s%s%s%s is %s and is ignored; it takes %s%s%s", origins[setting->source],
               spell(info->name, setting->source, name),
               setting->source == OPTION_FROM_ENVIRONMENT ? "=" : ":", quote(setting->value, given),
               verdict == OPTION_OUT_OF_RANGE ? "out of range" : "not understood", accepts,
               nearest.name ? "; the nearest is " : "", nearest.name ? nearest.name : "");
}

/* ---- this process --------------------------------------------------------------------------------- */

/* glibc's loader: the stack as the kernel left it. musl has no such name and sets environ earlier. */

void options_read_process(struct hak_options *out) {
    options_read(out, (const char *const *)os_environment(), getauxval(AT_SECURE) != 0);
}

/* ---- sources -------------------------------------------------------------------------------------- */

enum option_source options_source(const struct hak_options *options, enum option_id id) {
    return (enum option_source)options->sources[id];
}

const char *option_source_name(enum option_source source) {
    static const char *const names[OPTION_SOURCES] = {"default", "profile", "conf", "environment"};
    return names[source];
}
