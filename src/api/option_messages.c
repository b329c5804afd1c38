/* option_messages.c - the messages about settings that are ignored. */
#include "api/setting.h"

#include "os/os.h"

#define ORIGIN_BYTES 48

/* How much of a name or value is quoted, so that a message stays on one line. */
#define QUOTE_BYTES 48

static const char *const origins[OPTION_SOURCES] = {
    [OPTION_FROM_DEFAULT] = "",
    [OPTION_FROM_OBJECTIVE] = "",
    [OPTION_FROM_PROFILE] = "profile: ",
    [OPTION_FROM_FILE] = "profile file, line ",
    [OPTION_FROM_PROGRAM] = "hakmem_conf: ",
    [OPTION_FROM_CONF] = OPTION_PREFIX "CONF: ",
    [OPTION_FROM_ENVIRONMENT] = OPTION_PREFIX,
    [OPTION_FROM_CALL] = "",
};

/* Where SETTING was found, as the beginning of a message. */
static const char *origin(const struct setting *setting, char buffer[ORIGIN_BYTES]) {
    struct sink sink = sink_open(buffer, ORIGIN_BYTES);
    sink_put(&sink, origins[setting->source]);
    if (setting->source == OPTION_FROM_FILE) {
        sink_put_number(&sink, setting->line);
        sink_put(&sink, ": ");
    }
    return buffer;
}

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

void message_unknown(const struct setting *setting) {
    struct nearest nearest = {.to = setting->name};
    bool variable = setting->source == OPTION_FROM_ENVIRONMENT;
    char accepts[OPTION_TEXT_BYTES] = "";
    for (size_t i = 0; i < OPTION_TOTAL; i++)
        if (is_nearer(&nearest, option_infos[i].name)) option_describe(&option_infos[i], accepts, sizeof accepts);
    for (size_t i = 0; variable && i < OPTION_OTHERS; i++)
        if (is_nearer(&nearest, option_other_variables[i])) accepts[0] = 0;
    char given[QUOTE_BYTES], name[OPTION_NAME_BYTES], from[ORIGIN_BYTES];
    os_message("%s%s is not an option and is ignored; the nearest is %s%s%s%s%s", origin(setting, from),
               quote(setting->name, given), variable ? OPTION_PREFIX : "",
               spell(nearest.name, setting->source, name), accepts[0] ? " (" : "", accepts,
               accepts[0] ? ")" : "");
}

void message_value(const struct setting *setting, const struct option_info *info, enum option_verdict verdict) {
    struct nearest nearest = {.to = setting->value}; /* stays without a name unless INFO is a choice */
    for (size_t i = 0; i < info->choice_count; i++) is_nearer(&nearest, info->choices[i].word);
    char name[OPTION_NAME_BYTES], given[QUOTE_BYTES], accepts[OPTION_TEXT_BYTES], from[ORIGIN_BYTES];
    option_describe(info, accepts, sizeof accepts);
    os_message("%s%s%s%s is %s and is ignored; it takes %s%s%s", origin(setting, from),
               spell(info->name, setting->source, name),
               setting->source == OPTION_FROM_ENVIRONMENT ? "=" : ":", quote(setting->value, given),
               verdict == OPTION_OUT_OF_RANGE ? "out of range" : "not understood", accepts,
               nearest.name ? "; the nearest is " : "", nearest.name ? nearest.name : "");
}

void message_file(const char *path, const char *reason) {
    os_message("the profile %s is ignored: %s", path, reason);
}
