/* main.c - explore LIBRARY [--deep] [--list] [--most N] [--show N] [TEST...]: runs the tests that a library registers, or those
 * whose names begin like that, each in a process of its own. With --deep also those that take long. It fails after N
 * executions, and shows the steps of the Nth. */
#include "memory.h"
#include "report.h"
#include "run.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TESTS = 1024 };

static struct explore_test *tests[TESTS];
static unsigned test_count;
static uint64_t *executions; /* of each, told by its process */

static struct {
    bool deep, list;
    uint64_t most, shown;
    char **names;
} options = {.most = UINT64_MAX};

void explore_register(struct explore_test *test) {
    if (test_count == TESTS) abort();
    tests[test_count++] = test;
}

/* The library's variables are the model's memory. */
static int find_variables(struct dl_phdr_info *object, size_t size, void *library) {
    (void)size;
    struct link_map *map = library;
    if (object->dlpi_addr != map->l_addr || strcmp(object->dlpi_name, map->l_name) != 0) return 0;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W)) continue;
        memory_restore_always((void *)(object->dlpi_addr + segment->p_vaddr), segment->p_memsz);
    }
    return 1;
}

static double seconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- one test ---------------------------------------------------------------------------------------------- */

static bool outcomes_are_right(const struct explore_test *test) {
    if (test->outcomes == NULL || strcmp(test->outcomes, run_outcomes()) == 0) return true;
    printf("FAIL %s: the outcomes are\n  %s\nand not\n  %s\n", test->name, run_outcomes(), test->outcomes);
    return false;
}

static bool is_as_like(const struct explore_test *test, uint64_t count) {
    unsigned like = 0;
    while (test->like != NULL && like < test_count && strcmp(tests[like]->name, test->like) != 0) like++;
    if (test->like == NULL || executions[like] == count) return true;
    printf("FAIL %s: %llu executions, and not %llu as %s\n", test->name, (unsigned long long)count,
           (unsigned long long)executions[like], test->like);
    return false;
}

static bool run(const struct explore_test *test, uint64_t *count) {
    struct tally tally;
    double began = seconds_now();
    if (!run_test(test, options.most, options.shown, &tally) || !outcomes_are_right(test)) return false;
    *count = tally.complete;
    if (tally.complete == 0) {
        printf("FAIL %s: none of %llu executions came to its end\n", test->name, (unsigned long long)tally.cut);
        return false;
    }
    if (!is_as_like(test, tally.complete)) return false;
    if (tally.repeated != 0) {
        printf("FAIL %s: %llu of %llu executions were seen before\n", test->name, (unsigned long long)tally.repeated,
               (unsigned long long)tally.complete);
        return false;
    }
    printf("ok %s: %llu executions, %llu cut short, at most %u steps, %u shared locations, %.1f s\n", test->name,
           (unsigned long long)tally.complete, (unsigned long long)tally.cut, tally.longest, tally.shared,
           seconds_now() - began);
    return true;
}

/* Each test finds the library as it was loaded. */
static bool run_apart(unsigned number) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(run(tests[number], &executions[number]) ? 0 : 1);
    }
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) return false;
    if (WIFSIGNALED(status)) printf("FAIL %s: signal %d\n", tests[number]->name, WTERMSIG(status));
    return status == 0;
}

/* ---- which tests ------------------------------------------------------------------------------------------- */

static bool is_chosen(const struct explore_test *test) {
    if (test->deep && !options.deep) return false;
    for (char **name = options.names; *name != NULL; name++)
        if (strncmp(test->name, *name, strlen(*name)) == 0) return true;
    return *options.names == NULL;
}

static bool read_options(char **arguments) {
    for (; *arguments != NULL && strncmp(*arguments, "--", 2) == 0; arguments++) {
        bool has_number = arguments[1] != NULL;
        if (strcmp(*arguments, "--deep") == 0)
            options.deep = true;
        else if (strcmp(*arguments, "--list") == 0)
            options.list = true;
        else if (strcmp(*arguments, "--most") == 0 && has_number)
            options.most = strtoull(*++arguments, NULL, 0);
        else if (strcmp(*arguments, "--show") == 0 && has_number)
            options.shown = strtoull(*++arguments, NULL, 0);
        else
            return false;
    }
    options.names = arguments;
    return true;
}

int main(int argc, char **argv) {
    void *library = argc < 2 ? NULL : dlopen(argv[1], RTLD_NOW);
    if (library == NULL || !read_options(argv + 2)) {
        fprintf(stderr, "explore: %s\n", argc >= 2 && library == NULL ? dlerror() : "see engine/main.c");
        return 2;
    }
    report_library(argv[1]);
    dl_iterate_phdr(find_variables, library);
    executions = mmap(NULL, TESTS * sizeof *executions, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (executions == MAP_FAILED) abort();
    unsigned ran = 0, failed = 0;
    for (unsigned i = 0; i < test_count; i++) {
        if (!is_chosen(tests[i])) continue;
        ran++;
        if (options.list)
            printf("%s\n", tests[i]->name);
        else
            failed += !run_apart(i);
    }
    if (ran == 0) fprintf(stderr, "explore: no test has a name that begins like that\n");
    return ran == 0 || failed != 0;
}
