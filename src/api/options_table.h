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
 * hak_option_set may change later. TYPE is COUNT, BYTES or MILLISECONDS. WORD is the one word accepted beside the numbers (NULL:
 * none) and stands for WORD_VALUE, which lies outside the range. COST says what the setting costs, without a full stop at the
 * end; TEXT what it does, in whole sentences. LIST(X) has one X(ENUMERATOR, word, text) per choice; where the first word is `off`,
 * the words of a bool stand for the first two choices as well.
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

/* A profile is a choice with one more column: a list as in HAKMEM_CONF, weaker than any other setting. What each trades is
 * measured: docs/options.md. */
#define OPTION_PROFILES(X)                                                                                  \
    X(PROFILE_BALANCED, "balanced", "speed and memory in balance: every default", "")                       \
    X(PROFILE_SPEED, "speed", "keeps more memory to save page faults and refills", "objective:speed")       \
    X(PROFILE_SERVER, "server", "keeps the memory of one peak for the next; more memory between peaks",     \
      "objective:speed,decay:5s")                                                                           \
    X(PROFILE_CLI, "cli", "for short-lived programs: no purge thread is started, so `pressure` has no effect", \
      "purge_thread:off")                                                                                   \
    X(PROFILE_SMALL, "small", "returns memory sooner, at the price of page faults and refills",             \
      "objective:small,huge_pages:never")

#define OPTION_OBJECTIVES(X)                                                                                \
    X(OBJECTIVE_SMALL, "small", "little memory: keeps half or less, and returns it sooner")                 \
    X(OBJECTIVE_BALANCED, "balanced", "both")                                                               \
    X(OBJECTIVE_SPEED, "speed", "few page faults and slow paths: keeps twice or more, and longer")

#define OPTION_HUGE_PAGES(X)                                                                                    \
    X(HUGE_PAGES_AUTO, "auto",                                                                                  \
      "for blocks to 4672 bytes of sizes that are used much, once 4 MiB were touched. For other memory "        \
      "that will be filled, once 8 MiB are in use and three eighths of that were touched, which is "           \
      "looked at again with each quarter more; not for a new block of more than twice what is in use. "         \
      "Where less than seven eighths were touched, a quarter as much again gets them until the next "           \
      "look, unless objective is speed; blocks that grow are not limited so. What was in use before is "         \
      "collapsed into some, if half of 2 MiB is resident, which may bring in an eighth of what is in use "       \
      "(speed: a quarter, small: a 256th). None where the kernel's are not of 2 MiB")                             \
    X(HUGE_PAGES_NEVER, "never", "never requested")                                                             \
    X(HUGE_PAGES_ALWAYS, "always",                                                                              \
      "requested whatever is in use and was touched, but not for the first slabs of a size, nor for a "         \
      "block above 64 KiB that leaves more than a quarter of its size unused")

#define OPTION_FOREIGN_FREE(X)                                                                              \
    X(FOREIGN_FREE_ABORT, "abort", "ends the process with a line that says what the pointer looks like")    \
    X(FOREIGN_FREE_COUNT, "count", "counts it, prints a line for the first, and otherwise ignores it")      \
    X(FOREIGN_FREE_LIBC, "libc",                                                                            \
      "counts it and passes it to the next malloc, usually libc's; `abort` if it lies in hakmem's own memory")

#define OPTION_STATS(X)                                                                                     \
    X(STATS_OFF, "off", "nothing")                                                                          \
    X(STATS_TEXT, "text", "for people to read; `1` and `on` mean this")                                     \
    X(STATS_JSON, "json", "one JSON object, as docs/statistics.schema.json describes it")                   \
    X(STATS_OPENMETRICS, "openmetrics", "OpenMetrics text, as Prometheus reads it")

