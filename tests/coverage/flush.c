/* flush.c - a part of the library in the build that counts: processes that end by _exit or abort, as the children of
 * tests and whatever hakmem stops do, write their counts first. Of what a signal ends, the counts are lost. The
 * functions are weak, for programs that hold libc: there its own are taken. */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default"), weak, noreturn))

void __gcov_dump(void);

static atomic_flag dumped = ATOMIC_FLAG_INIT;

/* Once: a second thread, or a process that hakmem stops while it writes, only ends. */
static void flush(void) {
    if (!atomic_flag_test_and_set(&dumped)) __gcov_dump();
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
