/* crooked_stack.c - malloc and its family on a stack pointer that is off by 8 from what the ABI promises.
 *
 * Where musl cancels a thread asynchronously it goes on with the stack pointer that the thread had, wherever that was: to
 * cleanup handlers, destructors of keys, and whatever they call. glibc unwinds, and calls them with an aligned one. Here
 * every call to malloc and its family is made on a crooked stack, through all slow paths; and threads end on one.
 *
 * Planted defect it was seen to catch: the library does not align its stack.
 */
#include "preload/served.h" /* first: it says _GNU_SOURCE */

#include "blocks.h"

#if defined(__x86_64__) && !defined(__GLIBC__)

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

/* Calls FUNCTION, below the red zone, with a stack pointer that is no multiple of 16. */
static uintptr_t call_crooked(uintptr_t function, uintptr_t first, uintptr_t second, uintptr_t third) {
    __asm__ volatile("movq %%rsp, %%rbx\n\t"
                     "leaq -128(%%rsp), %%rsp\n\t"
                     "andq $-16, %%rsp\n\t"
                     "subq $8, %%rsp\n\t"
                     "callq *%%rax\n\t"
                     "movq %%rbx, %%rsp"
                     : "+a"(function), "+D"(first), "+S"(second), "+d"(third)
                     :
                     : "rbx", "rcx", "r8", "r9", "r10", "r11", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
                       "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15",
                       "memory", "cc");
    return function;
}

#define CROOKED(function, first, second, third)                                                    \
    call_crooked((uintptr_t)(function), (uintptr_t)(first), (uintptr_t)(second), (uintptr_t)(third))

/* All that follows calls these. */
#define malloc(bytes) ((void *)CROOKED(malloc, bytes, 0, 0))
#define calloc(count, bytes) ((void *)CROOKED(calloc, count, bytes, 0))
#define realloc(block, bytes) ((void *)CROOKED(realloc, block, bytes, 0))
#define aligned_alloc(alignment, bytes) ((void *)CROOKED(aligned_alloc, alignment, bytes, 0))
#define free(block) ((void)CROOKED(free, block, 0, 0))

#include "threads.h"
#include "work.h"

static void give_back(void) {
    if (malloc_trim) CROOKED(malloc_trim, 0, 0, 0);
}

/* Blocks that another thread made, more than a thread collects before it gives them back. */
enum { FOREIGN = 6000, OWN = 5000 };
static void *foreign[FOREIGN], *own[OWN];

static void *make_foreign(void *unused) {
    for (size_t i = 0; i < FOREIGN; i++) CHECK((foreign[i] = malloc(16 + i % 40 * 50)) != NULL);
    return unused;
}

/* Stacks that are refilled, deepened and spilled; blocks that are pages, grow and move; others' blocks; refusals. */
static void *use_every_path(void *unused) {
    for (size_t size = 8; size <= MIB(64); size += size / 2) {
        size_t count = size < KIB(1) ? OWN : size < KIB(64) ? 200 : 2;
        for (size_t i = 0; i < count; i++) {
            own[i] = i % 3 ? malloc(size) : i % 2 ? calloc(1, size) : aligned_alloc(64, size);
            CHECK_AT(own[i] != NULL, size);
        }
        for (size_t i = 0; i < count; i++) {
            if (i % 5 == 0) CHECK_AT((own[i] = realloc(own[i], size * 2)) != NULL, size);
            free(own[i]);
        }
    }
    for (size_t i = 0; i < FOREIGN; i++) free(foreign[i]);
    volatile size_t impossible = PTRDIFF_MAX;
    CHECK(malloc(impossible) == NULL);
    CHECK_EQ(work(1, 10000), 0);
    give_back();
    return unused;
}

TEST(every_path) {
    run_thread(make_foreign, NULL);
    use_every_path(NULL);
    run_thread(make_foreign, NULL);
    run_thread(use_every_path, NULL);
}

/* Looks of slow paths that give back themselves, and ones that start a thread for that. */
TEST(memory_goes_back) {
    for (size_t round = 0; round < 20; round++) {
        work_leave_dirty(round < 15 ? 10 : 64, MIB(1));
        work_leave_dirty(20000, 500);
        nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    }
    give_back();
}

/* ---- the ends of threads ---------------------------------------------------------------------------- */

static pthread_key_t key; /* its destructor is free itself: nothing aligns the stack on the way */
static atomic_size_t reached;

static void own_blocks(struct work_slot *slots, uint64_t seed) {
    struct rng rng = {seed};
    for (size_t i = 0; i < WORK_SLOTS; i++) CHECK(work_allocate(&slots[i], &rng, rng_size(&rng, 50)));
    for (size_t i = 1; i < WORK_SLOTS; i++) free(slots[i].block);
    CHECK_EQ(pthread_setspecific(key, slots[0].block), 0);
    work_leave_dirty(8, MIB(1)); /* so much that the end of the thread starts another that gives it back */
}

static void *exit_crooked(void *seed) {
    struct work_slot slots[WORK_SLOTS];
    own_blocks(slots, (uintptr_t)seed);
    CROOKED(pthread_exit, PTHREAD_CANCELED, 0, 0);
    return NULL;
}

/* With the stack pointer at a multiple of 16, where musl's handler comes in crooked, or off by 8. */
static void *be_cancelled(void *round) {
    struct work_slot slots[WORK_SLOTS];
    own_blocks(slots, (uintptr_t)round);
    void *others = foreign[(uintptr_t)round];
    pthread_cleanup_push(free, others);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    atomic_fetch_add(&reached, 1);
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n\t"
                     "andq $-16, %%rsp\n\t"
                     "subq %0, %%rsp\n"
                     "0:\tpause\n\t"
                     "jmp 0b" ::"r"((uintptr_t)round % 2 * 8)
                     : "memory");
    pthread_cleanup_pop(0);
    return NULL;
}

static void end_threads(void *(*body)(void *), bool cancel) {
    CHECK_EQ(pthread_key_create(&key, free), 0);
    run_thread(make_foreign, NULL);
    for (size_t round = 0; round < 100; round++) {
        pthread_t thread;
        void *result = NULL;
        atomic_store(&reached, 0);
        CHECK_EQ(pthread_create(&thread, NULL, body, (void *)round), 0);
        while (cancel && atomic_load(&reached) == 0) sched_yield();
        if (cancel) CHECK_EQ(pthread_cancel(thread), 0);
        CHECK_EQ(pthread_join(thread, &result), 0);
        CHECK(result == PTHREAD_CANCELED);
    }
    CHECK_EQ(pthread_key_delete(key), 0);
    CHECK_EQ(work(2, 3000), 0);
}

TEST(threads_that_exit) { end_threads(exit_crooked, false); }

TEST(threads_that_are_cancelled_asynchronously) { end_threads(be_cancelled, true); }

#else
TEST(every_path) { OMIT("only musl on x86-64 goes on from a stack that is not aligned"); }
#endif
