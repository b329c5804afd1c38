/* unwinding.c - a sampling profiler: SIGPROF a thousand times a second in every thread, each time the stack is unwound,
 * wherever the thread is; mostly inside malloc and free, which is where this program spends its time.
 *
 * What was unwound must be whole: from the handler through the allocator to the thread's own function.
 *
 * Planted defect it was seen to catch: a library without unwind tables.
 */
#include "work.h"

#ifdef __GLIBC__ /* musl has no backtrace */

#include <execinfo.h>
#include <link.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

enum { THREADS = 3, FRAMES = 64, MILLISECONDS = 1500, MILLISECONDS_AT_MOST = 20 * MILLISECONDS };

/* Where the code of a library, and that of this program's threads, lies. */
static struct range { uintptr_t from, to; } allocator_code, own_code;

static bool holds(const struct range *range, uintptr_t address) {
    return address >= range->from && address < range->to;
}

static _Thread_local volatile sig_atomic_t working;
static atomic_size_t samples, in_allocator, whole, whole_in_allocator;
static atomic_bool stop;

static uintptr_t interrupted_at(const void *context) {
    const ucontext_t *state = context;
#if defined(__x86_64__)
    return (uintptr_t)state->uc_mcontext.gregs[16]; /* REG_RIP */
#else
    return (uintptr_t)state->uc_mcontext.pc;
#endif
}

static void sample(int signal_number, siginfo_t *info, void *context) {
    void *frames[FRAMES];
    int saved = errno, count = backtrace(frames, FRAMES);
    (void)signal_number;
    (void)info;
    if (working) {
        bool inside = holds(&allocator_code, interrupted_at(context)), is_whole = false;
        for (int i = 0; i < count; i++) is_whole |= holds(&own_code, (uintptr_t)frames[i]);
        atomic_fetch_add(&samples, 1);
        atomic_fetch_add(&in_allocator, inside);
        atomic_fetch_add(&whole, is_whole);
        atomic_fetch_add(&whole_in_allocator, inside && is_whole);
    }
    errno = saved;
}

static timer_t start_timer(void) {
    timer_t timer;
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGPROF;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    CHECK_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    const struct itimerspec every = {{0, 1000000}, {0, 1000000}};
    CHECK_EQ(timer_settime(timer, 0, &every, NULL), 0);
    return timer;
}

/* A section of its own, so that its frames can be told from all others. */
__attribute__((section("thread_code"), noinline)) static void *allocate_until_stopped(void *argument) {
    timer_t timer = start_timer();
    void *blocks[500] = {NULL};
    struct rng rng = {(uintptr_t)argument};
    working = 1;
    while (!atomic_load(&stop)) {
        size_t i = rng_below(&rng, 500);
        free(blocks[i]);
        blocks[i] = rng_below(&rng, 8) ? malloc(rng_size(&rng, 500)) : calloc(1, rng_size(&rng, 0));
        CHECK(blocks[i] != NULL);
    }
    working = 0;
    timer_delete(timer);
    for (size_t i = 0; i < 500; i++) free(blocks[i]);
    CHECK_EQ(work((uintptr_t)argument, 500), 0);
    return NULL;
}

extern const char __start_thread_code[], __stop_thread_code[];

static int find_allocator(struct dl_phdr_info *object, size_t size, void *unused) {
    struct range range = {UINTPTR_MAX, 0};
    (void)size;
    (void)unused;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_LOAD || !(object->dlpi_phdr[i].p_flags & PF_X)) continue;
        range.from = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        range.to = range.from + object->dlpi_phdr[i].p_memsz;
        if (holds(&range, (uintptr_t)dlsym(RTLD_DEFAULT, "malloc"))) allocator_code = range;
    }
    return 0;
}

static bool are_enough(void) { return atomic_load(&samples) >= 300 && atomic_load(&in_allocator) >= 50; }

TEST(a_thousand_times_a_second) {
    pthread_t threads[THREADS];
    struct sigaction action;
    void *frames[FRAMES];
    CHECK(backtrace(frames, FRAMES) > 0); /* loads the unwinder, which allocates */
    dl_iterate_phdr(find_allocator, NULL);
    CHECK(allocator_code.to > allocator_code.from);
    own_code = (struct range){(uintptr_t)__start_thread_code, (uintptr_t)__stop_thread_code};
    memset(&action, 0, sizeof action);
    action.sa_sigaction = sample;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    CHECK_EQ(sigaction(SIGPROF, &action, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, allocate_until_stopped, (void *)i), 0);
    for (int waited = 0; waited < MILLISECONDS_AT_MOST && !are_enough(); waited += MILLISECONDS)
        usleep(MILLISECONDS * 1000);
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    size_t taken = atomic_load(&samples), inside = atomic_load(&in_allocator);
    check_say("     %zu samples, %zu of them in the allocator; unwound to the thread: %zu and %zu", taken,
              inside, atomic_load(&whole), atomic_load(&whole_in_allocator));
    CHECK(are_enough());
    CHECK(atomic_load(&whole) >= taken - taken / 50);
    CHECK(atomic_load(&whole_in_allocator) >= inside - inside / 50);
}

#else
TEST(a_thousand_times_a_second) { OMIT("no backtrace"); }
#endif