#define OPTION_TABLE(BOOL, NUMBER, CHOICE, PATH, DEPTHS)                                                    \
    CHOICE(profile, START, OPTION_PROFILES, PROFILE_BALANCED, "as its settings",                            \
           "Sets several options: a name, or a file whose path contains a `/`. Any other setting of an option " \
           "overrides it.")                                                                                 \
    BOOL(quiet, START, false, "mistakes in options go unnoticed",                                           \
         "Suppresses the lines about unknown or malformed options.")                                        \
    CHOICE(stats, ANYTIME, OPTION_STATS, STATS_OFF, "a report at exit; nothing before",                     \
           "Format of the statistics that are written when the process exits, and on `stats_signal`.")      \
    PATH(stats_file, ANYTIME, "a file written at exit",                                                     \
         "The file they are written to, replaced each time; `%p` stands for the process ID. Empty: standard error.") \
    NUMBER(stats_signal, START, COUNT, 1, 64, "none", 0, 0, "a handler for that signal",                    \
           "Number of a signal that has them written while the program runs. It must not be one that stands for a fault.") \
    BOOL(trace_failures, ANYTIME, false, "a line for each allocation that fails",                           \
         "Prints why an allocation failed.")                                                                \
    CHOICE(objective, START, OPTION_OBJECTIVES, OBJECTIVE_BALANCED, "small: page faults and refills; speed: memory", \
           "What every decision about memory favours. It also sets `thread_cache` and `decay` unless they are set.") \
    BOOL(adapt, START, true, "off: you must know what fits the program",                                    \
         "Whether cache depths and the half-life of free memory follow the program. Off: they stay as set.") \
    DEPTHS(bin_depth, START, 8192,                                                                          \
           "deeper: more memory cached per thread; shallower: more refills and spills",                     \
           "Free blocks kept per size and thread: one number for all sizes up to 64 KiB, or one for each size named; the " \
           "others stay `auto`, which follows the program. Capped per size at 2 MiB, or 8 MiB above 64 KiB (objective " \
           "small: an eighth of that and 4096 blocks; speed: twice).")                                      \
    NUMBER(thread_cache, ANYTIME, BYTES, HAK_KIB(64), HAK_GIB(1), NULL, 0, HAK_MIB(16),                     \
           "up to this much free memory per thread, and half as much in blocks above 64 KiB; up to twice as much of " \
           "these in a thread that is alone, until the process grows",                                      \
           "Bound in bytes on how far a thread's caches of blocks up to 64 KiB may grow beyond their first depths; set " \
           "depths do not count. Of larger blocks half as much, up to twice as much if the thread is alone or the " \
           "program touches little of them.")                                                               \
    NUMBER(decay, ANYTIME, MILLISECONDS, 0, 3600000, "never", OPTION_NEVER, 500,                            \
           "longer: more resident memory; shorter: more page faults and system calls",                      \
           "Half-life of free memory before it returns to the kernel; `never` keeps it.")                   \
    BOOL(purge_thread, ANYTIME, true,                                                                       \
         "on: a thread of hakmem's own, while there is something to return",                                \
         "Whether a thread may be started that returns free memory while the program sleeps.")              \
    BOOL(pressure, ANYTIME, true,                                                                           \
         "on: some files read once a second, by that thread, or as a process of one thread grows; up to three stay open", \
         "Whether all free memory is returned while memory is short: near a limit of the control group, or when the " \
         "kernel reports that programs wait for memory. By that thread, so no effect with `purge_thread:off` or " \
         "`decay:never`; near a limit by a thread that is alone, too.")                                     \
    NUMBER(soft_limit, ANYTIME, BYTES, HAK_MIB(1), HAK_GIB(1 << 20), "none", OPTION_NEVER, OPTION_NEVER,    \
           "above it: one thread returns all free memory, at most ten times a second and in a thirtieth of the time",                             \
           "Memory in use above which the program is told (hak_on_soft_limit) and free memory returns to the kernel " \
           "immediately.")                                                                                  \
    NUMBER(hard_limit, ANYTIME, BYTES, HAK_MIB(8), HAK_GIB(1 << 20), "none", OPTION_NEVER, OPTION_NEVER,    \
           "above it: allocations fail",                                                                    \
           "Memory in use beyond which malloc returns NULL. The last 4 MiB below the limit, or its last eighth if that is " \
           "less, are reserved for requests of up to 512 KiB.")                                             \
    CHOICE(huge_pages, ANYTIME, OPTION_HUGE_PAGES, HUGE_PAGES_AUTO,                                         \
           "`always`: up to 2 MiB resident for any block in use; `never`: more page faults and TLB misses", \
           "When huge pages are requested from the kernel.")                                                \
    BOOL(populate, ANYTIME, false, "on: memory that may never be used",                                     \
         "Prefaults the first pages of new slabs of busy sizes, instead of one page fault at a time.")      \
    NUMBER(window, START, BYTES, HAK_MIB(64), HAK_GIB(65536), "auto", OPTION_AUTO, OPTION_AUTO,             \
           "address space for metadata: 1.3 GiB per TiB; no memory until used",                             \
           "Address space served on the fast path; `auto` fits it to the limits of the process.")           \
    CHOICE(foreign_free, ANYTIME, OPTION_FOREIGN_FREE, FOREIGN_FREE_ABORT,                                  \
           "`count`: a wild pointer goes unnoticed; `libc`: libc's free follows it",                        \
           "What free, realloc, malloc_usable_size and hak_try_expand do with a pointer that hakmem never returned.")

/* HAKMEM_ variables that are not options of the library: HAKMEM_CONF, and what ./hakmem sets or reads. They are not reported as
 * unknown. Without the prefix, in lower case like the option names. */
#define OPTION_OTHER_VARIABLES "conf", "proof", "show_options", "no_install", "build_dir", "strict"

#endif
