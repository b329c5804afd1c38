/* replay.c - runs programs (program.h): those of files and folders, or random ones for a while.
 *
 *     replay [--trace] [--here] [--seconds=N] [--seed=N] [FILE|FOLDER...]
 *
 * Each file is run with the options that it names, in a process of its own, for which this program starts itself anew: what
 * one left behind, as memory that others find, is nothing to the next. What fails is named with the command that runs it
 * again.
 *
 *     --trace       prints every operation
 *     --here        runs all files in this process, with the options that it has: how it starts itself; so does
 *     --options=N   for random programs
 *     --seconds=N   then runs random programs for N seconds, of each set of options in turn; what fails is kept
 *                   as crash-SEED-…
 *     --seed=N      which random programs
 */
#define CHECK_NO_MAIN
#include "../check.h" /* first: it says _GNU_SOURCE */

#include "interpreter.h"
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { MOST_FILES = 4096, NAME_BYTES = 512, MOST_ARGUMENTS = 3, PROGRAM_SECONDS = CHECK_SHADOWED ? 120 : 60 };

static struct file {
    char name[NAME_BYTES];
    unsigned options;
} files[MOST_FILES];
static size_t file_count;

static bool trace_wanted, here;
static unsigned long seconds, seed = 1;

static void give_up(const char *what, const char *name) {
    check_say("FAIL replay: %s %s: %s", what, name, strerror(errno));
    exit(2);
}

/* ---- files ------------------------------------------------------------------------------------------ */

static uint8_t bytes[PROGRAM_MOST_BYTES];

static size_t read_program(const char *name) {
    size_t size = 0;
    ssize_t more;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) give_up("cannot open", name);
    while ((more = read(file, bytes + size, sizeof bytes - size)) > 0) size += (size_t)more;
    close(file);
    return size;
}

static void add_file(const char *name) {
    if (file_count == MOST_FILES || strlen(name) >= NAME_BYTES) {
        errno = E2BIG;
        give_up("cannot take", name);
    }
    struct file *file = &files[file_count++];
    strcpy(file->name, name);
    file->options = program_options(bytes, read_program(name));
}

static int by_name(const void *left, const void *right) {
    return strcmp(((const struct file *)left)->name, ((const struct file *)right)->name);
}

static void add(const char *name) {
    DIR *folder = opendir(name);
    if (folder == NULL) {
        add_file(name);
        return;
    }
    size_t first = file_count;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[NAME_BYTES];
        if (entry->d_name[0] == '.') continue;
        if (snprintf(path, sizeof path, "%s/%s", name, entry->d_name) < (int)sizeof path) add_file(path);
    }
    closedir(folder);
    errno = ENOENT;
    if (file_count == first) give_up("there is no program in", name);
    qsort(files + first, file_count - first, sizeof files[0], by_name); /* the same order everywhere */
}

static void run_here(void) {
    interpreter_traces = trace_wanted;
    for (size_t i = 0; i < file_count; i++) {
        size_t size = read_program(files[i].name);
        alarm(PROGRAM_SECONDS); /* what hangs ends by it */
        interpret(bytes, size);
    }
}

/* ---- processes -------------------------------------------------------------------------------------- */

/* Runs this program anew with one set of options; COUNT ARGUMENTS follow --here. */
static bool succeeds(unsigned options, const char *const *arguments, size_t count) {
    const char *all[MOST_ARGUMENTS + 4];
    size_t n = 0;
    int status = -1;
    all[n++] = "replay";
    all[n++] = "--here";
    if (trace_wanted) all[n++] = "--trace";
    for (size_t i = 0; i < count; i++) all[n++] = arguments[i];
    all[n] = NULL;
    pid_t child = fork();
    if (child < 0) give_up("cannot start", "a process");
    if (child == 0) {
        setenv("HAKMEM_CONF", option_sets[options], 1);
        execv("/proc/self/exe", (char *const *)(uintptr_t)all);
        _exit(126);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) give_up("cannot wait for", "a process");
    return status == 0;
}

