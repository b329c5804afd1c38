/* setting.h - one setting on its way from text to an option, and values on their way to text, for options.c and option_*.c. */
#ifndef HAK_API_SETTING_H
#define HAK_API_SETTING_H

#include "api/options.h"

/* Bytes of the environment, of a file or of the table, without a final 0 of their own. */
struct text {
    const char *start;
    size_t length;
};

struct setting {
    struct text name; /* without HAKMEM_ */
    struct text value;
    enum option_source source;
    unsigned line;    /* of a file */
};

#define OPTION_PREFIX "HAKMEM_"

/* Whether SETTING is of the option, or other variable, called NAME. Variables must be upper case: otherwise HAKMEM_stats would work
 * here and nowhere else. */
bool setting_is_named(const struct setting *setting, const char *name);

/* ---- option_values.c: a buffer that takes what fits and always ends in 0 ---------------------------------- */

struct sink {
    char *at;
    size_t left; /* bytes still free for text, the final 0 not counted */
};

struct sink sink_open(char *buffer, size_t bytes);
void sink_put(struct sink *sink, const char *text);
void sink_put_number(struct sink *sink, uint64_t number);

/* ---- option_messages.c: a line on the message descriptor for what is ignored -------------------------- */

/* Says that there is no such option, and which one is nearest. */
void message_unknown(const struct setting *setting);

/* Says what the option takes instead. VERDICT: what was wrong. */
void message_value(const struct setting *setting, const struct option_info *info, enum option_verdict verdict);

/* Says that the profile's file cannot be used, for REASON. */
void message_file(const char *path, const char *reason);

#endif
