/* signal_storm.c - a handler that allocates interrupts malloc and free themselves.
 *
 *     signal_storm [SECONDS [SEED [HERTZ]]]        default 3 1 1000
 *
 * POSIX leaves such a program undefined, and glibc may hang in it: malloc is not async-signal-safe. Profilers do it all the same.
 * What is promised is that an interrupted slow path is safe, and that nothing hangs. An interrupted fast path is not safe: a handler
 * that leaves a stack higher than it found it may overwrite what is being taken from there. So contents are not checked here, which
 * unit/heap/stack_handlers_test.c does in slow paths, and a child that a signal ended has not failed: its fate is printed. One that hung,
 * that was never interrupted or in which a check failed has.
 *
 * Planted defect it was seen to catch: a lock that the handler's own thread holds.
 */
#define CHECK_NO_MAIN
#include "blocks.h"

#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

enum { SLOTS = 500, HELD = 16 };

static volatile sig_atomic_t handled;
static volatile size_t progress;

/* Most are small; of the others half are medium, and half too long to be kept: these take a slow path each time. */
static size_t size_for(uint64_t number) {
    if (number % 16 == 0) return MIB(1) + 1 + number % 1000 * 100;
    return number % 16 == 8 ? 100 * 1000 + number % 1000 * 100 : number % 5000;
}

static void allocate_in_handler(int signal_number) {
    static void *held[HELD];
    int saved = errno;
    for (size_t i = 0; i < HELD; i++) held[i] = hak_malloc(size_for((uint64_t)handled * 37 + i * 113));
    for (size_t i = 0; i < HELD; i++) hak_free(held[i]);
    handled++;
    (void)signal_number;
    errno = saved;
}

static void be_stormed(size_t seconds, uint64_t seed, long hertz) {
    static void *slots[SLOTS];
    struct rlimit no_core = {0, 0};
    struct itimerval every = {{0, 1000000 / hertz}, {0, 1000000 / hertz}};
    struct sigaction action;
    struct rng rng = {seed};
    setrlimit(RLIMIT_CORE, &no_core);
    memset(&action, 0, sizeof action);
    action.sa_handler = allocate_in_handler;
    action.sa_flags = SA_RESTART;
    CHECK_EQ(sigaction(SIGPROF, &action, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_PROF, &every, NULL), 0);
    for (time_t end = time(NULL) + (time_t)seconds; time(NULL) < end;) {
        for (size_t i = 0; i < 2000; i++) {
            size_t slot = rng_below(&rng, SLOTS);
            hak_free(slots[slot]);
            slots[slot] = hak_malloc(size_for(rng_below(&rng, 1000 * 1000)));
            progress++;
        }
    }
    check_say("signal_storm: %zu operations, %ld interruptions", (size_t)progress, (long)handled);
    CHECK(handled > 0);
    _exit(0);
}

int main(int argc, char **argv) {
    size_t seconds = argc > 1 ? strtoul(argv[1], NULL, 0) : 3;
    uint64_t seed = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
    long hertz = argc > 3 ? strtol(argv[3], NULL, 0) : 1000;
    int status = 0;
    check_now.name = "signal_storm";
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm((unsigned)seconds + 20);
        be_stormed(seconds, seed, hertz);
    }
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    if (status == 0)
        check_say("signal_storm: the child ended well");
    else if (WIFSIGNALED(status))
        check_say("signal_storm: the child %s, signal %d", hung ? "hung" : "was ended", WTERMSIG(status));
    return hung || (WIFEXITED(status) && status != 0);
}
