/* options_test.c - tests of src/api/options.c. */
#include "api/options.h"
#include "options_said.h"

extern char **environ;

/* ---- reading -------------------------------------------------------------------------------------- */

static void check_defaults(const struct hak_options *options) {
    CHECK(!options->stats && !options->quiet);
    CHECK_EQ(options->profile, PROFILE_BALANCED);
    CHECK_EQ(options->bin_depth[0], OPTION_AUTO);
    CHECK(options->adapt);
    CHECK_EQ(options->thread_cache, 16 << 20);
    CHECK_EQ(options->decay, 500);
    CHECK(options->purge_thread && !options->populate);
    CHECK_EQ(options->huge_pages, HUGE_PAGES_AUTO);
    CHECK_EQ(options->window, OPTION_AUTO);
    CHECK_EQ(options->foreign_free, FOREIGN_FREE_ABORT);
    for (int id = 0; id < OPTION_TOTAL; id++)
        CHECK_AT(options_source(options, (enum option_id)id) == OPTION_FROM_DEFAULT, id);
}

TEST(defaults_without_environment) {
    struct hak_options options = read_options(NULL, false);
    check_defaults(&options);
    options = read_options((const char *const[]){NULL}, false);
    check_defaults(&options);
    /* Near misses of the prefix. */
    options = READ("", "H", "HAKMEM", "HAKMEM=1", "hakmem_stats=1", "XHAKMEM_STATS=1", "=HAKMEM_STATS=1");
    check_defaults(&options);
    CHECK_EQ(lines_said(), 0);
}

TEST(every_option_by_its_variable) {
    struct hak_options options =
        READ("HAKMEM_STATS=1", "HAKMEM_QUIET=yes", "HAKMEM_BIN_DEPTH=64", "HAKMEM_THREAD_CACHE=128K",
             "HAKMEM_DECAY=2s", "HAKMEM_HUGE_PAGES=never", "HAKMEM_WINDOW=1T", "HAKMEM_FOREIGN_FREE=count");
    CHECK(options.stats == STATS_TEXT && options.quiet);
    CHECK(options.bin_depth[0] == 64 && options.bin_depth[SMALL_CLASSES - 1] == 64);
    CHECK_EQ(options.thread_cache, 128 << 10);
    CHECK_EQ(options.decay, 2000);
    CHECK_EQ(options.huge_pages, HUGE_PAGES_NEVER);
    CHECK_EQ(options.window, UINT64_C(1) << 40);
    CHECK_EQ(options.foreign_free, FOREIGN_FREE_COUNT);
    CHECK_EQ(options_source(&options, OPTION_window), OPTION_FROM_ENVIRONMENT);
    CHECK_EQ(options_source(&options, OPTION_profile), OPTION_FROM_DEFAULT);
    CHECK_EQ(lines_said(), 0);
}

TEST(profiles_are_understood) {
    const struct option_info *profile = &option_infos[OPTION_profile];
    for (size_t i = 0; i < profile->choice_count; i++) {
        char variable[64];
        snprintf(variable, sizeof variable, "HAKMEM_PROFILE=%s", profile->choices[i].word);
        struct hak_options options = READ(variable);
        CHECK_AT(said[0] == 0 && options.profile == i, i);
        CHECK_AT(options_source(&options, OPTION_profile) == OPTION_FROM_ENVIRONMENT, i);
    }
}

