/* fibres.c - the threads, each a fibre with thread-local variables of its own; whose turn it is; and what they ask of
 * the kernel.
 *
 * Cores take turns: each makes some accesses, a number drawn from the seed, and another follows, in an order that is
 * drawn anew for each round. So all proceed at the same pace, a core that waits for a lock is not always followed by its
 * neighbour, and anything may happen between two accesses of a core. Memory is sequentially consistent. */
#include "../../tests/explore/engine/memory.h"
#include "../../tests/explore/engine/run.h"
#include "sharing.h"

#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_BYTES = 256 * 1024, THREAD_LOCAL_MAX = 4096, KEYS = 16 };

enum state { NONE, READY, WAITS, AT_BARRIER, SLEEPS, ENDED };

struct fibre {
    ucontext_t context; /* where its life begins */
    jmp_buf point;      /* where it goes on: to go there takes no system call */
    bool started;
    int error; /* its errno */
    char *stack;
    enum state state;
    const uint32_t *waits_for; /* a futex */
    uint64_t wakes_ns;
    enum entry entry;
    uint32_t id; /* as the kernel numbers threads */
    void *values[KEYS];
    void *(*body)(void *); /* of a thread of the allocator's own */
    void *argument;
    char thread_local[THREAD_LOCAL_MAX];
};

const char *const entry_names[ENTRIES] = {
    [ENTRY_MALLOC] = "malloc", [ENTRY_FREE] = "free",           [ENTRY_THREAD_END] = "thread end",
    [ENTRY_USER] = "user",     [ENTRY_OWN_THREAD] = "own thread",
};

static struct {
    struct schedule schedule;
    struct fibre fibres[CORES_ALL];
    unsigned used; /* fibres that there are, those of the allocator's own threads last */
    int current;   /* -1: none */
    unsigned left; /* of this turn */
    unsigned order[CORES_ALL], round, place; /* of turns in a round; how many there are, and which is next */
    unsigned at_barrier;
    uint64_t random;
    uint64_t accesses; /* of all */
    uint64_t slept_ns; /* by how much the clock advanced because all slept */
    uint32_t next_id;
    void (*body)(unsigned core);
    ucontext_t outside;
    bool stuck;
    unsigned keys;
    void (*destroy[KEYS])(void *);
    char *thread_local;
    size_t thread_local_bytes;
    char first[THREAD_LOCAL_MAX]; /* thread-local variables of a new thread */
} now = {.current = -1, .next_id = 1000};

static struct fibre *self(void) { return &now.fibres[now.current]; }

static _Noreturn void fail(const char *message) {
    fprintf(stderr, "sharing: %s\n", message);
    exit(2);
}

static uint64_t draw(void) {
    uint64_t z = (now.random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 31);
}

/* ---- thread-local variables ----------------------------------------------------------------------- */

extern void *__tls_get_addr(size_t index[2]); /* the loader's: a module, and an offset */

static int look_for_thread_local(struct dl_phdr_info *object, size_t size, void *wanted) {
    (void)size;
    bool holds = false;
    size_t bytes = 0, from_file = 0;
    const void *image = NULL;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD) holds |= (uintptr_t)wanted - start < segment->p_memsz;
        if (segment->p_type != PT_TLS) continue;
        bytes = segment->p_memsz;
        from_file = segment->p_filesz;
        image = (const void *)start;
    }
    if (!holds) return 0;
    if (bytes > THREAD_LOCAL_MAX) fail("too many thread-local variables");
    if (bytes == 0) return 1;
    /* The place that the loader reports is NULL until it was asked for in this way. */
    now.thread_local = __tls_get_addr((size_t[]){object->dlpi_tls_modid, 0});
    now.thread_local_bytes = bytes;
    memcpy(now.first, image, from_file); /* relocated, as they are in a new thread */
    return 1;
}

void fibres_find_thread_local(const void *address) {
    if (dl_iterate_phdr(look_for_thread_local, (void *)(uintptr_t)address) == 0) fail("a library without addresses");
}

