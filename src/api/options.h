/* options.h - the settings of this process, read once from its environment before the first block.
 *
 * Where a value comes from, the strongest first: a call of hak_option_set, HAKMEM_<NAME> variables, the list
 * HAKMEM_CONF=a:b,c:d, the list that the program was compiled with (hakmem_conf), the profile's file, the profile, the
 * objective, the default. Within one source the last setting counts. A setting that is unknown or not understood gets one line on standard
 * error and changes nothing else.
 *
 * Nothing here allocates, takes a lock, uses the locale or keeps state, and no file is read but that of a profile: the
 * functions work before libc has started, and from any thread.
 */
#ifndef HAK_API_OPTIONS_H
#define HAK_API_OPTIONS_H

#include "ace/objective.h"
#include "api/options_table.h"
#include "base/size_classes.h"
#include "watch/deliver.h"

/* ---- names, choices and fields, generated from the table ----------------------------------------- */

#define OPTION_NAME_BYTES 32 /* the longest name, with its 0 */

#define OPTION_NOTHING(...)
#define OPTION_ENUMERATOR(id, ...) id,
#define OPTION_CHOICE_ENUM(name, when, list, ...) enum hak_##name { list(OPTION_ENUMERATOR) };
OPTION_TABLE(OPTION_NOTHING, OPTION_NOTHING, OPTION_CHOICE_ENUM, OPTION_NOTHING, OPTION_NOTHING)

#define OPTION_ID(name, ...) OPTION_##name,
enum option_id { OPTION_TABLE(OPTION_ID, OPTION_ID, OPTION_ID, OPTION_ID, OPTION_ID) OPTION_TOTAL };

/* Weakest first: a setting replaces only what comes from its own source or a weaker one. */
enum option_source {
    OPTION_FROM_DEFAULT,
    OPTION_FROM_OBJECTIVE, /* one that is not `balanced` */
    OPTION_FROM_PROFILE,
    OPTION_FROM_FILE,    /* of a profile */
    OPTION_FROM_PROGRAM, /* hakmem_conf */
    OPTION_FROM_CONF,
    OPTION_FROM_ENVIRONMENT,
    OPTION_FROM_CALL,    /* hak_option_set */
    OPTION_SOURCES
};

#define OPTION_BOOL_FIELD(name, ...) bool name;
#define OPTION_NUMBER_FIELD(name, ...) uint64_t name;
#define OPTION_CHOICE_FIELD(name, ...) enum hak_##name name;
#define OPTION_PATH_FIELD(name, ...) char name[OPTION_PATH_BYTES];
#define OPTION_DEPTHS_FIELD(name, ...) uint16_t name[SIZE_CLASSES];
#define OPTION_PATH_BYTES DELIVER_PATH_BYTES /* the longest path, with its 0 */
struct hak_options {
    OPTION_TABLE(OPTION_BOOL_FIELD, OPTION_NUMBER_FIELD, OPTION_CHOICE_FIELD, OPTION_PATH_FIELD, OPTION_DEPTHS_FIELD)
    char profile_file[OPTION_PATH_BYTES]; /* "" when the profile is one of the table's */
    uint8_t sources[OPTION_TOTAL];        /* an enum option_source each */
};

#undef OPTION_NOTHING
#undef OPTION_ENUMERATOR
#undef OPTION_CHOICE_ENUM
#undef OPTION_ID
#undef OPTION_BOOL_FIELD
#undef OPTION_NUMBER_FIELD
#undef OPTION_CHOICE_FIELD
#undef OPTION_PATH_FIELD
#undef OPTION_DEPTHS_FIELD

/* ---- reading (options.c) ------------------------------------------------------------------------- */

/* Fills OUT from ENVIRONMENT, a NULL-terminated array of NAME=value strings, or NULL for none, and from PROGRAM, a list as in
 * HAKMEM_CONF, or NULL. SECURE: the process runs with rights its caller lacks, so the environment is ignored; PROGRAM is read all the
 * same. An empty variable counts as unset. Writes to the message descriptor and to OUT only. */
void options_read(struct hak_options *out, const char *const *environment, const char *program, bool secure);

/* The same from the environment and AT_SECURE of this process, even before libc has set environ. Like
 * getenv it must not run beside setenv: once, at start, and after the loader has relocated a program that has settings. */
void options_read_process(struct hak_options *out);

/* Whether the program has settings: hakmem_conf, a pointer. */
bool options_has_program(void);

