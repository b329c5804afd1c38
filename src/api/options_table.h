/* options_table.h - the one place that defines options, profiles and the names hakmem answers to.
 *
 * To add an option, add one row to OPTION_TABLE: the field of struct hak_options, the environment
 * variable, the parser, the messages and the test of docs/options.md follow from it. A row's kind:
 *
 *   BOOL(name, when, default, cost, text)                       field: bool
 *   NUMBER(name, when, TYPE, minimum, maximum, word,            field: uint64_t in the type's base unit
 *          word_value, default, cost, text)
 *   CHOICE(name, when, LIST, default, cost, text)               field: enum hak_<name>
 *   PATH(name, when, cost, text)                                field: char[OPTION_PATH_BYTES]; "" by default
 *   DEPTHS(name, when, maximum, cost, text)                     field: uint16_t[SIZE_CLASSES]; `auto`, 0, by default
 *
 * NAME is lower case, at most OPTION_NAME_BYTES - 1 bytes, and not in OPTION_OTHER_VARIABLES. WHEN is START, or ANYTIME for what
 * hak_option_set may change later. TYPE is COUNT, BYTES or MILLISECONDS. WORD is the one word accepted beside the
 * numbers (NULL: none) and stands for WORD_VALUE, which lies outside the range. COST says what the setting costs, TEXT what
 * it does, in one sentence. LIST(X) has one X(ENUMERATOR, word, text) per choice; where the first word is `off`, the words of a
 * bool stand for the first two choices as well.
 */
#ifndef HAK_API_OPTIONS_TABLE_H
#define HAK_API_OPTIONS_TABLE_H

#include "base/attributes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What `auto` and `never` become in a number's field. */
#define OPTION_AUTO UINT64_C(0)
#define OPTION_NEVER UINT64_MAX

/* A profile is a choice with one more column: a list as in HAKMEM_CONF, of weaker standing than any
 * setting of the user's. What each trades is measured: docs/options.md. */
#define OPTION_PROFILES(X)                                                                                  \
    X(PROFILE_BALANCED, "balanced", "speed and memory in balance: every default", "")                       \
    X(PROFILE_SPEED, "speed", "keeps more memory to save page faults and refills",                          \
      "objective:speed")                                                                         \
    X(PROFILE_SERVER, "server", "keeps what one peak leaves for the next; more memory between them",         \
      "objective:speed,decay:5s")                                                                         \
    X(PROFILE_CLI, "cli", "for short-lived programs: no thread is ever started",                             \
      "purge_thread:off")                                                                                   \
    X(PROFILE_SMALL, "small", "gives memory back sooner, at the price of faults and refills",               \
      "objective:small,huge_pages:never")

#define OPTION_OBJECTIVES(X)                                                                                \
    X(OBJECTIVE_SMALL, "small", "little memory: half, or less, of what is kept, and sooner back")           \
    X(OBJECTIVE_BALANCED, "balanced", "both")                                                               \
    X(OBJECTIVE_SPEED, "speed", "few faults and slow paths: twice, or more, of what is kept, and longer")

#define OPTION_HUGE_PAGES(X)                                                                                \
    X(HUGE_PAGES_AUTO, "auto",                                                                              \
      "once 32 MiB are in use, for memory that will be filled, where three eighths of what is in use were touched")   \
    X(HUGE_PAGES_NEVER, "never", "never asked for")                                                         \
    X(HUGE_PAGES_ALWAYS, "always", "asked for from the first byte")

#define OPTION_FOREIGN_FREE(X)                                                                              \
    X(FOREIGN_FREE_ABORT, "abort", "ends the process with a line that says what the pointer looks like")    \
    X(FOREIGN_FREE_COUNT, "count", "counts, says so once, and otherwise ignores it")                          \
    X(FOREIGN_FREE_LIBC, "libc",                                                                            \
      "counts, and hands it to the malloc behind hakmem, usually libc's, unless it lies in hakmem's own memory")

#define OPTION_STATS(X)                                                                                     \
    X(STATS_OFF, "off", "nothing")                                                                          \
    X(STATS_TEXT, "text", "for people; `on` means the same")                                                \
    X(STATS_JSON, "json", "one JSON object, as docs/statistics.schema.json describes it")                   \
    X(STATS_OPENMETRICS, "openmetrics", "OpenMetrics text, as Prometheus reads it")

