/* fail_counts.c - see fail_counts.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fail_counts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *const fail_names[FAIL_KINDS] = {
    "mmap",     "munmap",     "mprotect",      "madvise",   "mremap", "pthread_create", "membarrier", "any",
    "open",     "read",       "fstat",         "mincore",   "fcntl",     "prctl",  "getrlimit",      "getrusage",
    "clock_gettime", "nanosleep", "futex", "rt_sigprocmask"};

/* Counters are relaxed: each is exact by itself, and no other data depends on them. */
static atomic_ulong counted[FAIL_KINDS], failed;

/* Written by the thread that arms, before the calls that it is about; read by any. */
static atomic_int armed_kind = -1, armed_errno;
static atomic_ulong armed_at;
static atomic_bool armed_ever, only_hakmem, report;

/* 0: environment not read, 1: some thread is at it, 2: read. Others pass through uncounted. */
static atomic_int environment;

static char text[1 << 16];

/* Reads a file of /proc into text, as much as fits, and ends it with two zero bytes. */
static size_t read_text(const char *path) {
    size_t length = 0;
    long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file >= 0) {
        long more;
        while (length < sizeof text - 2 &&
               (more = syscall(SYS_read, file, text + length, sizeof text - 2 - length)) > 0)
            length += (size_t)more;
        syscall(SYS_close, file);
    }
    text[length] = text[length + 1] = '\0';
    return length;
}

/* libc's environ is not set when resolvers and the loader's first calls run; /proc always is. */
static const char *environment_value(const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; *at != '\0'; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
    return NULL;
}

static int error_named(const char *name) {
    static const struct {
        const char *name;
        int number;
    } errors[] = {{"ENOMEM", ENOMEM}, {"EAGAIN", EAGAIN}, {"EINVAL", EINVAL},
                  {"EPERM", EPERM},   {"ENOSYS", ENOSYS}, {"EACCES", EACCES}};
    for (size_t i = 0; name && i < sizeof errors / sizeof errors[0]; i++)
        if (strcmp(name, errors[i].name) == 0) return errors[i].number;
    return 0;
}

static void read_environment(void) {
    int unread = 0;
    if (!atomic_compare_exchange_strong(&environment, &unread, 1)) return;
    read_text("/proc/self/environ");
    const char *call = environment_value("FAIL_CALL"), *at = environment_value("FAIL_AT");
    const char *span = environment_value("FAIL_FOR"), *only = environment_value("FAIL_ONLY");
    atomic_store(&only_hakmem, only && strcmp(only, "hakmem") == 0);
    atomic_store(&report, environment_value("FAIL_REPORT") != NULL);
    for (int kind = 0; call && kind < FAIL_KINDS; kind++) {
        if (strcmp(call, fail_names[kind]) != 0) continue;
        atomic_store(&armed_at, at ? strtoul(at, NULL, 10) : 1);
        atomic_store(&armed_ever, span && strcmp(span, "ever") == 0);
        atomic_store(&armed_errno, error_named(environment_value("FAIL_ERRNO")));
        atomic_store(&armed_kind, kind);
    }
    atomic_store(&environment, 2);
}

/* Where the code of libhakmem.so lies. Looked up until found, since it may be opened late. */
enum { RANGES = 4 };
static struct { atomic_uintptr_t from, to; } ranges[RANGES];
static atomic_int ranges_state; /* 0: not found yet, 1: some thread is looking, 2: found */

static void find_hakmem(void) {
    int unfound = 0;
    size_t found = 0;
    if (!atomic_compare_exchange_strong(&ranges_state, &unfound, 1)) return;
    read_text("/proc/self/maps");
    for (char *line = text; *line != '\0' && found < RANGES;) {
        char *end = strchr(line, '\n');
        if (end == NULL) break;
        *end = '\0';
        if (strstr(line, "/libhakmem") && strstr(line, "r-xp")) {
            char *dash;
            atomic_store(&ranges[found].from, strtoul(line, &dash, 16));
            atomic_store(&ranges[found].to, strtoul(dash + 1, NULL, 16));
            found++;
        }
        line = end + 1;
    }
    atomic_store(&ranges_state, found ? 2 : 0);
}

static bool is_from_hakmem(const void *caller) {
    uintptr_t address = (uintptr_t)caller;
    if (atomic_load(&ranges_state) != 2) find_hakmem();
    for (size_t i = 0; i < RANGES; i++)
        if (address >= atomic_load(&ranges[i].from) && address < atomic_load(&ranges[i].to)) return true;
    return false;
}

/* Only the thread that wrote them reads them. */
static _Thread_local unsigned long interrupt_in;
static _Thread_local void (*interrupt_handler)(void);

void fail_interrupt(unsigned long at, void (*handler)(void)) {
    interrupt_in = at;
    interrupt_handler = handler;
}

static void interrupt(void) {
    if (interrupt_in == 0 || --interrupt_in != 0) return;
    int saved = errno;
    interrupt_handler();
    errno = saved;
}

int fail_count(enum fail_kind kind, const void *caller) {
    int saved = errno;
    if (atomic_load(&environment) != 2) read_environment();
    bool counts = atomic_load(&environment) == 2 && (!atomic_load(&only_hakmem) || is_from_hakmem(caller));
    errno = saved;
    if (!counts) return 0;
    interrupt();
    unsigned long number = atomic_fetch_add(&counted[kind], 1) + 1;
    int armed = atomic_load(&armed_kind);
    if (kind < FAIL_ANY) {
        unsigned long number_of_any = atomic_fetch_add(&counted[FAIL_ANY], 1) + 1;
        if (armed == FAIL_ANY) number = number_of_any;
    }
    if (armed != (int)kind && (armed != FAIL_ANY || kind > FAIL_ANY)) return 0;
    unsigned long at = atomic_load(&armed_at);
    if (number != at && !(number > at && atomic_load(&armed_ever))) return 0;
    atomic_fetch_add(&failed, 1);
    int error = atomic_load(&armed_errno);
    if (error != 0) return error;
    return kind == FAIL_PTHREAD_CREATE ? EAGAIN : kind < FAIL_ANY ? ENOMEM : EPERM;
}

void fail_arm(enum fail_kind kind, unsigned long at, bool ever, int error) {
    fail_disarm();
    for (int i = 0; i < FAIL_KINDS; i++) atomic_store(&counted[i], 0);
    atomic_store(&failed, 0);
    atomic_store(&armed_at, at);
    atomic_store(&armed_ever, ever);
    atomic_store(&armed_errno, error);
    atomic_store(&armed_kind, (int)kind);
}

void fail_disarm(void) {
    if (atomic_load(&environment) == 0) read_environment();
    atomic_store(&armed_kind, -1);
}

unsigned long fail_counted(enum fail_kind kind) { return atomic_load(&counted[kind]); }
unsigned long fail_failed(void) { return atomic_load(&failed); }

__attribute__((destructor)) static void print_report(void) {
    char line[512];
    int length = 0;
    if (!atomic_load(&report)) return;
    for (int kind = 0; kind < FAIL_KINDS; kind++)
        length += snprintf(line + length, sizeof line - (size_t)length, "%s%s %lu",
                           kind ? " " : "fail_calls: ", fail_names[kind], fail_counted((enum fail_kind)kind));
    length += snprintf(line + length, sizeof line - (size_t)length, " failed %lu\n", fail_failed());
    syscall(SYS_write, 2, line, (size_t)length);
}
