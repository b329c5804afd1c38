/* signals_test.c - handlers that allocate, while the interrupted thread is outside the allocator.
 *
 * Programs do this, and POSIX allows it to work: no allocator call is interrupted here. A storm of
 * signals into malloc itself is tests/stress/signal_storm.c.
 *
 * Planted defects it was seen to catch:
 *   a block handed out twice   the_handler_and_its_thread_share_blocks, a_fault_handler_...
 *   a free that loses blocks   the_handler_is_the_first_to_allocate
 */
#include "blocks.h"
#ifdef CHECK_TSAN /* a purge thread that a handler's allocation starts is a call to pthread_create, which it reports */
#include "no_purger.h"
#endif

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

/* Blocks that the handler and the interrupted thread hand to each other. The handler runs only
 * inside sigsuspend or a loop that leaves them alone, so they need no order. */
enum { SLOTS = 64 };
static struct {
    void *block;
    size_t bytes;
} slots[SLOTS];
static volatile sig_atomic_t handled;

static void renew(size_t i, size_t request) {
    if (slots[i].block) {
        CHECK(block_holds(slots[i].block, slots[i].bytes, i));
        hak_free(slots[i].block);
    }
    slots[i].block = hak_malloc(request);
    CHECK(slots[i].block != NULL);
    slots[i].bytes = hak_usable_size(slots[i].block);
    block_fill(slots[i].block, slots[i].bytes, i);
}

static void empty_slots(void) {
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i].block) CHECK(block_holds(slots[i].block, slots[i].bytes, i));
        hak_free(slots[i].block);
        slots[i].block = NULL;
    }
}

static void allocate_in_handler(int signal_number) {
    static struct rng rng;
    int saved = errno;
    for (size_t i = 0; i < 8; i++) renew(rng_below(&rng, SLOTS), rng_size(&rng, 50));
    (void)signal_number;
    errno = saved;
    handled++;
}

static void on_signal(int signal_number, void (*handler)(int), int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    CHECK_EQ(sigaction(signal_number, &action, NULL), 0);
}

static void block_signal(int how, int signal_number, sigset_t *before) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    CHECK_EQ(pthread_sigmask(how, &set, before), 0);
}

/* The main thread is in sigsuspend whenever the signal of the other thread arrives. */
static pthread_t main_thread;
static atomic_bool enough;

static void *send_signals(void *unused) {
    while (!atomic_load(&enough)) {
        CHECK_EQ(pthread_kill(main_thread, SIGUSR1), 0);
        hak_free(hak_malloc(100));
    }
    return unused;
}

TEST(the_handler_and_its_thread_share_blocks) {
    pthread_t sender;
    sigset_t before;
    struct rng rng = {check_now.seed};
    handled = 0;
    atomic_store(&enough, false);
    main_thread = pthread_self();
    block_signal(SIG_BLOCK, SIGUSR1, &before);
    on_signal(SIGUSR1, allocate_in_handler, 0);
    CHECK_EQ(pthread_create(&sender, NULL, send_signals, NULL), 0);
    sigdelset(&before, SIGUSR1);
    while ((size_t)handled < check_count(4000) && check_has_time()) {
        for (size_t i = 0; i < 4; i++) renew(rng_below(&rng, SLOTS), rng_size(&rng, 50));
        sigsuspend(&before);
    }
    atomic_store(&enough, true);
    pthread_join(sender, NULL);
    on_signal(SIGUSR1, SIG_IGN, 0);
    block_signal(SIG_UNBLOCK, SIGUSR1, NULL);
    empty_slots();
}

/* A timer interrupts a computation that allocates nothing. */
TEST(a_timer_interrupts_a_computation) {
    struct itimerval every = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    handled = 0;
    on_signal(SIGPROF, allocate_in_handler, SA_RESTART);
    CHECK_EQ(setitimer(ITIMER_PROF, &every, NULL), 0);
    /* Under TSan a handler runs only at the next call that it intercepts, such as this one. */
    for (uint64_t work = 0; handled < 100; work = mix64(work)) {
        struct timespec now;
        if (work % 64 == 0) clock_gettime(CLOCK_MONOTONIC, &now);
    }
    CHECK_EQ(setitimer(ITIMER_PROF, &never, NULL), 0);
    on_signal(SIGPROF, SIG_IGN, 0);
    empty_slots();
}

/* A fault outside the allocator; the handler, on a stack of its own, allocates and repairs. */
static char *page;
static size_t page_bytes;

static void repair(int signal_number) {
    allocate_in_handler(signal_number);
    if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) _exit(1);
}

TEST(a_fault_handler_on_its_own_stack_allocates) {
    static char memory[KIB(256)];
    stack_t own = {.ss_sp = memory, .ss_size = sizeof memory}, off = {.ss_flags = SS_DISABLE};
    struct sigaction before;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    page = mmap(NULL, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    CHECK_EQ(sigaltstack(&own, NULL), 0);
    CHECK_EQ(sigaction(SIGSEGV, NULL, &before), 0);
    on_signal(SIGSEGV, repair, SA_ONSTACK);
    handled = 0;
    for (int i = 0; i < 200; i++) {
        CHECK_EQ(mprotect(page, page_bytes, PROT_NONE), 0);
        *(volatile char *)page = 1;
        CHECK_EQ(handled, i + 1);
    }
    CHECK_EQ(sigaction(SIGSEGV, &before, NULL), 0);
    CHECK_EQ(sigaltstack(&off, NULL), 0);
    munmap(page, page_bytes);
    empty_slots();
}

/* The thread's heap comes to life inside the handler; the thread then uses it and ends. */
static _Thread_local volatile sig_atomic_t handled_here;
static _Thread_local void *made_by_handler;

static void first_allocation(int signal_number) {
    (void)signal_number;
    made_by_handler = hak_malloc(16000);
    handled_here = 1;
}

static void *be_interrupted(void *unused) {
    CHECK_EQ(pthread_kill(pthread_self(), SIGUSR2), 0);
    CHECK_EQ(handled_here, 1);
    CHECK(made_by_handler != NULL);
    block_fill(made_by_handler, 16000, 1);
    void *other = hak_malloc(16000);
    CHECK(other != NULL && other != made_by_handler);
    block_fill(other, 16000, 2);
    CHECK(block_holds(made_by_handler, 16000, 1));
    hak_free(other);
    hak_free(made_by_handler);
    return unused;
}

TEST(the_handler_is_the_first_to_allocate) {
    size_t before = 0;
    on_signal(SIGUSR2, first_allocation, 0);
    for (size_t i = 0; i < check_count(3000) + 10; i++) {
        pthread_t thread;
        if (i == 10) before = resident_bytes();
        CHECK_EQ(pthread_create(&thread, NULL, be_interrupted, NULL), 0);
        pthread_join(thread, NULL);
    }
    CHECK_RESIDENT(before, MIB(16));
    on_signal(SIGUSR2, SIG_IGN, 0);
}