#define OPTION_TABLE(BOOL, NUMBER, CHOICE, PATH, DEPTHS)                                                    \
    CHOICE(profile, START, OPTION_PROFILES, PROFILE_BALANCED, "as its settings",                            \
           "Values for several options at once, by a name or from a file, whose name has a `/` in it; any " \
           "other setting of an option wins over it.")                                                      \
    BOOL(quiet, START, false, "mistakes in options stay unseen",                                            \
         "Silences the lines about unknown or malformed options.")                                          \
    CHOICE(stats, ANYTIME, OPTION_STATS, STATS_OFF, "a report at exit; nothing before",                     \
           "In which form statistics are written when the process exits, and on the signal.")               \
    PATH(stats_file, ANYTIME, "a file written at exit",                                                     \
         "Where they are written, anew each time; `%p` in it becomes the process's number. Empty: to standard error.") \
    NUMBER(stats_signal, START, COUNT, 1, 64, "none", 0, 0, "a handler for that signal",                    \
           "The number of a signal that has them written while the program runs, and that stands for no fault.")                          \
    BOOL(trace_failures, ANYTIME, false, "a line for each allocation that fails",                           \
         "Prints why an allocation failed.")                                                                \
    CHOICE(objective, START, OPTION_OBJECTIVES, OBJECTIVE_BALANCED, "small: faults and refills; speed: memory",  \
           "What every decision about memory leans to; it also sets `thread_cache` and `decay` where nobody does.") \
    BOOL(adapt, START, true, "off: what fits the program must be known",                                    \
         "Whether the depth of caches and the half-life of free memory follow the program; off: they stay as they are set.") \
    DEPTHS(bin_depth, START, 8192,                                                                          \
           "deeper: more memory cached per thread; shallower: more refills and spills",                     \
           "Free blocks kept per size class and thread, but no more than 2 MiB of a size (docs/ace.md): of all to 64 KiB, or by the size of blocks, the others as with `auto`, which " \
           "follows the program.")                                                                          \
    NUMBER(thread_cache, ANYTIME, BYTES, HAK_KIB(64), HAK_GIB(1), NULL, 0, HAK_MIB(16),                     \
           "up to this much memory per thread held free, and half as much of blocks above 64 KiB; of these twice as much by a thread that is alone, until the process grows", \
           "How far all bins of a thread together may be sized, in bytes, beyond what they have at first; bins whose depth is set do not count. Those of blocks above 64 KiB have half as many beside that;" \
           " twice as many as it says where the thread is alone or hardly touches them.") \
    NUMBER(decay, ANYTIME, MILLISECONDS, 0, 3600000, "never", OPTION_NEVER, 500,                            \
           "longer: more resident memory; shorter: more page faults and system calls",                      \
           "Half-life of free memory before it goes back to the kernel; `never` keeps it.")                 \
    BOOL(purge_thread, ANYTIME, true,                                                                       \
         "on: a thread of hakmem's own, while there is something to give back",                             \
         "Whether a thread may be started that gives free memory back while the program sleeps.")           \
    BOOL(pressure, ANYTIME, true,                                                                           \
         "on: some files read once a second, by that thread",                                               \
         "Whether that thread gives everything back that is free while memory is short: near a limit of the control " \
         "group, or when the kernel says that programs wait for memory.")                                   \
    NUMBER(soft_limit, ANYTIME, BYTES, HAK_MIB(1), HAK_GIB(1 << 20), "none", OPTION_NEVER, OPTION_NEVER,       \
           "above it: whatever is free goes back, ten times a second",                                      \
           "How much may be in use before the program is told, if it asked to be (hak_on_soft_limit), and free " \
           "memory is given back at once.")                                                                 \
    NUMBER(hard_limit, ANYTIME, BYTES, HAK_MIB(8), HAK_GIB(1 << 20), "none", OPTION_NEVER, OPTION_NEVER,       \
           "above it: allocations fail",                                                                    \
           "How much may be in use at most: beyond it malloc returns NULL. The last 4 MiB, or an eighth, are " \
           "left to requests of up to 512 KiB.")                                                            \
    CHOICE(huge_pages, ANYTIME, OPTION_HUGE_PAGES, HUGE_PAGES_AUTO,                                         \
           "`always`: up to 2 MiB resident for any block in use; `never`: more page faults and TLB misses", \
           "When the kernel is asked for huge pages.")                                                      \
    BOOL(populate, ANYTIME, false, "on: memory that may never be used",                                     \
         "Brings in the first pages of new slabs of busy classes at once, not one page fault at a time.")   \
    NUMBER(window, START, BYTES, HAK_MIB(64), HAK_GIB(65536), "auto", OPTION_AUTO, OPTION_AUTO,             \
           "address space for the books: 1.3 GiB per TiB; no memory until used",                           \
           "Address space served on the fast path; `auto` fits it to the limits of the process.")           \
    CHOICE(foreign_free, ANYTIME, OPTION_FOREIGN_FREE, FOREIGN_FREE_ABORT,                                  \
           "`count`: a wild pointer goes unnoticed; `libc`: it is followed",                                \
           "What free and realloc do with a pointer that hakmem never returned.")

/* HAKMEM_ variables that are no options of the library: the list, and what ./hakmem reads. They are
 * known, so they are not reported. Without the prefix, in lower case like the option names. */
#define OPTION_OTHER_VARIABLES "conf", "proof", "show_options", "no_install", "build_dir", "strict"

#endif
