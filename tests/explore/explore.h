/* explore.h - what a litmus test or a protocol says to the explorer.
 *
 * A test is a few threads of a few operations. Its setup runs alone and once; then every execution of its threads that
 * C11 allows is run from what the setup left behind, and after each the test looks at the outcome, alone again. The
 * code is compiled with -fsanitize=thread: what the compiler then calls at each access is the explorer.
 *
 * See docs/explored.md for the memory model and what is not covered. */
#ifndef EXPLORE_H
#define EXPLORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXPLORE_THREADS = 4 }; /* at most, beside the setup */

struct explore_test {
    const char *name;
    void (*setup)(void); /* alone, once; may be NULL */
    void (*threads[EXPLORE_THREADS])(void);
    void (*check)(void);  /* alone, after each execution; may be NULL */
    const char *outcomes; /* of a litmus test: all that explore_outcome may say, sorted, with blanks between; else NULL */
    unsigned may_wait;    /* bit t: thread t may wait for ever */
    bool deep;            /* too long for every run */
    const char *like;     /* another test that must have as many executions; or NULL */
    uint64_t seed;        /* for tests that are made */
};

void explore_register(struct explore_test *test);

/* EXPLORE(name, .threads = {a, b}, ...); */
#define EXPLORE(title, ...)                                                                                            \
    __attribute__((constructor)) static void explore_register_##title(void) {                                        \
        static struct explore_test test = {.name = #title, __VA_ARGS__};                                             \
        explore_register(&test);                                                                                     \
    }                                                                                                                \
    _Static_assert(1, "")

/* What must hold in every execution. */
#define EXPLORE_CHECK(condition) ((condition) ? (void)0 : explore_fail("%s:%d: broken: %s", __FILE__, __LINE__, #condition))
__attribute__((format(printf, 1, 2), noreturn)) void explore_fail(const char *format, ...);

/* Adds to what a litmus test saw in this execution. From its check. */
__attribute__((format(printf, 1, 2))) void explore_outcome(const char *format, ...);

/* In a setup: runs BODY with the thread-local variables of thread THREAD, the first being 0. */
void explore_as(unsigned thread, void (*body)(void));

/* The number of the thread that runs; in a setup and a check, of the one it runs as. */
unsigned explore_self(void);

/* The seed of the test. */
uint64_t explore_seed(void);

/* A name for reports. */
void explore_name(const volatile void *address, const char *name);

/* ---- what the model of the kernel is made of ------------------------------------------------------------ */

/* Memory that is as it was at the end of the setup when the next execution begins. */
void explore_memory(void *start, size_t bytes);

/* Variables of which each thread has its own. */
void explore_thread_local(void *start, size_t bytes);

/* A lock: taken in any order the model allows. Whoever waits for it waits without a step. */
void explore_lock_take(_Atomic uint32_t *state);
bool explore_lock_try(_Atomic uint32_t *state);
void explore_lock_drop(_Atomic uint32_t *state);

/* Waits, without a step, until *WORD is WANTED, or at least that. Acquire. */
void explore_await(_Atomic uint32_t *word, uint32_t wanted);
void explore_await_at_least(_Atomic uint32_t *word, uint32_t wanted);

/* membarrier: every other thread that runs passes a full barrier somewhere between two of its steps, while this
 * waits. */
void explore_barrier_others(void);

#endif
