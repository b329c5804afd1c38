/* flush.c - a part of the library in the build that counts: processes that end by _exit or abort, as the children of
 * tests and whatever hakmem stops do, write their counts first. Of what a signal ends, the counts are lost. The
 * functions are weak, for programs that hold libc: there its own are taken. */
#include "hakmem/hakmem.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default"), weak, noreturn))

void __gcov_dump(void);

static atomic_flag dumped = ATOMIC_FLAG_INIT;

/* The files take memory to write, and what a test denied itself would end the process instead. */
static void lift(int resource) {
    struct rlimit limit;
    if (getrlimit(resource, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(resource, &limit);
}

/* A destructor, too: where a process exits, the compiler's runtime writes the counts right after the last of them. */
__attribute__((destructor(101))) static void lift_limits(void) {
    lift(RLIMIT_AS);
    lift(RLIMIT_DATA);
    lift(RLIMIT_FSIZE);
    hak_option_set("hard_limit", "none");
}

/* Once: a second thread, or a process that hakmem stops while it writes, only ends. */
static void flush(void) {
    if (atomic_flag_test_and_set(&dumped)) return;
    lift_limits();
    __gcov_dump();
}

EXPORTED void _exit(int status) {
    flush();
    for (;;) syscall(SYS_exit_group, status);
}

EXPORTED void _Exit(int status) { _exit(status); }

EXPORTED void abort(void) {
    flush();
    signal(SIGABRT, SIG_DFL);
    for (;;) raise(SIGABRT);
}
