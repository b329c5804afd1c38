/* os.c - the os layer as the explorer needs it: no system call, all memory there from the start, the same in every
 * execution. What the kernel does to memory counts as a write to it, so whoever uses it at the same time is found. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* So that one kernel page holds one block of the middle class. */
enum { KERNEL_PAGE = 32768, ARENA_BYTES = 8 << 20 };

struct os_counters os_counters;

static struct {
    char *next, *end;
    char apart[112]; /* nobody shares a word */
} arenas[EXPLORE_THREADS + 1]; /* a thread's own: what one maps does not depend on the others */

size_t os_page_bytes(void) { return KERNEL_PAGE; }

/* At a place of its own, the same in every run. */
static void *map_at(uintptr_t address, size_t bytes) {
    void *memory = mmap((void *)address, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory != (void *)address) explore_fail("no memory at %p", (void *)address);
    explore_memory(memory, bytes);
    return memory;
}

void *os_map(size_t bytes, size_t alignment) {
    unsigned arena = explore_self() + 1;
    if (arenas[arena].next == NULL) {
        arenas[arena].next = map_at(0x200000000000u + arena * 0x1000000000u, ARENA_BYTES);
        arenas[arena].end = arenas[arena].next + ARENA_BYTES;
    }
    uintptr_t start = ((uintptr_t)arenas[arena].next + alignment - 1) & ~(alignment - 1);
    if (start + bytes > (uintptr_t)arenas[arena].end) return NULL;
    arenas[arena].next = (char *)start + bytes;
    return (void *)start;
}

bool os_unmap(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return true;
}

void *os_reserve(size_t bytes) { return os_map(bytes, KERNEL_PAGE); }
void *os_reserve_readable(size_t bytes) { return os_map(bytes, KERNEL_PAGE); }

/* The window's addresses: all mapped in the setup, with the books before them. */
enum { WINDOW_BYTES = 8 << 20, BOOKS_BYTES = 2 << 20 };
static uintptr_t window_start_address;

enum os_place os_reserve_at(void *address, size_t bytes) {
    uintptr_t start = (uintptr_t)address & ~(uintptr_t)((4ull << 30) - 1);
    if (window_start_address == 0) {
        window_start_address = start;
        map_at(start, WINDOW_BYTES + BOOKS_BYTES);
    }
    const bool inside = (uintptr_t)address + bytes <= window_start_address + WINDOW_BYTES + BOOKS_BYTES;
    return inside ? OS_PLACE_RESERVED : OS_PLACE_REFUSED;
}
bool os_map_at(void *address, size_t bytes) { return os_reserve_at(address, bytes) == OS_PLACE_RESERVED; }
bool os_commit(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
    return true;
}

bool os_purge(void *address, size_t bytes) {
    for (size_t at = 0; at < bytes; at += KERNEL_PAGE) *(uint64_t *)(void *)((char *)address + at) = 0;
    return true;
}
enum os_moved os_renew(void *address, size_t bytes) {
    os_purge(address, bytes);
    return OS_MOVE_RENEWED;
}
void os_populate(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
}
bool os_prefer_huge(void *address, size_t bytes) { return address != NULL && bytes != 0; }
bool os_avoid_huge(void *address, size_t bytes) { return address != NULL && bytes != 0; }
void os_split_huge(void *address, size_t bytes) {
    (void)address;
    (void)bytes;
}
bool os_collapses(void) { return true; }
bool os_collapse(void *address, size_t bytes) { return address != NULL && bytes != 0; }
enum os_moved os_move(void *from, void *to, size_t bytes) {
    (void)from;
    (void)to;
    (void)bytes;
    return OS_NOT_MOVED;
}
size_t os_address_limit(void) { return SIZE_MAX; }
size_t os_data_limit(void) { return SIZE_MAX; }
bool os_is_limited(void) { return false; }
bool os_charges_all(void) { return false; }
uint64_t os_random_seed(void) { return 1; }

/* ---- time, threads ------------------------------------------------------------------------------------------- */

bool os_has_own_filter(void) { return false; }
size_t os_resident_bytes(void *address, size_t bytes) { return (void)address, bytes; }
bool os_tells_resident(void *address, size_t bytes, size_t *resident_bytes) {
    *resident_bytes = bytes;
    return address != NULL;
}

uint64_t os_clock_ms(void) { return 1000 * 1000; } /* stands still */
uint64_t os_signal_mask(void) { return 0; }
bool os_is_libc(const void *address) { return address == NULL; }
bool os_is_libc_alone(const void *address) { return (void)address, false; }
bool os_is_loader(const void *address) { return (void)address, false; }
bool os_may_be_loader_callback(void) { return false; }
void os_stdio_lock(void) {}
void os_stdio_unlock(void) {}
void os_stdio_reset(void) {}

static bool (*start_body)(void);
_Atomic uint32_t model_threads_started, model_threads_ended;
static _Atomic uint32_t never;
static struct {
    unsigned sleeps;
    char apart[124]; /* nobody shares a word */
} started[EXPLORE_THREADS];

bool os_sleep_ms(uint64_t ms) {
    (void)ms;
    if (++started[explore_self()].sleeps == MODEL_SLEEPS_MOST) explore_await(&never, 1);
    return true;
}

bool os_thread_start(bool (*body)(void), const char *name) {
    (void)name;
    start_body = body;
    atomic_fetch_add_explicit(&model_threads_started, 1, memory_order_acq_rel);
    return true;
}

void model_started_thread(void) {
    /* The first such thread of the test is the first to be started, and so on. */
    explore_await_at_least(&model_threads_started, explore_self());
    start_body();
    atomic_fetch_add_explicit(&model_threads_ended, 1, memory_order_relaxed);
}

bool os_barrier_others(void) {
    explore_barrier_others();
    return true;
}

/* ---- words --------------------------------------------------------------------------------------------------- */

void os_panic(const char *format, ...) {
    char message[400];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    explore_fail("the library ends the process: %s", message);
}
_Thread_local struct os_refusal os_refusal;
void os_message(const char *format, ...) { (void)format; }
bool os_counted(enum os_call call, bool succeeded, int saved_errno) {
    (void)call;
    (void)saved_errno;
    return succeeded;
}
const char *os_call_name(enum os_call call) { return call == OS_CALL_MMAP ? "mmap" : "another"; }
void os_usage_read(struct os_usage *usage) { *usage = (struct os_usage){0}; }
void os_process_name(char *name, size_t bytes) {
    if (bytes > 0) name[0] = '\0';
}

uint32_t os_thread_id(void) { return explore_self() + 1; }
uint32_t os_first_thread_id(void) { return os_thread_id(); }
uint32_t os_cpu(void) { return explore_self() % 2; }
uint32_t os_processors(void) { return UINT32_MAX; }
void os_name(void *address, size_t bytes, const char *name) { (void)address, (void)bytes, (void)name; }
void os_group_read(const char *root, struct os_group *group) {
    (void)root;
    *group = (struct os_group){OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED};
}
void os_group_read_limits(const char *root, struct os_group *group) { os_group_read(root, group); }
void os_group_read_again(struct os_group *group) { os_group_read("", group); }