TEST(precedence) {
    /* In any order: environment over list over profile over default, option by option. */
    static const char *const variables[] = {"HAKMEM_DECAY=7ms", "HAKMEM_CONF=decay:8ms,thread_cache:1M",
                               "HAKMEM_PROFILE=small"};
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < 6; i++) {
        const int *order = orders[i];
        struct hak_options options = READ(variables[order[0]], variables[order[1]], variables[order[2]]);
        CHECK_AT(options.decay == 7 && options.thread_cache == 1 << 20, i);
        CHECK_AT(options.huge_pages == HUGE_PAGES_NEVER && options.bin_depth[0] == OPTION_AUTO, i);
        CHECK_AT(options_source(&options, OPTION_decay) == OPTION_FROM_ENVIRONMENT, i);
        CHECK_AT(options_source(&options, OPTION_thread_cache) == OPTION_FROM_CONF, i);
        CHECK_AT(options_source(&options, OPTION_huge_pages) == OPTION_FROM_PROFILE, i);
        CHECK_AT(options_source(&options, OPTION_bin_depth) == OPTION_FROM_DEFAULT, i);
    }
    /* The list may name the profile, and the variable wins over it. */
    struct hak_options options = READ("HAKMEM_CONF=huge_pages:always,profile:small");
    CHECK_EQ(options.profile, PROFILE_SMALL);
    CHECK_EQ(options.huge_pages, HUGE_PAGES_ALWAYS);
    CHECK_EQ(options.objective, OBJECTIVE_SMALL);
    CHECK_EQ(options_source(&options, OPTION_objective), OPTION_FROM_PROFILE);
    options = READ("HAKMEM_CONF=profile:small", "HAKMEM_PROFILE=balanced");
    CHECK_EQ(options.decay, 500);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_DEFAULT);
    /* What is not understood hides nothing. */
    options = READ("HAKMEM_DECAY=soon", "HAKMEM_CONF=decay:8ms");
    CHECK_EQ(options.decay, 8);
    CHECK_EQ(lines_said(), 1);
    CHECK(strcmp(option_source_name(OPTION_FROM_CONF), "conf") == 0);
}

TEST(an_objective_sets_what_nobody_else_has_set) {
    struct hak_options options = READ("HAKMEM_OBJECTIVE=small");
    CHECK(options.decay == 125 && options.thread_cache == 2 << 20);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_OBJECTIVE);
    CHECK_EQ(options_source(&options, OPTION_thread_cache), OPTION_FROM_OBJECTIVE);
    CHECK_EQ(options_source(&options, OPTION_huge_pages), OPTION_FROM_DEFAULT);
    options = READ("HAKMEM_PROFILE=server", "HAKMEM_THREAD_CACHE=16M");
    CHECK(options.decay == 5000 && options.thread_cache == 16 << 20);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_PROFILE);
    CHECK_EQ(options_source(&options, OPTION_thread_cache), OPTION_FROM_ENVIRONMENT);
    options = READ("HAKMEM_OBJECTIVE=balanced");
    CHECK(options.decay == 500 && options.thread_cache == 16 << 20);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_DEFAULT);
    CHECK_EQ(options_change(&options, "decay", "500ms"), 0);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_CALL);
    CHECK(strcmp(option_source_name(OPTION_FROM_OBJECTIVE), "objective") == 0);
}

TEST(the_last_of_equals_counts) {
    struct hak_options options = READ("HAKMEM_CONF=decay:1,decay:2,decay:3");
    CHECK_EQ(options.decay, 3);
    options = READ("HAKMEM_DECAY=4", "HAKMEM_DECAY=5");
    CHECK_EQ(options.decay, 5);
    options = READ("HAKMEM_CONF=decay:1", "HAKMEM_CONF=decay:2");
    CHECK_EQ(options.decay, 2);
    options = READ("HAKMEM_CONF=decay:1,decay:x");
    CHECK_EQ(options.decay, 1);
}

TEST(list_syntax) {
    static const char *const same[] = {
        "HAKMEM_CONF=stats:1,bin_depth:9",        "HAKMEM_CONF=stats:1,bin_depth:9,",
        "HAKMEM_CONF=,,stats:1,,,bin_depth:9,,,", "HAKMEM_CONF= stats : 1 ,\n\tbin_depth : 9 ,\n",
        "HAKMEM_CONF=stats=1,bin_depth=9",        "HAKMEM_CONF=STATS:on,Bin_Depth:9",
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct hak_options options = READ(same[i]);
        CHECK_AT(options.stats && options.bin_depth[7] == 9 && said[0] == 0, i);
    }
    static const char *const nothing[] = {"HAKMEM_CONF=", "HAKMEM_CONF=,", "HAKMEM_CONF= , ,", "HAKMEM_CONF"};
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++) {
        struct hak_options options = READ(nothing[i]);
        check_defaults(&options);
        CHECK_AT(said[0] == 0, i);
    }
    READ("HAKMEM_CONF=stats");
    CHECK(said_once("HAKMEM_CONF: stats: is not understood and is ignored; it takes off, text, json or openmetrics"));
    READ("HAKMEM_CONF=stats:");
    CHECK(said_once("HAKMEM_CONF: stats: is not understood"));
    READ("HAKMEM_CONF=:1");
    CHECK(said_once("is not an option"));
    READ("HAKMEM_CONF=stats:1:2");
    CHECK(said_once("stats:1:2 is not understood"));
    READ("HAKMEM_CONF=stats:1;bin_depth:9");
    CHECK(said_once("stats:1;bin_depth:9 is not understood"));
    READ("HAKMEM_CONF=conf:1,strict:1"); /* variables, but not options: the nearest is something else */
    CHECK_EQ(lines_said(), 2);
    CHECK(strstr(said, "is conf") == NULL && strstr(said, "is strict") == NULL);
}