/* ---- turns ---------------------------------------------------------------------------------------- */

static void new_turn(void) { now.left = 1 + (unsigned)(draw() % (2 * now.schedule.turn - 1)); }

static void switch_to(unsigned next) {
    memcpy(self()->thread_local, now.thread_local, now.thread_local_bytes);
    memcpy(now.thread_local, now.fibres[next].thread_local, now.thread_local_bytes);
    self()->error = errno;
    if (_setjmp(self()->point) == 0) { /* and here it goes on */
        now.current = (int)next;
        if (self()->started) _longjmp(self()->point, 1);
        self()->started = true;
        setcontext(&self()->context);
        fail("a context is lost");
    }
    errno = self()->error;
}

static _Noreturn void leave(bool stuck) {
    now.stuck = stuck;
    now.current = -1;
    setcontext(&now.outside);
    fail("a context is lost");
}

static bool is_ready(struct fibre *fibre) {
    if (fibre->state == SLEEPS && sharing_clock_ns() >= fibre->wakes_ns) fibre->state = READY;
    return fibre->state == READY;
}

/* No fibre can go on: advances the clock until the first wakes up. */
static void pass_time(void) {
    uint64_t first_ns = UINT64_MAX;
    for (unsigned i = 0; i < now.used; i++)
        if (now.fibres[i].state == SLEEPS && now.fibres[i].wakes_ns < first_ns) first_ns = now.fibres[i].wakes_ns;
    if (first_ns == UINT64_MAX) leave(true);
    now.slept_ns += first_ns - sharing_clock_ns();
}

static bool workload_ended(void) {
    for (unsigned i = 0; i < now.schedule.cores; i++)
        if (now.fibres[i].state != ENDED) return false;
    return true;
}

/* A new round: all fibres, in a new order. */
static void new_round(void) {
    now.place = 0;
    now.round = now.used;
    for (unsigned i = 0; i < now.round; i++) {
        unsigned other = (unsigned)(draw() % (i + 1));
        now.order[i] = now.order[other];
        now.order[other] = i;
    }
}

/* The next fibre that can go on gets its turn. */
static void next_turn(void) {
    new_turn();
    for (;;) {
        for (unsigned looked = 0; looked < 2 * now.used; looked++) { /* what is left of a round, and a whole one */
            if (now.place == now.round) new_round();
            unsigned next = now.order[now.place++];
            if (!is_ready(&now.fibres[next])) continue;
            if (next != (unsigned)now.current) switch_to(next);
            return;
        }
        if (workload_ended()) leave(false);
        pass_time();
    }
}

static void pause_in(enum state state) {
    self()->state = state;
    next_turn();
}

/* Before each access. */
static void step(void) {
    now.accesses++;
    if (now.left-- == 0) next_turn();
}

void fibre_yield(void) { next_turn(); }

void fibre_barrier(void) {
    if (++now.at_barrier != now.schedule.cores) {
        pause_in(AT_BARRIER);
        return;
    }
    now.at_barrier = 0;
    for (unsigned i = 0; i < now.schedule.cores; i++)
        if (now.fibres[i].state == AT_BARRIER) now.fibres[i].state = READY;
}

enum entry fibre_enter(enum entry entry) {
    enum entry before = self()->entry;
    if (before != entry && entry != ENTRY_USER) counts[entry].calls++;
    self()->entry = entry;
    return before;
}

/* ---- lives of threads ----------------------------------------------------------------------------- */

static void run_destructors(void) {
    struct fibre *fibre = self();
    enum entry before = fibre_enter(ENTRY_THREAD_END);
    for (unsigned key = 0; key < now.keys; key++) {
        void *value = fibre->values[key];
        fibre->values[key] = NULL;
        if (value != NULL && now.destroy[key] != NULL) now.destroy[key](value);
    }
    fibre_enter(before);
}

static void begin_life(struct fibre *fibre) {
    memset(fibre->values, 0, sizeof fibre->values);
    fibre->id = now.next_id++;
}