enum ace_objective options_objective(const struct hak_options *options);

/* Sets one option as hak_option_set does: 0, or an errno: ENOENT, no such option; EPERM, it can only be set at the start;
 * EINVAL, VALUE is not understood or out of range. */
int options_change(struct hak_options *options, const char *name, const char *value);

/* The option called NAME; OPTION_TOTAL when there is none. */
enum option_id option_find(const char *name);

/* Longest value of any option as text, with its 0. */
#define OPTION_VALUE_BYTES 1000

/* The value of option ID as text, as option_format writes it; paths as they are. */
void options_value(const struct hak_options *options, enum option_id id, char *buffer, size_t bytes);

/* Where the value of option ID comes from, and that source in one word. */
enum option_source options_source(const struct hak_options *options, enum option_id id);
const char *option_source_name(enum option_source source);

/* ---- the table at run time (options.c) ----------------------------------------------------------- */

enum option_type {
    OPTION_TYPE_BOOL,
    OPTION_TYPE_COUNT,
    OPTION_TYPE_BYTES,
    OPTION_TYPE_MILLISECONDS,
    OPTION_TYPE_CHOICE,
    OPTION_TYPE_PATH,
    OPTION_TYPE_DEPTHS
};

struct option_choice {
    const char *word;
    const char *text;
};

struct option_info {
    const char *name;
    enum option_type type;
    bool anytime;     /* hak_option_set may change it */
    uint64_t minimum; /* numbers: the range, in the type's base unit */
    uint64_t maximum;
    const char *word; /* numbers: also accepted, for WORD_VALUE; NULL if none */
    uint64_t word_value;
    const struct option_choice *choices; /* choices: by enumerator, CHOICE_COUNT of them */
    size_t choice_count;
    uint64_t initial; /* the default */
    const char *cost;
    const char *text;
};

/* Every option, in the order of enum option_id. */
extern HAK_HIDDEN const struct option_info option_infos[OPTION_TOTAL];

/* OPTION_OTHER_VARIABLES. */
enum { OPTION_OTHERS = sizeof((const char *const[]){OPTION_OTHER_VARIABLES}) / sizeof(const char *) };
extern HAK_HIDDEN const char *const option_other_variables[OPTION_OTHERS];

/* ---- values as text (option_values.c) ------------------------------------------------------------ */

enum option_verdict { OPTION_VALID, OPTION_MALFORMED, OPTION_OUT_OF_RANGE };

/* Reads the LENGTH bytes at TEXT as a value of the option INFO. Stores it in *VALUE (0 and 1 for bool,
 * the enumerator for a choice) if the verdict is OPTION_VALID, and leaves *VALUE alone otherwise.
 * Case does not matter; blanks may stand between a number and its unit. */
enum option_verdict option_parse(const struct option_info *info, const char *text, size_t length,
                                 uint64_t *value);

/* Longest text of the two functions below for any row of the table, with its 0. */
#define OPTION_TEXT_BYTES 96

/* Writes VALUE as text that option_parse reads back as the same value, in the largest unit that divides
 * it. Cuts the text to BYTES (not 0), the final 0 included. */
void option_format(const struct option_info *info, uint64_t value, char *buffer, size_t bytes);

/* The same for a number per size class, 0 for `auto` (option_depths.c): one number for all small classes, or items BLOCK:NUMBER,
 * joined by `+`, where BLOCK is a block size. Classes that are not named are `auto`. */
enum option_verdict option_parse_depths(const struct option_info *info, const char *text, size_t length,
                                        uint16_t depths[SIZE_CLASSES]);
void option_format_depths(const struct option_info *info, const uint16_t depths[SIZE_CLASSES], char *buffer, size_t bytes);

/* Writes what INFO accepts, as "64KiB to 1GiB" or "auto, never or always"; cut to BYTES (not 0). */
void option_describe(const struct option_info *info, char *buffer, size_t bytes);

/* The type and its base unit in words: "bytes", "choice". */
const char *option_type_name(enum option_type type);

/* How far the LENGTH bytes at TEXT are from NAME: insertions, deletions, replacements and swaps of
 * neighbours, without regard to case; 1 if NAME contains TEXT of three bytes or more. Only the first
 * OPTION_NAME_BYTES of TEXT count. */
unsigned option_distance(const char *text, size_t length, const char *name);

/* True when the LENGTH bytes at TEXT are WORD, without regard to case. */
bool option_is_word(const char *text, size_t length, const char *word);

#endif
