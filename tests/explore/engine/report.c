/* report.c - code addresses become lines of source by addr2line, from binutils; without it they stay addresses. */
#include "report.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = THREADS * EVENTS, NAMES = 256, LINE_BYTES = 400 };

static const char *library;
static struct name steps[STEPS];
static unsigned step_count;

static struct { uintptr_t address; const char *name; } names[NAMES];
static unsigned name_count;

void report_library(const char *path) { library = path; }

void explore_name(const volatile void *address, const char *name) {
    if (name_count == NAMES) explore_fail("more than %d names", NAMES);
    names[name_count].address = (uintptr_t)address;
    names[name_count++].name = name;
}

void report_step(struct name event) { steps[step_count++] = event; }
void report_forget_steps(void) { step_count = 0; }

void report_race(uintptr_t address, bool write, uintptr_t code, bool other_write, uintptr_t other_code, unsigned other) {
    explore_fail("a race: %s %p at " REPORT_CODE " and, by thread %u, %s it at " REPORT_CODE ", in no order",
                 write ? "writing" : "reading", (void *)address, code, other, other_write ? "writing" : "reading", other_code);
}

/* ---- places in the code ------------------------------------------------------------------------------------------ */

/* "function at file:line", innermost first when it was inlined. */
static void ask_addr2line(uintptr_t offset, char line[LINE_BYTES]) {
    char command[1000];
    snprintf(command, sizeof command, "addr2line -e '%s' -f -i -p -s 0x%" PRIxPTR " 2>/dev/null", library, offset);
    FILE *answer = popen(command, "r");
    if (answer == NULL) return;
    size_t length = fread(line, 1, LINE_BYTES - 1, answer);
    pclose(answer);
    line[length] = '\0';
    for (char *end; (end = strchr(line, '\n')) != NULL;) *end = end[1] == '\0' ? '\0' : ';';
}

static void describe_code(uintptr_t code, char line[LINE_BYTES]) {
    Dl_info object;
    snprintf(line, LINE_BYTES, "0x%" PRIxPTR, code);
    if (code == 0)
        snprintf(line, LINE_BYTES, "the kernel's barrier");
    else if (library != NULL && dladdr((void *)(code - 1), &object) != 0)
        ask_addr2line(code - 1 - (uintptr_t)object.dli_fbase, line); /* the call lies before what it returns to */
}

static const char *name_at(uintptr_t address, char text[32]) {
    for (unsigned i = 0; i < name_count; i++)
        if (names[i].address == address) return names[i].name;
    snprintf(text, 32, "%p", (void *)address);
    return text;
}

static void print_message(const char *message) {
    for (const char *at; (at = strchr(message, '{')) != NULL;) {
        char *end, line[LINE_BYTES];
        uintptr_t code = strtoul(at + 1, &end, 16);
        if (*end != '}') break;
        describe_code(code, line);
        printf("%.*s%s", (int)(at - message), message, line);
        message = end + 1;
    }
    printf("%s\n", message);
}

/* ---- the trace --------------------------------------------------------------------------------------------------- */

static const char *const orders[] = {"relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"};

static unsigned step_of(struct name name) {
    unsigned i = 0;
    while (i < step_count && !same_name(steps[i], name)) i++;
    return i + 1;
}

/* Whether a newer value was there before step I, in this order of the steps. */
static bool is_stale(const struct event *read, unsigned i) {
    const struct location *at = &graph.location[read->location];
    for (unsigned rank = rank_of(read->from); rank < at->writes; rank++)
        if (step_of(at->write[rank]) <= i) return true;
    return false;
}

static void print_read(const struct event *event, unsigned i) {
    const struct location *at = &graph.location[event->location];
    char text[32];
    printf("read  %s: %#" PRIx64, name_at(at->address, text), value_of(at, event->from));
    if (is_init(event->from))
        printf(" (initial)");
    else
        printf(" (of step %u)", step_of(event->from));
    if (is_stale(event, i)) printf(", which is not the newest");
}

static void print_step(unsigned i) {
    const struct event *event = event_of(steps[i]);
    char line[LINE_BYTES], text[32];
    printf("  %4u  %*sthread %d  ", i + 1, 4 * steps[i].thread, "", steps[i].thread);
    if (event->kind == EVENT_READ) print_read(event, i);
    if (event->kind == EVENT_WRITE)
        printf("write %s: %#" PRIx64, name_at(graph.location[event->location].address, text), event->value);
    if (event->kind == EVENT_FENCE) printf("fence");
    describe_code(event->code, line);
    printf(", %s  [%s]\n", orders[event->order], line);
}

void report_steps(void) {
    for (unsigned i = 0; i < step_count; i++) print_step(i);
}

void report_failure(const char *test, uint64_t execution, const char *message) {
    printf("FAIL %s, execution %" PRIu64 ": ", test, execution);
    print_message(message);
    report_steps();
}
