/* small_stacks.c - the stacks that malloc is called on: the smallest that a thread may have, and the alternate stack of
 * a fault handler, each above a page that may not be touched.
 *
 * Everything is done there that takes the deep paths: a thread's first block and its end, every class refilled and
 * spilled, other threads' blocks given back by the hundred, giving back, refusals.
 *
 * Planted defect it was seen to catch: giving back other threads' blocks takes 16 KiB of stack.
 */
#include "work.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#ifndef AT_MINSIGSTKSZ /* Linux 5.14 */
#define AT_MINSIGSTKSZ 51
#endif

/* What malloc and its family may use of a stack, besides what the kernel puts there for a signal. */
#define DEPTH KIB(8)

static size_t larger(size_t one, size_t other) { return one > other ? one : other; }

struct guarded {
    char *mapping, *stack;
    size_t mapped, bytes;
};

static struct guarded guarded_map(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guarded guarded = {.bytes = (bytes + page - 1) / page * page};
    guarded.mapped = guarded.bytes + page;
    guarded.mapping = mmap(NULL, guarded.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(guarded.mapping != MAP_FAILED);
    CHECK_EQ(mprotect(guarded.mapping, page, PROT_NONE), 0);
    guarded.stack = guarded.mapping + page;
    memset(guarded.stack, 0x77, guarded.bytes);
    return guarded;
}

/* How deep it was used, at most. */
static size_t guarded_used(const struct guarded *guarded) {
    size_t untouched = 0;
    while (untouched < guarded->bytes && guarded->stack[untouched] == 0x77) untouched++;
    return guarded->bytes - untouched;
}

/* Blocks that another thread made, more than a thread collects before it gives them back. */
enum { FOREIGN = 3000, OWN = 2000 };
static void *foreign[FOREIGN], *own[OWN];

static void *make_foreign(void *unused) {
    for (size_t i = 0; i < FOREIGN; i++) CHECK((foreign[i] = malloc(16 + i % 40 * 50)) != NULL);
    return unused;
}

static void use_every_path(void) {
    for (size_t size = 8; size <= MIB(4); size += size / 2) {
        size_t count = size < KIB(1) ? OWN : size < KIB(64) ? 100 : 2;
        for (size_t i = 0; i < count; i++) {
            own[i] = i % 3 ? malloc(size) : i % 2 ? calloc(1, size) : aligned_alloc(64, size);
            if (own[i] == NULL) _exit(2);
        }
        for (size_t i = 0; i < count; i++) {
            if (i % 5 == 0 && (own[i] = realloc(own[i], size * 2)) == NULL) _exit(3);
            free(own[i]);
        }
    }
    for (size_t i = 0; i < FOREIGN; i++) free(foreign[i]);
    volatile size_t impossible = PTRDIFF_MAX;
    if (malloc(impossible) != NULL) _exit(4);
    work_give_back();
}

static void prepare(void) {
    pthread_t maker;
    CHECK_EQ(pthread_create(&maker, NULL, make_foreign, NULL), 0);
    CHECK_EQ(pthread_join(maker, NULL), 0);
}

static void *use_in_thread(void *unused) {
    use_every_path();
    return unused;
}

TEST(the_smallest_stack_of_a_thread) {
    pthread_attr_t attributes;
    pthread_t thread;
    size_t bytes = larger((size_t)sysconf(_SC_THREAD_STACK_MIN), KIB(16)); /* musl says 2 KiB */
    struct guarded guarded = guarded_map(bytes);
    CHECK_EQ(pthread_attr_init(&attributes), 0);
    CHECK_EQ(pthread_attr_setstack(&attributes, guarded.stack, guarded.bytes), 0);
    prepare();
    CHECK_EQ(pthread_create(&thread, &attributes, use_in_thread, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attributes);
    check_say("     %zu of %zu bytes of the stack were used", guarded_used(&guarded), guarded.bytes);
    munmap(guarded.mapping, guarded.mapped);
}

/* ---- the alternate stack of a fault handler --------------------------------------------------------------- */

static char *page;
static size_t page_bytes;
static volatile sig_atomic_t handled, using;

static void use_and_repair(int signal_number) {
    (void)signal_number;
    if (using) use_every_path();
    handled++;
    if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) _exit(5);
}

/* How much of the alternate stack it takes to repair a fault, with the work or without. */
static size_t fault(const struct guarded *guarded, bool and_use) {
    prepare();
    memset(guarded->stack, 0x77, guarded->bytes);
    using = and_use;
    handled = 0;
    CHECK_EQ(mprotect(page, page_bytes, PROT_NONE), 0);
    *(volatile char *)page = 1;
    CHECK_EQ(handled, 1);
    return guarded_used(guarded);
}

TEST(the_alternate_stack_of_a_fault_handler) {
    size_t frame = larger(getauxval(AT_MINSIGSTKSZ), (size_t)MINSIGSTKSZ), most = 0;
    struct guarded guarded = guarded_map(frame + DEPTH);
    stack_t alternate = {.ss_sp = guarded.stack, .ss_size = guarded.bytes}, off = {.ss_flags = SS_DISABLE};
    struct sigaction action, before;
    memset(&action, 0, sizeof action);
    action.sa_handler = use_and_repair;
    action.sa_flags = SA_ONSTACK;
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    page = mmap(NULL, page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    CHECK_EQ(sigaltstack(&alternate, NULL), 0);
    CHECK_EQ(sigaction(SIGSEGV, &action, &before), 0);
    size_t idle = fault(&guarded, false);
    for (int i = 0; i < 5; i++) most = larger(most, fault(&guarded, true));
    CHECK_EQ(sigaction(SIGSEGV, &before, NULL), 0);
    CHECK_EQ(sigaltstack(&off, NULL), 0);
    check_say("     %zu bytes of stack were used, beside %zu of the signal itself", most - idle, idle);
    CHECK(most <= idle + DEPTH);
    munmap(page, page_bytes);
    munmap(guarded.mapping, guarded.mapped);
}