TEST(empty_variables_count_as_unset) {
    struct hak_options options = READ("HAKMEM_STATS=", "HAKMEM_DECAY= ", "HAKMEM_PROFILE=", "HAKMEM_WINDOW",
                                      "HAKMEM_CONF=decay:9");
    CHECK(!options.stats);
    CHECK_EQ(options.decay, 9);
    CHECK_EQ(lines_said(), 0);
    READ("HAKMEM_STATE=");
    CHECK(said_once("HAKMEM_STATE is not an option"));
    READ("HAKMEM_=1");
    CHECK(said_once("HAKMEM_ is not an option"));
}

/* ---- the program's own, and files --------------------------------------------------------------------- */

TEST(what_the_program_was_compiled_with) {
    struct hak_options options = read_with_program(NULL, "decay:3s, stats : json", false);
    CHECK_EQ(options.decay, 3000);
    CHECK_EQ(options.stats, STATS_JSON);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_PROGRAM);
    options = read_with_program((const char *const[]){"HAKMEM_CONF=decay:4s", "HAKMEM_STATS=off", NULL}, "decay:3s,stats:json",
                                false);
    CHECK(options.decay == 4000 && options.stats == STATS_OFF);
    options = read_with_program((const char *const[]){"HAKMEM_PROFILE=small", NULL}, "decay:3s", false);
    CHECK(options.decay == 3000 && options.objective == OBJECTIVE_SMALL);
    /* It is trusted in programs that trust no environment. */
    options = read_with_program((const char *const[]){"HAKMEM_DECAY=1", NULL}, "decay:3s", true);
    CHECK_EQ(options.decay, 3000);
    read_with_program(NULL, "decays:3s", false);
    CHECK(said_once("hakmem: hakmem_conf: decays is not an option and is ignored; the nearest is decay ("));
}

TEST(a_named_profile_and_a_file) {
    struct hak_options paths = READ("HAKMEM_STATS_FILE=/a", "HAKMEM_CONF=stats_file:/b");
    CHECK(strcmp(paths.stats_file, "/a") == 0);
    paths = READ("HAKMEM_CONF=stats_file:/b", "HAKMEM_STATS_FILE=/a");
    CHECK(strcmp(paths.stats_file, "/a") == 0);
    paths = READ("HAKMEM_BIN_DEPTH=64", "HAKMEM_CONF=bin_depth:128");
    CHECK_EQ(options_source(&paths, OPTION_bin_depth), OPTION_FROM_ENVIRONMENT);
    struct hak_options options = READ("HAKMEM_CONF=profile:/nowhere/at/all", "HAKMEM_PROFILE=small");
    CHECK(options.profile == PROFILE_SMALL && options.profile_file[0] == '\0' && lines_said() == 0);
}

/* ---- changes --------------------------------------------------------------------------------------------- */

TEST(options_change_later) {
    struct hak_options options = READ("HAKMEM_DECAY=9s");
    CHECK_EQ(options_change(&options, "decay", " 2s "), 0);
    CHECK_EQ(options.decay, 2000);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_CALL);
    CHECK_EQ(options_change(&options, "Huge_Pages", "ALWAYS"), 0);
    CHECK_EQ(options.huge_pages, HUGE_PAGES_ALWAYS);
    CHECK_EQ(options_change(&options, "stats_file", "/tmp/x%p"), 0);
    CHECK(strcmp(options.stats_file, "/tmp/x%p") == 0);
    char longest[300] = "/";
    memset(longest + 1, 'a', sizeof longest - 2);
    CHECK_EQ(options_change(&options, "stats_file", longest), EINVAL);
    CHECK(strcmp(options.stats_file, "/tmp/x%p") == 0);
    CHECK_EQ(options_change(&options, "decay", "soon"), EINVAL);
    CHECK_EQ(options_change(&options, "decay", "100min"), EINVAL);
    CHECK_EQ(options_change(&options, "decays", "1s"), ENOENT);
    CHECK_EQ(options_change(&options, "", "1s"), ENOENT);
    CHECK_EQ(options_change(&options, "window", "1T"), EPERM);
    CHECK_EQ(options_change(&options, "profile", "small"), EPERM);
    CHECK_EQ(options.decay, 2000);
    CHECK_EQ(lines_said(), 0);
}

