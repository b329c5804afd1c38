/* options_file_test.c - profiles of files: what src/api/options.c reads in them, and what it says where it cannot.
 *
 * Planted defects it was seen to catch:
 *   unusable_profile_hides_others (its setting counts)   one_that_cannot_be_used_is_ignored
 */
#include "api/options.h"
#include "options_said.h"

static char profile[100];

/* Reads the environment with a profile of this text. */
static struct hak_options read_profile(const char *text, size_t length) {
    char variable[150];
    strcpy(profile, "/tmp/hakmem-profile-XXXXXX");
    int file = mkstemp(profile);
    CHECK(file >= 0 && write(file, text, length) == (ssize_t)length);
    close(file);
    snprintf(variable, sizeof variable, "HAKMEM_PROFILE=%s", profile);
    struct hak_options options = READ(variable);
    unlink(profile);
    return options;
}
#define PROFILE(text) read_profile(text, strlen(text))

TEST(profiles_of_files) {
    struct hak_options options = PROFILE("# mine\n\n decay = 7s # soon\nthread_cache=1M\r\nhuge_pages: never\n");
    CHECK_EQ(lines_said(), 0);
    CHECK(options.decay == 7000 && options.thread_cache == MIB(1) && options.huge_pages == HUGE_PAGES_NEVER);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_FILE);
    CHECK(strcmp(options.profile_file, profile) == 0);
    CHECK_EQ(options_source(&options, OPTION_profile), OPTION_FROM_ENVIRONMENT);
    char value[OPTION_PATH_BYTES];
    options_value(&options, OPTION_profile, value, sizeof value);
    CHECK(strcmp(value, profile) == 0);
    /* It may begin with another. */
    options = PROFILE("profile = small\ndecay = 7s");
    CHECK(options.decay == 7000 && options.objective == OBJECTIVE_SMALL && lines_said() == 0);
    CHECK_EQ(options_source(&options, OPTION_objective), OPTION_FROM_PROFILE);
    options = PROFILE("");
    CHECK(options.decay == 500 && lines_said() == 0);
}

/* A pipe, as of the shell's <(...). Its writer is gone; with one that stays, a second look would wait for ever. */
TEST(profiles_that_can_be_read_only_once) {
    static const char text[] = "decay = 1s\nthread_cach = 1M\n";
    char variable[60];
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(write(ends[1], text, sizeof text - 1), sizeof text - 1);
    close(ends[1]);
    snprintf(variable, sizeof variable, "HAKMEM_PROFILE=/proc/self/fd/%d", ends[0]);
    struct hak_options options = READ(variable);
    CHECK(said_once("hakmem: profile file, line 2: thread_cach is not an option and is ignored"));
    CHECK_EQ(options.decay, 1000);
    CHECK_EQ(options_source(&options, OPTION_decay), OPTION_FROM_FILE);
    close(ends[0]);
}

TEST(profiles_of_files_that_are_not_understood) {
    PROFILE("decay = 7s\n\ndecai = 7s\n");
    CHECK(said_once("hakmem: profile file, line 3: decai is not an option and is ignored; the nearest is decay ("));
    PROFILE("\n\n\n\n\n\n\n\n\n\n\ndecai = 7s\n");
    CHECK(said_once("hakmem: profile file, line 12: decai is not an option"));
    PROFILE("decay = soon\n");
    CHECK(said_once("hakmem: profile file, line 1: decay:soon is not understood and is ignored; it takes "));
    PROFILE("profile = /another\n");
    CHECK(said_once("profile:/another is not understood"));
    PROFILE("decay\n");
    CHECK(said_once("decay: is not understood"));
    read_profile("decay\0= 7s", 11);
    CHECK(said_once("is ignored: it holds bytes that are no text\n"));
    static char much[4096];
    memset(much, '#', sizeof much);
    read_profile(much, sizeof much - 1);
    CHECK_EQ(lines_said(), 0);
    read_profile(much, sizeof much);
    CHECK(said_once("is ignored: it is longer than 4095 bytes\n"));
    struct hak_options options = READ("HAKMEM_PROFILE=/nowhere/at/all", "HAKMEM_DECAY=9s");
    CHECK(said_once("hakmem: the profile /nowhere/at/all is ignored: it cannot be read\n"));
    CHECK_EQ(options.decay, 9000);
    READ("HAKMEM_PROFILE=/nowhere/at/all", "HAKMEM_QUIET=1");
    CHECK_EQ(lines_said(), 0);
    char longest[400] = "HAKMEM_STATS_FILE=/";
    memset(longest + strlen(longest), 'a', 300);
    READ(longest);
    CHECK(said_once("is out of range and is ignored; it takes a path"));
}

static enum option_source source_of_profile(const struct hak_options *options) { return options_source(options, OPTION_profile); }

/* Then a weaker source counts, or an earlier setting of the same. */
TEST(one_that_cannot_be_used_is_ignored) {
    static const char *const weaker[] = {"HAKMEM_CONF=profile:small", "HAKMEM_PROFILE=/nowhere/at/all"};
    for (int first = 0; first < 2; first++) {
        struct hak_options options = READ(weaker[first], weaker[1 - first]);
        CHECK(said_once("hakmem: the profile /nowhere/at/all is ignored: it cannot be read\n"));
        CHECK(options.profile == PROFILE_SMALL && options.objective == OBJECTIVE_SMALL && options.profile_file[0] == '\0');
        CHECK_EQ(source_of_profile(&options), OPTION_FROM_CONF);
    }
    struct hak_options options = READ("HAKMEM_CONF=profile:small,decay:1s,profile:/nowhere");
    CHECK(options.objective == OBJECTIVE_SMALL && source_of_profile(&options) == OPTION_FROM_CONF);
    options = READ("HAKMEM_PROFILE=/nowhere");
    CHECK(options.profile == PROFILE_BALANCED && source_of_profile(&options) == OPTION_FROM_DEFAULT);
    options = READ("HAKMEM_PROFILE=/nowhere", "HAKMEM_CONF=profile:/,profile:/no", "HAKMEM_DECAI=1");
    CHECK_EQ(lines_said(), 4);
    CHECK(options.profile == PROFILE_BALANCED && source_of_profile(&options) == OPTION_FROM_DEFAULT);
    const char *const environment[] = {"HAKMEM_PROFILE=/nowhere", NULL};
    options = read_with_program(environment, "profile:speed", false);
    CHECK(options.objective == OBJECTIVE_SPEED && source_of_profile(&options) == OPTION_FROM_PROGRAM);
}

TEST(a_file_behind_one_that_cannot_be_used) {
    static char longest[400] = "HAKMEM_PROFILE=/";
    char list[150];
    strcpy(profile, "/tmp/hakmem-profile-XXXXXX");
    int file = mkstemp(profile);
    CHECK(file >= 0 && write(file, "decay = 7s\n", 11) == 11);
    close(file);
    snprintf(list, sizeof list, "HAKMEM_CONF=profile:/no,profile:%s,profile:/nowhere", profile);
    struct hak_options options = READ("HAKMEM_PROFILE=/nowhere/at/all", list);
    CHECK_EQ(lines_said(), 2);
    CHECK(options.decay == 7000 && strcmp(options.profile_file, profile) == 0);
    CHECK_EQ(source_of_profile(&options), OPTION_FROM_CONF);
    memset(longest + strlen(longest), 'a', 300); /* refused before any file is looked for */
    options = READ(list, longest);
    CHECK(options.decay == 7000 && lines_said() == 2);
    unlink(profile);
    options = READ(list, longest);
    CHECK(options.decay == 500 && lines_said() == 4);
}