void fibre_renew(void) {
    run_destructors();
    memcpy(now.thread_local, now.first, now.thread_local_bytes);
    begin_life(self());
}

static void fibre_main(void) {
    struct fibre *fibre = self();
    if (fibre->body != NULL)
        fibre->body(fibre->argument);
    else
        now.body((unsigned)now.current);
    run_destructors();
    for (;;) pause_in(ENDED);
}

static void start_fibre(unsigned index, enum entry entry) {
    struct fibre *fibre = &now.fibres[index];
    if (fibre->stack == NULL)
        fibre->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fibre->stack == MAP_FAILED) fail("out of memory");
    getcontext(&fibre->context);
    fibre->context.uc_stack.ss_sp = fibre->stack;
    fibre->context.uc_stack.ss_size = STACK_BYTES;
    fibre->context.uc_link = NULL;
    makecontext(&fibre->context, fibre_main, 0);
    fibre->state = READY;
    fibre->started = false;
    fibre->entry = entry;
    begin_life(fibre);
    memcpy(fibre->thread_local, now.first, now.thread_local_bytes);
}

bool fibres_run(const struct schedule *schedule, void (*body)(unsigned core)) {
    now.schedule = *schedule;
    now.random = schedule->seed;
    now.body = body;
    now.used = schedule->cores;
    for (unsigned i = 0; i < schedule->cores; i++) start_fibre(i, ENTRY_USER);
    char before[THREAD_LOCAL_MAX];
    memcpy(before, now.thread_local, now.thread_local_bytes);
    memcpy(now.thread_local, now.fibres[0].thread_local, now.thread_local_bytes);
    new_turn();
    now.current = 0;
    now.stuck = false;
    now.fibres[0].started = true;
    swapcontext(&now.outside, &now.fibres[0].context);
    memcpy(now.thread_local, before, now.thread_local_bytes);
    return !now.stuck;
}

/* ---- accesses: what hooks.c calls ----------------------------------------------------------------- */

bool run_is_inside(void) { return now.current >= 0 && !lines_is_naming(); }

/* A thread's stack and its thread-local variables are on lines of its own. */
static bool is_private(uintptr_t address) {
    if (address - (uintptr_t)self()->stack < STACK_BYTES) return true;
    return address - (uintptr_t)now.thread_local < now.thread_local_bytes || address == (uintptr_t)&errno;
}

static void access_line(uintptr_t address, size_t bytes, enum access access, uintptr_t code) {
    if (is_private(address)) {
        counts[self()->entry].accesses++;
        return;
    }
    step();
    lines_access((unsigned)now.current, self()->entry, address, bytes, access, code);
}

void run_access(uintptr_t address, size_t bytes, bool write, uintptr_t code) {
    access_line(address, bytes, write ? ACCESS_WRITE : ACCESS_READ, code);
}

uint64_t run_load(uintptr_t address, unsigned bytes, int order, uintptr_t code) {
    (void)order;
    access_line(address, bytes, ACCESS_READ, code);
    return memory_load(address, bytes);
}

/* A sequentially consistent store is an exchange where there is no instruction for it. */
void run_store(uintptr_t address, unsigned bytes, int order, uint64_t value, uintptr_t code) {
    access_line(address, bytes, order == memory_order_seq_cst ? ACCESS_ATOMIC : ACCESS_WRITE, code);
    memory_store(address, bytes, value);
}

/* If it changes nothing, it takes the line for itself all the same. */
uint64_t run_exchange(uintptr_t address, unsigned bytes, const struct change *change, uintptr_t code) {
    access_line(address, bytes, ACCESS_ATOMIC, code);
    uint64_t old = memory_load(address, bytes), new;
    if (change->change(old, change, &new)) memory_store(address, bytes, new);
    return old;
}

void run_fence(int order, uintptr_t code) {
    (void)code;
    if (order == memory_order_seq_cst) counts[self()->entry].fences++;
}

