/* prepare.c - blocks, stacks and page words of ceiling.h and null.h, all of it made before main: what CEILING_PLAN asks
 * for, or without it enough for a small trial.
 *
 * A plan is what counting.c writes: the number of threads, then for each class the most blocks that one of them held at
 * a time. Every thread gets a front whose stacks hold that many blocks and some to spare, lowest address uppermost as after a
 * refill. Those that were counted are resident; the spare ones are not. Below each stack lie a few NULLs: a workload
 * that needs more blocks than there are gets NULL from malloc, and says so.
 *
 * The page words cover every address from 0 on and hold nothing but the class. So a NULL that libc frees needs no
 * comparison: it goes to a stack of its own, which is never popped. It is that of the first medium class, which has no
 * other use here. */
#include "prepare.h"

#include "base/bits.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define PLAN_VARIABLE "CEILING_PLAN"

enum { THREADS_OF_TRIAL = 2, BLOCKS_OF_TRIAL = 8192, BELOW_SLOTS = 8, SINK_SLOTS = 65536 };
#define BYTES_OF_TRIAL HAK_MIB(24)
#define ADDRESS_BITS 48

_Static_assert(sizeof(front_slot) == sizeof(void *), "a stack of slots is a stack of pointers");

_Thread_local struct thread_state thread_state;
struct window window;

struct plan {
    unsigned threads;
    bool counted;
    size_t blocks[SMALL_CLASSES];
};

static struct front *fronts[THREADS_MAX];
static unsigned front_count;

/* ---- the plan ------------------------------------------------------------------------------------------- */

static struct plan plan_of_trial(void) {
    struct plan plan = {.threads = THREADS_OF_TRIAL};
    for (unsigned class = 0; class < SMALL_CLASSES; class++)
        plan.blocks[class] = min_size(BLOCKS_OF_TRIAL, BYTES_OF_TRIAL / class_bytes[class]);
    return plan;
}

static size_t number_next(const char **text) {
    char *end;
    errno = 0;
    unsigned long number = strtoul(*text, &end, 10);
    if (end == *text || errno != 0) bare_fail(PLAN_VARIABLE " is not what was counted");
    *text = end;
    return number;
}

static struct plan plan_read(void) {
    const char *text = getenv(PLAN_VARIABLE);
    if (text == NULL) return plan_of_trial();
    struct plan plan = {.counted = true, .threads = (unsigned)number_next(&text)};
    for (unsigned class = 0; class < SMALL_CLASSES; class++) plan.blocks[class] = number_next(&text);
    if (*text != '\0' || plan.threads == 0 || plan.threads > THREADS_MAX)
        bare_fail(PLAN_VARIABLE " is not what was counted");
    return plan;
}

/* Another seed may need a few blocks more of a class; libc some of any. */
static size_t blocks_with_spare(const struct plan *plan, unsigned class) {
    size_t blocks = plan->blocks[class];
    return blocks == 0 ? 4 : blocks + blocks / 4 + 16;
}

/* When a workload ends, its first thread frees what the others left. */
static size_t slots_above(const struct plan *plan, unsigned class, bool first) {
    return first ? (plan->threads - 1) * blocks_with_spare(plan, class) : 0;
}

/* ---- fronts --------------------------------------------------------------------------------------------- */

static size_t run_bytes(const struct plan *plan, unsigned class) {
    return round_up(blocks_with_spare(plan, class) * class_bytes[class], PAGE_BYTES);
}

static void memory_touch(char *from, size_t bytes) {
    size_t step = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < bytes; at += step) *(volatile char *)(from + at) = 0;
}

static char *memory_map_aligned(size_t bytes) {
    return (char *)round_up((uintptr_t)memory_map(bytes + PAGE_BYTES), PAGE_BYTES);
}

/* The blocks of one class from START on, in a stack that begins at BOTTOM; returns its top. */
static void **stack_fill(const struct plan *plan, unsigned class, char *start, void **bottom) {
    size_t count = blocks_with_spare(plan, class), bytes = class_bytes[class];
    for (size_t i = 0; i < count; i++) front_block_set(bottom + i, start + (count - 1 - i) * bytes);
    for (size_t at = 0; at < run_bytes(plan, class); at += PAGE_BYTES) page_word_set(page_index(start + at), class);
    if (plan->counted) memory_touch(start, plan->blocks[class] * bytes);
    return bottom + count;
}

static struct front *front_make(const struct plan *plan, bool first) {
    size_t slots = SINK_SLOTS, bytes = 0;
    for (unsigned class = 0; class < SMALL_CLASSES; class++) {
        slots += BELOW_SLOTS + blocks_with_spare(plan, class) + slots_above(plan, class, first);
        bytes += run_bytes(plan, class);
    }
    struct front *front = memory_map(sizeof *front + slots * sizeof(void *));
    void **stack = (void **)(front + 1);
    char *start = memory_map_aligned(bytes);
    for (unsigned class = 0; class < SMALL_CLASSES; class++) {
        void **top = stack_fill(plan, class, start, stack + BELOW_SLOTS);
        atomic_store_explicit(&front->top[class], top, memory_order_relaxed); /* its thread is not there yet */
        stack = top + slots_above(plan, class, first);
        start += run_bytes(plan, class);
    }
    atomic_store_explicit(&front->top[SMALL_CLASSES], stack, memory_order_relaxed); /* the NULLs' */
    return front;
}

void thread_begin(unsigned number) {
    if (number >= front_count) bare_fail("has thread %u; it was counted with %u", number, front_count);
    thread_state.front = fronts[number];
    thread_state.front_distance = (uintptr_t)fronts[number] - (uintptr_t)&front_constants.none;
}

static __attribute__((constructor)) void prepare(void) {
    const struct plan plan = plan_read();
    size_t words = (size_t)1 << (ADDRESS_BITS - PAGE_SHIFT);
    window.pages = words;
    window.words = memory_map(words * sizeof *window.words);
    page_word_set(page_index(NULL), SMALL_CLASSES);
    for (; front_count < plan.threads; front_count++) fronts[front_count] = front_make(&plan, front_count == 0);
    thread_begin(0);
}
