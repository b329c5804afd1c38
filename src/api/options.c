/* options.c - from the environment to struct hak_options.
 *
 * The environment is read twice if need be: first in silence, and again with messages if something was
 * wrong and `quiet`, which may stand anywhere, is not on. Settings carry their source, and a weaker one
 * never replaces a stronger one, so the order in which they are found does not matter.
 */
#include "api/options.h"

#include "ace/budget.h"
#include "ace/decay.h"
#include "api/setting.h"
#include "base/bits.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>
#include <sys/auxv.h>

/* ---- the table ------------------------------------------------------------------------------------ */

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])
#define NOTHING(...)
#define CHOICE_ENTRY(id, word, text, ...) {word, text},
#define CHOICE_ARRAY(name, when, list, ...) \
    static const struct option_choice name##_choices[] = {list(CHOICE_ENTRY)};
OPTION_TABLE(NOTHING, NOTHING, CHOICE_ARRAY, NOTHING, NOTHING)

enum { START, ANYTIME };
#define BOOL_INFO(name, when, initial, cost, text) \
    {#name, OPTION_TYPE_BOOL, when, 0, 1, NULL, 0, NULL, 0, initial, cost, text},
#define NUMBER_INFO(name, when, type, minimum, maximum, word, word_value, initial, cost, text) \
    {#name, OPTION_TYPE_##type, when, minimum, maximum, word, word_value, NULL, 0, initial, cost, text},
#define CHOICE_INFO(name, when, list, initial, cost, text)                                   \
    {#name, OPTION_TYPE_CHOICE, when, 0, LENGTH(name##_choices) - 1, NULL, 0, name##_choices, \
     LENGTH(name##_choices), initial, cost, text},
#define PATH_INFO(name, when, cost, text) {#name, OPTION_TYPE_PATH, when, 0, 0, NULL, 0, NULL, 0, 0, cost, text},
#define DEPTHS_INFO(name, when, maximum, cost, text) \
    {#name, OPTION_TYPE_DEPTHS, when, 1, maximum, "auto", OPTION_AUTO, NULL, 0, OPTION_AUTO, cost, text},
const struct option_info option_infos[OPTION_TOTAL] = {
    OPTION_TABLE(BOOL_INFO, NUMBER_INFO, CHOICE_INFO, PATH_INFO, DEPTHS_INFO)};

#define PROFILE_SETTINGS(id, word, text, settings) settings,
static const char *const profile_settings[] = {OPTION_PROFILES(PROFILE_SETTINGS)};

const char *const option_other_variables[OPTION_OTHERS] = {OPTION_OTHER_VARIABLES};

/* ---- reading -------------------------------------------------------------------------------------- */

/* Which of two settings of an option counts: the one from the stronger source, in one source the last. */
struct rank {
    enum option_source source;
    unsigned number; /* in the order of reading */
};

struct reader {
    uint64_t values[OPTION_TOTAL];
    struct text paths[OPTION_TOTAL]; /* the values of options that are paths, or depths; for `profile`, its file */
    uint8_t sources[OPTION_TOTAL];
    bool silent;
    bool mistaken; /* something deserved a message */
    char *file;    /* what the profile's file holds, once it was loaded: a pipe gives it only once */
    bool loaded;
    struct rank profile, unusable; /* of the profile's file, and of the last that cannot be used: only weaker ones count */
    unsigned profiles_seen;        /* settings of `profile` that are files, since reading began */
};

static void read_all(struct reader *reader, const char *const *environment, const char *program);
static void read_variable(struct reader *reader, const char *variable);
static void read_list(struct reader *reader, struct text list, enum option_source source);
static bool load_file(struct reader *reader);
static void read_file(struct reader *reader);
static void apply(struct reader *reader, const struct setting *setting);

static void copy_path(char path[OPTION_PATH_BYTES], struct text text) {
    for (size_t i = 0; i < text.length; i++) path[i] = text.start[i];
    path[text.length] = '\0';
}

/* TEXT was parsed without error before, or is empty, which stands for the default. */
static void copy_depths(enum option_id id, uint16_t depths[SIZE_CLASSES], struct text text) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) depths[class] = OPTION_AUTO;
    if (text.length != 0) option_parse_depths(&option_infos[id], text.start, text.length, depths);
}

enum ace_objective options_objective(const struct hak_options *options) {
    static const enum ace_objective objectives[] = {
        [OBJECTIVE_SMALL] = ACE_SMALL,
        [OBJECTIVE_BALANCED] = ACE_BALANCED,
        [OBJECTIVE_SPEED] = ACE_SPEED,
    };
    return objectives[options->objective];
}

/* The objective decides what no other source has set. True if that is so for option ID. */
static bool take_source(struct hak_options *options, enum option_id id) {
    const bool unset = options->sources[id] == OPTION_FROM_DEFAULT;
    if (unset) options->sources[id] = OPTION_FROM_OBJECTIVE;
    return unset;
}

static HAK_COLD void take_objective(struct hak_options *options) {
    const enum ace_objective objective = options_objective(options);
    if (take_source(options, OPTION_decay)) options->decay = ace_half_life_ms(options->decay, objective);
    if (take_source(options, OPTION_thread_cache)) options->thread_cache = ace_thread_cache_bytes(options->thread_cache, objective);
}

#define FILE_BYTES 4097 /* 4095 of a profile's file, one more to see whether it is longer, and a 0 */

void options_read(struct hak_options *out, const char *const *environment, const char *program, bool secure) {
    char file[FILE_BYTES];
    struct reader reader = {.silent = true, .file = file, .unusable = {OPTION_SOURCES, 0}};
    if (secure) environment = NULL;
    read_all(&reader, environment, program);
    if (reader.mistaken && !reader.values[OPTION_quiet]) {
        reader.silent = false;
        read_all(&reader, environment, program);
    }
#define TAKE_BOOL(name, ...) out->name = reader.values[OPTION_##name] != 0;
#define TAKE_NUMBER(name, ...) out->name = reader.values[OPTION_##name];
#define TAKE_CHOICE(name, ...) out->name = (enum hak_##name)reader.values[OPTION_##name];
#define TAKE_PATH(name, ...) copy_path(out->name, reader.paths[OPTION_##name]);
#define TAKE_DEPTHS(name, ...) copy_depths(OPTION_##name, out->name, reader.paths[OPTION_##name]);
    OPTION_TABLE(TAKE_BOOL, TAKE_NUMBER, TAKE_CHOICE, TAKE_PATH, TAKE_DEPTHS)
    copy_path(out->profile_file, reader.paths[OPTION_profile]);
    for (size_t i = 0; i < OPTION_TOTAL; i++) out->sources[i] = reader.sources[i];
    if (options_objective(out) != ACE_BALANCED) take_objective(out);
}

static struct text text_of(const char *string) {
    struct text text = {string, 0};
    while (string[text.length]) text.length++;
    return text;
}

#define PREFIX_BYTES (sizeof OPTION_PREFIX - 1)

/* All that a process without options pays, once per variable; mostly one comparison. */
static bool is_ours(const char *variable) {
    for (size_t i = 0; i < PREFIX_BYTES; i++)
        if (variable[i] != OPTION_PREFIX[i]) return false;
    return true;
}

static void read_settings(struct reader *reader, const char *const *environment, const char *program) {
    for (size_t i = 0; i < OPTION_TOTAL; i++) {
        reader->values[i] = option_infos[i].initial;
        reader->paths[i] = (struct text){"", 0};
        reader->sources[i] = OPTION_FROM_DEFAULT;
    }
    reader->profiles_seen = 0;
    for (; environment != NULL && *environment != NULL; environment++)
        if (is_ours(*environment)) read_variable(reader, *environment + PREFIX_BYTES);
    if (program != NULL) read_list(reader, text_of(program), OPTION_FROM_PROGRAM);
}

static bool has_file(const struct reader *reader) { return reader->paths[OPTION_profile].length != 0; }

static void read_all(struct reader *reader, const char *const *environment, const char *program) {
    do read_settings(reader, environment, program);
    while (has_file(reader) && !load_file(reader)); /* a weaker source may name another profile */
    /* Last, because only now the profile is known. These sources are weaker, so they change only what no other source has set. */
    if (has_file(reader)) read_file(reader);
    read_list(reader, text_of(profile_settings[reader->values[OPTION_profile]]), OPTION_FROM_PROFILE);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static struct text trim(struct text text) {
    while (text.length > 0 && is_blank(text.start[0])) text.start++, text.length--;
    while (text.length > 0 && is_blank(text.start[text.length - 1])) text.length--;
    return text;
}

/* Removes from *REST, and returns, what precedes the first of two STOPS; the stop is removed, too. No text contains a 0, so
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
    struct setting setting = {.name = name, .value = value, .source = OPTION_FROM_ENVIRONMENT};
    if (setting_is_named(&setting, "conf")) {
        read_list(reader, value, OPTION_FROM_CONF);
        return;
    }
    for (size_t i = 0; i < OPTION_OTHERS; i++)
        if (setting_is_named(&setting, option_other_variables[i])) return;
    apply(reader, &setting);
}

/* LIST is a:b,c:d; = may replace a colon. Blanks around names and values, and empty items, are skipped. */
static void read_list(struct reader *reader, struct text list, enum option_source source) {
    while (list.length > 0) {
        struct text value = trim(take_until(&list, ","));
        if (value.length == 0) continue;
        struct text name = trim(take_until(&value, ":="));
        apply(reader, &(struct setting){.name = name, .value = trim(value), .source = source});
    }
}

/* The whole file as a string. Returns why it cannot be used; NULL if it can. */
static const char *load(const char *path, char contents[FILE_BYTES]) {
    long length = os_read_file(path, contents, FILE_BYTES);
    if (length < 0) return "it cannot be read";
    if (length == FILE_BYTES - 1) return "it is longer than 4095 bytes";
    for (long i = 0; i < length; i++)
        if (contents[i] == '\0') return "it holds bytes that are no text";
    return NULL;
}

/* False with a message if the profile's file cannot be used: its setting is ignored from now on. A weaker file's `quiet` comes too late. */
static HAK_COLD bool load_file(struct reader *reader) {
    char path[OPTION_PATH_BYTES];
    if (reader->loaded) return true;
    copy_path(path, reader->paths[OPTION_profile]);
    const char *why = load(path, reader->file);
    reader->loaded = why == NULL;
    if (why != NULL) {
        reader->unusable = reader->profile;
        if (!reader->values[OPTION_quiet]) message_file(path, why);
    }
    return reader->loaded;
}

/* Lines of NAME = VALUE. Blanks around both are skipped; a comment goes from # to the end of its line. */
static HAK_COLD void read_file(struct reader *reader) {
    struct text rest = text_of(reader->file);
    for (unsigned line = 1; rest.length > 0; line++) {
        struct text value = take_until(&rest, "\n");
        value = trim(take_until(&value, "#"));
        if (value.length == 0) continue;
        struct text name = trim(take_until(&value, "=:"));
        apply(reader, &(struct setting){.name = name, .value = trim(value), .source = OPTION_FROM_FILE, .line = line});
    }
}

bool setting_is_named(const struct setting *setting, const char *name) {
    if (!option_is_word(setting->name.start, setting->name.length, name)) return false;
    if (setting->source != OPTION_FROM_ENVIRONMENT) return true;
    for (size_t i = 0; i < setting->name.length; i++)
        if (setting->name.start[i] >= 'a' && setting->name.start[i] <= 'z') return false;
    return true;
}

static bool has_slash(struct text text) {
    for (size_t i = 0; i < text.length; i++)
        if (text.start[i] == '/') return true;
    return false;
}

/* A path, or the name of a profile's file. */
static enum option_verdict take_path(struct reader *reader, enum option_id id, const struct setting *setting) {
    if (setting->value.length >= OPTION_PATH_BYTES) return OPTION_OUT_OF_RANGE;
    if (setting->source >= reader->sources[id]) {
        reader->paths[id] = setting->value;
        reader->values[id] = option_infos[id].initial;
        reader->sources[id] = (uint8_t)setting->source;
    }
    return OPTION_VALID;
}

static bool is_weaker(struct rank a, struct rank b) {
    return a.source < b.source || (a.source == b.source && a.number < b.number);
}

static enum option_verdict take_file(struct reader *reader, const struct setting *setting) {
    const struct rank rank = {setting->source, reader->profiles_seen++};
    if (setting->value.length >= OPTION_PATH_BYTES) return OPTION_OUT_OF_RANGE;
    if (!is_weaker(rank, reader->unusable)) return OPTION_VALID; /* it was said why not */
    if (setting->source >= reader->sources[OPTION_profile]) reader->profile = rank;
    return take_path(reader, OPTION_profile, setting);
}

/* In a profile's file `profile` names another profile, whose settings the file builds on. It does not count as set by the user. */
static enum option_verdict take_base(struct reader *reader, const struct setting *setting) {
    return option_parse(&option_infos[OPTION_profile], setting->value.start, setting->value.length,
                        &reader->values[OPTION_profile]);
}

static enum option_verdict take_depths(struct reader *reader, enum option_id id, const struct setting *setting) {
    uint16_t depths[SIZE_CLASSES];
    enum option_verdict verdict = option_parse_depths(&option_infos[id], setting->value.start, setting->value.length, depths);
    if (verdict == OPTION_VALID && setting->source >= reader->sources[id]) {
        reader->paths[id] = setting->value;
        reader->sources[id] = (uint8_t)setting->source;
    }
    return verdict;
}

static enum option_verdict take_value(struct reader *reader, enum option_id id, const struct setting *setting) {
    uint64_t value;
    if (option_infos[id].type == OPTION_TYPE_PATH) return take_path(reader, id, setting);
    if (option_infos[id].type == OPTION_TYPE_DEPTHS) return take_depths(reader, id, setting);
    if (id == OPTION_profile && setting->source == OPTION_FROM_FILE) return take_base(reader, setting);
    if (id == OPTION_profile && has_slash(setting->value)) return take_file(reader, setting);
    enum option_verdict verdict = option_parse(&option_infos[id], setting->value.start, setting->value.length, &value);
    if (verdict == OPTION_VALID && setting->source >= reader->sources[id]) {
        reader->values[id] = value;
        reader->paths[id].length = 0;
        reader->sources[id] = (uint8_t)setting->source;
    }
    return verdict;
}

static HAK_COLD void apply(struct reader *reader, const struct setting *setting) {
    unsigned id = 0;
    while (id < OPTION_TOTAL && !setting_is_named(setting, option_infos[id].name)) id++;
    if (id == OPTION_TOTAL) {
        reader->mistaken = true;
        if (!reader->silent) message_unknown(setting);
        return;
    }
    /* An empty variable, as HAKMEM_STATS= in a shell, means that it is not set. In a list an empty value is a mistake. */
    if (setting->value.length == 0 && setting->source == OPTION_FROM_ENVIRONMENT) return;
    enum option_verdict verdict = take_value(reader, (enum option_id)id, setting);
    if (verdict == OPTION_VALID) return;
    reader->mistaken = true;
    if (!reader->silent) message_value(setting, &option_infos[id], verdict);
}

/* ---- this process --------------------------------------------------------------------------------- */

/* A program may define it: hakmem.h. */
extern const char *hakmem_conf __attribute__((weak));

bool options_has_program(void) { return &hakmem_conf != NULL; }

void options_read_process(struct hak_options *out) {
    const char *program = options_has_program() ? hakmem_conf : NULL;
    options_read(out, (const char *const *)os_environment(), program, getauxval(AT_SECURE) != 0);
}

enum option_id option_find(const char *name) {
    unsigned id = 0;
    while (id < OPTION_TOTAL && !option_is_word(name, strlen(name), option_infos[id].name)) id++;
    return (enum option_id)id;
}

/* The field of option ID, whichever type it has. */
static void store(struct hak_options *options, enum option_id id, uint64_t value) {
#define STORE_BOOL(name, ...) \
    if (id == OPTION_##name) options->name = value != 0;
#define STORE_NUMBER(name, ...) \
    if (id == OPTION_##name) options->name = value;
#define STORE_CHOICE(name, ...) \
    if (id == OPTION_##name) options->name = (enum hak_##name)value;
    OPTION_TABLE(STORE_BOOL, STORE_NUMBER, STORE_CHOICE, NOTHING, NOTHING)
}

static uint64_t load_number(const struct hak_options *options, enum option_id id) {
    uint64_t value = 0;
#define LOAD(name, ...) \
    if (id == OPTION_##name) value = (uint64_t)options->name;
    OPTION_TABLE(LOAD, LOAD, LOAD, NOTHING, NOTHING)
    return value;
}

static char *path_of(struct hak_options *options, enum option_id id) {
    char *path = options->profile_file;
#define FIND(name, ...) \
    if (id == OPTION_##name) path = options->name;
    OPTION_TABLE(NOTHING, NOTHING, NOTHING, FIND, NOTHING)
    return path;
}

static const uint16_t *depths_of(const struct hak_options *options, enum option_id id) {
    const uint16_t *depths = NULL;
#define FIND_DEPTHS(name, ...) \
    if (id == OPTION_##name) depths = options->name;
    OPTION_TABLE(NOTHING, NOTHING, NOTHING, NOTHING, FIND_DEPTHS)
    return depths;
}

HAK_COLD int options_change(struct hak_options *options, const char *name, const char *value) {
    enum option_id id = option_find(name);
    if (id == OPTION_TOTAL) return ENOENT;
    if (!option_infos[id].anytime) return EPERM;
    struct text text = trim(text_of(value));
    uint64_t number;
    if (option_infos[id].type == OPTION_TYPE_PATH) {
        if (text.length >= OPTION_PATH_BYTES) return EINVAL;
        copy_path(path_of(options, id), text);
    } else {
        if (option_parse(&option_infos[id], text.start, text.length, &number) != OPTION_VALID) return EINVAL;
        store(options, id, number);
    }
    options->sources[id] = OPTION_FROM_CALL;
    return 0;
}

HAK_COLD void options_value(const struct hak_options *options, enum option_id id, char *buffer, size_t bytes) {
    const char *path = path_of((struct hak_options *)(uintptr_t)options, id);
    bool is_path = option_infos[id].type == OPTION_TYPE_PATH || (id == OPTION_profile && path[0] != '\0');
    const uint16_t *depths = depths_of(options, id);
    if (depths != NULL) {
        option_format_depths(&option_infos[id], depths, buffer, bytes);
        return;
    }
    if (!is_path) {
        option_format(&option_infos[id], load_number(options, id), buffer, bytes);
        return;
    }
    size_t length = min_size(strlen(path), bytes - 1);
    memcpy(buffer, path, length);
    buffer[length] = '\0';
}

/* ---- sources -------------------------------------------------------------------------------------- */

enum option_source options_source(const struct hak_options *options, enum option_id id) {
    return (enum option_source)options->sources[id];
}

const char *option_source_name(enum option_source source) {
    static const char *const names[OPTION_SOURCES] = {"default", "objective", "profile", "file", "program", "conf", "environment", "api"};
    return names[source];
}