void fibre_touch(const void *address, size_t bytes, bool write) {
    run_access((uintptr_t)address, bytes, write, (uintptr_t)__builtin_return_address(0));
}

void memory_touch(const volatile void *start, size_t bytes) { (void)start, (void)bytes; }

uint64_t memory_load(uintptr_t address, unsigned bytes) {
    uint64_t value = 0;
    memcpy(&value, (const void *)address, bytes);
    return value;
}

void memory_store(uintptr_t address, unsigned bytes, uint64_t value) { memcpy((void *)address, &value, bytes); }

/* ---- what the allocator asks of libc and the kernel ----------------------------------------------- */

static long futex(const uint32_t *word, int operation, uint32_t value) {
    if (operation == FUTEX_WAKE_PRIVATE) {
        long woken = 0;
        for (unsigned i = 0; i < now.used && woken < (long)value; i++)
            if (now.fibres[i].state == WAITS && now.fibres[i].waits_for == word) {
                now.fibres[i].state = READY;
                woken++;
            }
        return woken;
    }
    if (operation != FUTEX_WAIT_PRIVATE) fail("a futex operation that is not known");
    if (*word != value) {
        errno = EAGAIN;
        return -1;
    }
    counts[self()->entry].sleeps++;
    self()->waits_for = word;
    pause_in(WAITS);
    return 0;
}

/* Writes the set of simulated cores into BYTES bytes, and returns how many of them the kernel would have written. */
static long allowed_cores(size_t bytes, uint64_t *allowed) {
    const size_t words = CORES_MAX / 64;
    if (now.schedule.cores == 0 || bytes < words * sizeof *allowed) {
        errno = EINVAL;
        return -1;
    }
    memset(allowed, 0, words * sizeof *allowed);
    for (unsigned core = 0; core < now.schedule.cores; core++) allowed[core / 64] |= UINT64_C(1) << core % 64;
    return (long)(words * sizeof *allowed);
}

long sharing_syscall(long number, long a, long b, long c, long d, long e, long f) {
    if (now.current >= 0 && number == SYS_futex) return futex((const uint32_t *)a, (int)b, (uint32_t)c);
    if (now.current >= 0 && number == SYS_membarrier) return 0; /* there is nothing that it could order */
    if (now.current >= 0 && number == SYS_gettid) return (long)self()->id;
    if (number == SYS_sched_getaffinity) return allowed_cores((size_t)b, (uint64_t *)c);
    return syscall(number, a, b, c, d, e, f);
}

/* Follows the number of accesses, so that each run is the same. */
uint64_t sharing_clock_ns(void) {
    uint64_t rounds = now.schedule.cores != 0 ? now.accesses / now.schedule.cores : 0;
    return UINT64_C(1000000000) + now.slept_ns + rounds * now.schedule.access_ns;
}

void sharing_sleep(uint64_t ns) {
    if (now.current < 0) return;
    self()->wakes_ns = sharing_clock_ns() + ns;
    pause_in(SLEEPS);
}

void sharing_yield(void) {
    if (now.current >= 0) next_turn();
}

bool sharing_thread(void *(*body)(void *), void *argument) {
    if (now.current < 0) return false;
    unsigned index = now.schedule.cores;
    while (index < now.used && now.fibres[index].state != ENDED) index++;
    if (index == CORES_ALL) return false;
    if (index == now.used) now.used++;
    now.fibres[index].body = body;
    now.fibres[index].argument = argument;
    start_fibre(index, ENTRY_OWN_THREAD);
    counts[ENTRY_OWN_THREAD].calls++;
    return true;
}

int sharing_key(void (*destroy)(void *)) {
    if (now.keys == KEYS) return -1;
    now.destroy[now.keys] = destroy;
    return (int)now.keys++;
}

void *sharing_value(unsigned key) { return now.current >= 0 ? self()->values[key] : NULL; }

void sharing_value_set(unsigned key, uintptr_t value) {
    if (now.current >= 0) self()->values[key] = (void *)value;
}