/* ---- messages ------------------------------------------------------------------------------------- */

TEST(a_value_of_a_file_with_carriage_returns) {
    struct hak_options options = READ("HAKMEM_STATS=on\r");
    CHECK(options.stats && lines_said() == 0);
    options = READ("HAKMEM_STATS=o\x7fn");
    CHECK(!options.stats && said_once("o?n"));
}

TEST(unknown_names_get_the_nearest) {
    READ("HAKMEM_STAT=1");
    CHECK(said_once("hakmem: HAKMEM_STAT is not an option and is ignored; "
                    "the nearest is HAKMEM_STATS (off, text, json or openmetrics)\n"));
    READ("HAKMEM_DEACY=1");
    CHECK(said_once("the nearest is HAKMEM_DECAY (0ms to 60min, or never)\n"));
    READ("HAKMEM_BINDEPTH=1");
    CHECK(said_once("the nearest is HAKMEM_BIN_DEPTH (1 to 8192, auto, or by the size of blocks: 64:512+1040:128)\n"));
    READ("HAKMEM_CACHE=1M");
    CHECK(said_once("the nearest is HAKMEM_THREAD_CACHE (64KiB to 1GiB)\n"));
    READ("HAKMEM_THP=always", "HAKMEM_HUGEPAGE=always");
    CHECK_EQ(lines_said(), 2);
    CHECK(strstr(said, "HAKMEM_HUGE_PAGES (auto, never or always)\n") != NULL);
    READ("HAKMEM_CONFIG=stats:1");
    CHECK(said_once("the nearest is HAKMEM_CONF\n"));
    READ("HAKMEM_stats=1");
    CHECK(said_once("HAKMEM_stats is not an option and is ignored; the nearest is HAKMEM_STATS"));
    READ("HAKMEM_CONF=foreign-free:count");
    CHECK(said_once("hakmem: HAKMEM_CONF: foreign-free is not an option and is ignored; "
                    "the nearest is foreign_free (abort, count or libc)\n"));
}

TEST(malformed_values_say_what_is_accepted) {
    struct hak_options options = READ("HAKMEM_DECAY=5x");
    CHECK(said_once("hakmem: HAKMEM_DECAY=5x is not understood and is ignored; "
                    "it takes 0ms to 60min, or never\n"));
    CHECK_EQ(options.decay, 500);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_DEFAULT);
    READ("HAKMEM_THREAD_CACHE=2G");
    CHECK(said_once("HAKMEM_THREAD_CACHE=2G is out of range and is ignored; it takes 64KiB to 1GiB\n"));
    READ("HAKMEM_CONF=bin_depth:0");
    CHECK(said_once("HAKMEM_CONF: bin_depth:0 is out of range and is ignored; it takes 1 to 8192, auto, or by the size of blocks: "
                    "64:512+1040:128\n"));
    options = READ("HAKMEM_PROFILE=smal");
    CHECK(said_once("HAKMEM_PROFILE=smal is not understood and is ignored; "
                    "it takes balanced, speed, server, cli or small; the nearest is small\n"));
    CHECK_EQ(options.profile, PROFILE_BALANCED);
}

TEST(other_variables_are_known) {
    READ("HAKMEM_PROOF=/tmp/x", "HAKMEM_NO_INSTALL=1", "HAKMEM_BUILD_DIR=build", "HAKMEM_STRICT=1",
         "HAKMEM_CONF=", "HAKMEM_PROFILE=speed");
    CHECK_EQ(lines_said(), 0);
    READ("HAKMEM_strict=1");
    CHECK(said_once("HAKMEM_strict is not an option and is ignored; the nearest is HAKMEM_STRICT\n"));
}