static bool run_file(const struct file *file) {
    const char *name = file->name;
    if (succeeds(file->options, &name, 1)) return true;
    check_say("FAIL replay: %s with the options %s; again: replay --trace %s", name, option_sets[file->options], name);
    return false;
}

/* ---- random programs -------------------------------------------------------------------------------- */

static uint64_t random_state;

static uint64_t next_random(void) { /* splitmix64 */
    uint64_t x = random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Operations go on with the slots and sizes of those before them more often than chance would. */
static size_t make_program(unsigned options) {
    size_t operations = 20 + next_random() % 300;
    bytes[0] = (uint8_t)options;
    for (size_t i = 0; i < operations; i++) {
        uint8_t *at = bytes + 1 + i * OPERATION_BYTES;
        uint64_t dice = next_random();
        for (int j = 0; j < OPERATION_BYTES; j++) at[j] = (uint8_t)(dice >> 8 * j);
        if (i > 0 && (dice >> 32) % 4 == 0) at[1] = at[1 - OPERATION_BYTES];
        if (i > 0 && (dice >> 34) % 8 == 0) memcpy(at + 2, at + 2 - OPERATION_BYTES, 2);
    }
    return 1 + operations * OPERATION_BYTES;
}

static void write_program(const char *name, size_t size) {
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || write(file, bytes, size) != (ssize_t)size) give_up("cannot write", name);
    close(file);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* In a child that was started for this set of options. Each program has a seed by itself: it is written before it runs, and
 * stays when it does not come to its end. */
static void run_random_here(unsigned options) {
    char name[64];
    double end = now() + (double)seconds / OPTION_SETS;
    unsigned long programs = 0;
    for (uint64_t i = 0; now() < end; i++, programs++) {
        random_state = seed * 1000003 + i * OPTION_SETS + options;
        snprintf(name, sizeof name, "crash-%lu-%u-%llu", seed, options, (unsigned long long)i);
        size_t size = make_program(options);
        write_program(name, size);
        alarm(PROGRAM_SECONDS);
        interpret(bytes, size);
        unlink(name);
    }
    check_say("     %lu random programs with the options %s", programs, option_sets[options]);
}

static bool run_random(unsigned options) {
    char seconds_text[32], seed_text[32], options_text[32];
    snprintf(seconds_text, sizeof seconds_text, "--seconds=%lu", seconds);
    snprintf(seed_text, sizeof seed_text, "--seed=%lu", seed);
    snprintf(options_text, sizeof options_text, "--options=%u", options);
    const char *const arguments[] = {seconds_text, seed_text, options_text};
    if (succeeds(options, arguments, 3)) return true;
    check_say("FAIL replay: a random program; it is crash-%lu-%u-*, again: replay --trace FILE", seed, options);
    return false;
}

/* ---- the command line ------------------------------------------------------------------------------- */

static unsigned options_of_random = OPTION_SETS;

static bool read_number(const char *argument, const char *name, unsigned long *number) {
    if (strncmp(argument, name, strlen(name)) != 0) return false;
    *number = strtoul(argument + strlen(name), NULL, 10);
    return true;
}

static void read_argument(const char *argument) {
    unsigned long options;
    if (strcmp(argument, "--trace") == 0) trace_wanted = true;
    else if (strcmp(argument, "--here") == 0) here = true;
    else if (read_number(argument, "--options=", &options)) options_of_random = (unsigned)options;
    else if (!read_number(argument, "--seconds=", &seconds) && !read_number(argument, "--seed=", &seed)) add(argument);
}

int main(int argc, char **argv) {
    bool good = true;
    check_now.name = "replay";
    for (int i = 1; i < argc; i++) read_argument(argv[i]);
    if (here && options_of_random < OPTION_SETS) run_random_here(options_of_random);
    if (here) run_here();
    if (here) return 0;
    errno = EINVAL;
    if (file_count == 0 && seconds == 0) give_up("has nothing to run:", "neither files nor --seconds");
    for (size_t i = 0; i < file_count; i++) good &= run_file(&files[i]);
    for (unsigned options = 0; options < OPTION_SETS && seconds > 0; options++) good &= run_random(options);
    if (good) check_say("ok %zu programs", file_count);
    return good ? 0 : 1;
}
