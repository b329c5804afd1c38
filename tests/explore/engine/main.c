/* main.c - explore LIBRARY [--deep] [--list] [--most N] [--show N] [TEST...]: runs the tests that a library registers,
 * each in a process of its own; fails after N executions, and shows the steps of the Nth. */
#include "memory.h"
#include "report.h"
#include "run.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct explore_test *tests;

void explore_register(struct explore_test *test) {
    struct explore_test **last = &tests;
    while (*last != NULL) last = &(*last)->next;
    *last = test;
}

/* The library's variables are the model's memory. */
static int find_variables(struct dl_phdr_info *object, size_t size, void *library) {
    (void)size;
    struct link_map *map = library;
    if (object->dlpi_addr != map->l_addr || strcmp(object->dlpi_name, map->l_name) != 0) return 0;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W)) continue;
        void *start = (void *)(object->dlpi_addr + segment->p_vaddr);
        memory_restore_always(start, segment->p_memsz);
    }
    return 1;
}

static double seconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool outcomes_are_right(const struct explore_test *test) {
    if (test->outcomes == NULL || strcmp(test->outcomes, run_outcomes()) == 0) return true;
    printf("FAIL %s: the outcomes are\n  %s\nand not\n  %s\n", test->name, run_outcomes(), test->outcomes);
    return false;
}

static int run(const struct explore_test *test, uint64_t most, uint64_t shown) {
    struct tally tally;
    double began = seconds_now();
    if (!run_test(test, most, shown, &tally) || !outcomes_are_right(test)) return 1;
    if (tally.repeated != 0) {
        printf("FAIL %s: %llu of %llu executions were seen before\n", test->name, (unsigned long long)tally.repeated,
               (unsigned long long)tally.complete);
        return 1;
    }
    printf("ok %s: %llu executions, %llu cut short, at most %u steps, %u shared locations, %.1f s\n", test->name,
           (unsigned long long)tally.complete, (unsigned long long)tally.cut, tally.longest, tally.shared,
           seconds_now() - began);
    return 0;
}

/* Each test finds the library as it was loaded. */
static bool run_apart(const struct explore_test *test, uint64_t most, uint64_t shown) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) exit(run(test, most, shown));
    int status = 1;
    if (child < 0 || waitpid(child, &status, 0) != child) return false;
    if (WIFSIGNALED(status)) printf("FAIL %s: signal %d\n", test->name, WTERMSIG(status));
    return status == 0;
}

static bool is_named(const struct explore_test *test, char **names) {
    if (*names == NULL) return true;
    for (; *names != NULL; names++)
        if (strncmp(test->name, *names, strlen(*names)) == 0) return true;
    return false;
}

int main(int argc, char **argv) {
    bool deep = false, list = false;
    uint64_t most = UINT64_MAX, shown = 0;
    int at = 2;
    for (; at < argc && strncmp(argv[at], "--", 2) == 0; at++) {
        if (strcmp(argv[at], "--deep") == 0) deep = true;
        if (strcmp(argv[at], "--list") == 0) list = true;
        if (strcmp(argv[at], "--most") == 0 && at + 1 < argc) most = strtoull(argv[++at], NULL, 0);
        if (strcmp(argv[at], "--show") == 0 && at + 1 < argc) shown = strtoull(argv[++at], NULL, 0);
    }
    void *library = argc < 2 ? NULL : dlopen(argv[1], RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "explore: %s\n", argc < 2 ? "no library given" : dlerror());
        return 2;
    }
    report_library(argv[1]);
    dl_iterate_phdr(find_variables, library);
    unsigned ran = 0, failed = 0;
    for (const struct explore_test *test = tests; test != NULL; test = test->next) {
        if (!is_named(test, argv + at) || (test->deep && !deep)) continue;
        ran++;
        if (list)
            printf("%s\n", test->name);
        else
            failed += !run_apart(test, most, shown);
    }
    if (ran == 0) fprintf(stderr, "explore: no test has a name that begins like that\n");
    return ran == 0 || failed != 0;
}