TEST(secure_processes_read_nothing) {
    struct hak_options options = read_options(
        (const char *const[]){"HAKMEM_STATS=1", "HAKMEM_NONSENSE=1", "HAKMEM_CONF=decay:1,x:y", NULL}, true);
    check_defaults(&options);
    CHECK_EQ(lines_said(), 0);
}

TEST(quiet_holds_wherever_it_stands) {
    static const char *const silent[][3] = {
        {"HAKMEM_QUIET=1", "HAKMEM_NONSENSE=1", "HAKMEM_DECAY=x"},
        {"HAKMEM_NONSENSE=1", "HAKMEM_DECAY=x", "HAKMEM_QUIET=1"},
        {"HAKMEM_NONSENSE=1", "HAKMEM_CONF=decay:x,nonsense:1,quiet:1", "HAKMEM_DECAY=1"},
        {"HAKMEM_CONF=quiet:0,decay:x", "HAKMEM_STATS=x", "HAKMEM_QUIET=yes"},
    };
    for (size_t i = 0; i < sizeof silent / sizeof silent[0]; i++) {
        struct hak_options options = READ(silent[i][0], silent[i][1], silent[i][2]);
        CHECK_AT(options.quiet && said[0] == 0, i);
    }
    READ("HAKMEM_CONF=quiet:1", "HAKMEM_NONSENSE=1", "HAKMEM_QUIET=0");
    CHECK_EQ(lines_said(), 1);
    READ("HAKMEM_QUIET=perhaps");
    CHECK(said_once("HAKMEM_QUIET=perhaps is not understood"));
}

TEST(a_message_is_one_short_line) {
    READ("HAKMEM_DECAY=a\nb\tc\x1b[31m\xff%s%n");
    CHECK(said_once("HAKMEM_DECAY=a?b?c?[31m?%s%n is not"));
    READ("HAKMEM_A\nB=1");
    CHECK(said_once("HAKMEM_A?B is not"));
    static char long_name[1 << 20], long_value[1 << 20];
    memset(long_name, 'Z', sizeof long_name - 3);
    memcpy(long_name, "HAKMEM_", 7);
    memcpy(long_name + sizeof long_name - 4, "=1", 2);
    memset(long_value, '7', sizeof long_value - 1);
    memcpy(long_value, "HAKMEM_DECAY=", 13);
    READ(long_name);
    CHECK(said_once("ZZZ... is not an option") && strlen(said) < 300);
    READ(long_value);
    CHECK(said_once("777... is out of range") && strlen(said) < 300);
}

TEST(huge_environment) {
    enum { COUNT = 100000 };
    static const char *variables[COUNT + 2];
    static char filler[1 << 17];
    memset(filler, 'H', sizeof filler - 1);
    for (size_t i = 0; i < COUNT; i++) variables[i] = i % 2 ? filler : "HAKMEN_DECAY=1";
    variables[COUNT] = "HAKMEM_DECAY=6";
    struct hak_options options = read_options(variables, false);
    CHECK_EQ(options.decay, 6);
    CHECK_EQ(lines_said(), 0);
    /* A list that sets one thing a hundred thousand times. */
    static char list[12 + COUNT * 8 + 1] = "HAKMEM_CONF=";
    for (size_t i = 0; i < COUNT; i++) memcpy(list + 12 + i * 8, "decay:8,", 8);
    options = READ(list);
    CHECK_EQ(options.decay, 8);
}

/* ---- this process --------------------------------------------------------------------------------- */

TEST(process_environment) {
    char **original = environ; /* the array the kernel made: nothing here calls setenv */
    if (original == NULL || original[0] == NULL) SKIP("the environment is empty");
    char decay[] = "HAKMEM_DECAY=7ms";
    char *first = original[0];
    original[0] = decay;
    struct hak_options usual, early;
    options_read_process(&usual);
    environ = NULL; /* as it is before libc's initialiser */
    options_read_process(&early);
    environ = original;
    original[0] = first;
    CHECK_EQ(usual.decay, 7);
#ifdef __GLIBC__
    CHECK_EQ(early.decay, 7);
#else
    CHECK_EQ(early.decay, 500); /* musl sets environ before any library runs */
#endif
}
