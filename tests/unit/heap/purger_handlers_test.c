/* purger_handlers_test.c - signal handlers in the purge thread: of a message of hakmem's that ends the process, of a call that a sandbox traps.
 *
 * Planted defects it was seen to catch:
 *   its locks are taken without the mark   a_handler_finds_it_inside
 *   signals of faults are blocked there    a_handler_finds_it_inside
 */
#include "ace/decay.h"
#include "blocks.h"
#include "child.h"
#include "heap/alloc.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/purger.h"

#include <sys/wait.h>

enum { HALF_LIFE_MS = 50, ENOUGH_MS = 20000 };

static uint32_t program_thread;
static atomic_int handled;

/* What crash reporters do. */
static void handle(int number) {
    CHECK_EQ(number, SIGTRAP);
    CHECK(thread_state.busy);
    void *block = heap_alloc(100, NULL);
    CHECK(block != NULL);
    heap_free(block, NULL);
    const pid_t child = fork();
    if (child == 0) _exit(7);
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    atomic_fetch_add(&handled, 1);
}

static void interrupt(const struct ace_decision *decision) {
    if (decision->reason == ACE_REASON_NOTHING_LEFT && os_thread_id() != program_thread) raise(SIGTRAP);
}

static void handle_in_purge_thread(void) {
    program_thread = os_thread_id();
    CHECK(signal(SIGTRAP, handle) != SIG_ERR);
    span_configure(&(struct span_settings){.decay_half_life_ms = HALF_LIFE_MS, .huge_from_pages = UINT64_MAX});
    purger_configure(HALF_LIFE_MS, true);
    purger_start();
    heap_settings.keeper = interrupt;
    char *block = heap_alloc(MIB(64), NULL);
    CHECK(block != NULL);
    for (size_t at = 0; at < MIB(64); at += 4096) block[at] = 'x';
    heap_free(block, NULL);
    for (int i = 0; i < TICKS_PER_LOOK; i++) heap_free(heap_alloc_aligned(1, 2 * PAGE_BYTES), NULL);
    CHECK_EQ(purger_starts(), 1);
    for (uint64_t start = os_clock_ms(); atomic_load(&handled) == 0 && os_clock_ms() - start < ENOUGH_MS;) os_sleep_ms(5);
    CHECK_EQ(atomic_load(&handled), 1);
}
TEST(a_handler_finds_it_inside) { IN_CHILD(handle_in_purge_thread); }
