/* memory.c - the memory primitives of os.h. Any thread may call them; the only shared state is the
 * counters and what the kernel was seen to refuse. */
#include "os/os.h"

#include "base/bits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct os_counters os_counters;

_Thread_local struct os_refusal os_refusal;

const char *const os_call_names[OS_CALL_KINDS] = {
    [OS_CALL_MMAP] = "mmap",
    [OS_CALL_MUNMAP] = "munmap",
    [OS_CALL_MPROTECT] = "mprotect",
    [OS_CALL_MADVISE_FREE] = "madvise (give back)",
    [OS_CALL_MADVISE_HUGE] = "madvise (huge pages)",
    [OS_CALL_MADVISE_POPULATE] = "madvise (populate)",
    [OS_CALL_MREMAP] = "mremap",
    [OS_CALL_THREAD] = "pthread_create",
    [OS_CALL_MEMBARRIER] = "membarrier",
    [OS_CALL_MINCORE] = "mincore",
};

const char *os_call_name(enum os_call call) { return os_call_names[call]; }

/* relaxed: counters are statistics, nothing is inferred from their order. */
static void count(_Atomic uint64_t *counter, uint64_t amount) {
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

bool os_counted(enum os_call call, bool succeeded, int saved_errno) {
    count(&os_counters.calls[call], 1);
    if (!succeeded) {
        count(&os_counters.refusals[call], 1);
        if (call == OS_CALL_MMAP || call == OS_CALL_MPROTECT)
            os_refusal = (struct os_refusal){(uint16_t)call, (uint16_t)errno};
    }
    errno = saved_errno;
    return succeeded;
}

const char *os_error_name(int error, char buffer[12]) {
    static const struct {
        int error;
        const char *name;
    } names[] = {{ENOMEM, "ENOMEM"}, {EAGAIN, "EAGAIN"}, {EINVAL, "EINVAL"},   {EPERM, "EPERM"},
                 {EACCES, "EACCES"}, {ENOSYS, "ENOSYS"}, {EEXIST, "EEXIST"},   {EFAULT, "EFAULT"},
                 {ENOENT, "ENOENT"}, {EISDIR, "EISDIR"}, {ENOTDIR, "ENOTDIR"}, {ENAMETOOLONG, "ENAMETOOLONG"},
                 {ENOSPC, "ENOSPC"}, {EROFS, "EROFS"},   {ENXIO, "ENXIO"},     {ELOOP, "ELOOP"},
                 {EFBIG, "EFBIG"},   {EDQUOT, "EDQUOT"}, {EMFILE, "EMFILE"},   {ENFILE, "ENFILE"},
                 {EBADF, "EBADF"},   {EIO, "EIO"},       {EPIPE, "EPIPE"},     {ENODEV, "ENODEV"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].error == error) return names[i].name;
    snprintf(buffer, 12, "%d", error);
    return buffer;
}

size_t os_page_bytes(void) { return getauxval(AT_PAGESZ); }

static void *map_pages(void *hint, size_t bytes, int protection, int flags) {
    int saved = errno;
    void *address = mmap(hint, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (!os_counted(OS_CALL_MMAP, address != MAP_FAILED, saved)) return NULL;
    count(&os_counters.reserved_bytes, bytes);
    return address;
}

/* From the kernel's prctl.h, which older headers lack. */
enum { SET_VMA = 0x53564d41, SET_VMA_ANON_NAME = 0 };

void os_name(void *address, size_t bytes, const char *name) {
    static _Atomic bool refused; /* relaxed: asked twice at worst */
    if (atomic_load_explicit(&refused, memory_order_relaxed)) return;
    int saved = errno;
    /* EAGAIN, ENOMEM: too many mappings, or no memory, now. Others will be named. */
    if (prctl(SET_VMA, SET_VMA_ANON_NAME, address, bytes, name) != 0 && errno != EAGAIN && errno != ENOMEM)
        atomic_store_explicit(&refused, true, memory_order_relaxed);
    errno = saved;
}

void *os_reserve(size_t bytes) { return map_pages(NULL, bytes, PROT_NONE, 0); }

void *os_reserve_readable(size_t bytes) { return map_pages(NULL, bytes, PROT_READ, 0); }

enum os_place os_reserve_at(void *address, size_t bytes) {
    /* A hint, not MAP_FIXED_NOREPLACE: old kernels, emulators and ThreadSanitizer each treat that flag
     * differently, and if the place is free, and nothing lies close behind it, the hint gets it just as well;
     * otherwise the place counts as taken. */
    void *got = map_pages(address, bytes, PROT_NONE, 0);
    if (got == address) return OS_PLACE_RESERVED;
    if (got == NULL) return OS_PLACE_REFUSED;
    os_unmap(got, bytes);
    return OS_PLACE_TAKEN;
}

#ifndef MAP_FIXED_NOREPLACE /* Linux 4.17 */
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* What is in the way is no refusal. */
static bool map_only_at(void *address, size_t bytes) {
    int saved = errno;
    void *got = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    os_counted(OS_CALL_MMAP, got != MAP_FAILED || errno == EEXIST, saved);
    if (got == MAP_FAILED) return false;
    count(&os_counters.reserved_bytes, bytes);
    if (got != address) os_unmap(got, bytes); /* the flag is not known */
    return got == address;
}

bool os_map_at(void *address, size_t bytes) {
    void *got = map_pages(address, bytes, PROT_READ | PROT_WRITE, 0); /* as in os_reserve_at */
    if (got == NULL) return false;
    if (got != address) {
        os_unmap(got, bytes);
        /* Linux 6.7 to 6.12 passes a hint over where something lies within 2 MiB behind the place. */
        if (!map_only_at(address, bytes)) return false;
    }
    count(&os_counters.committed_bytes, bytes);
    return true;
}

bool os_commit(void *address, size_t bytes) {
    int saved = errno;
    bool done = mprotect(address, bytes, PROT_READ | PROT_WRITE) == 0;
    bool no_memory = !done && errno == ENOMEM;
    os_counted(OS_CALL_MPROTECT, done, saved);
    if (!done && !no_memory) {
        /* A sandbox may refuse mprotect and allow mmap. The range holds nothing yet. Not after ENOMEM: old
         * kernels unmap the range before they refuse it. */
        void *got = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                         -1, 0);
        done = os_counted(OS_CALL_MMAP, got == address, saved);
        if (done) os_name(address, bytes, OS_NAME_BLOCKS);
    }
    if (done) count(&os_counters.committed_bytes, bytes);
    return done;
}

/* MADV_DONTNEED does nothing to locked pages (EINVAL), in sandboxes, and in emulators that answer 0 and keep
 * the data. Whether this is such an emulator is found out once, on a page of our own. The call on that page may be refused although
 * the one on the range was not, if new mappings are locked or the address space is used up. Neither need last, so the probe is
 * repeated, but not for each range. */
static bool purge_zeroes(void) {
    enum { UNKNOWN, ZEROES, KEEPS };
    static _Atomic int verdict = UNKNOWN;
    int known = atomic_load_explicit(&verdict, memory_order_relaxed); /* the probe may run twice */
    if (known != UNKNOWN) return known == ZEROES;
    enum { PAUSE_MS = 1000 };
    static _Atomic uint64_t refused_ms; /* 0: never; relaxed, as the verdict */
    const uint64_t now_ms = os_clock_ms(), last_ms = atomic_load_explicit(&refused_ms, memory_order_relaxed);
    if (last_ms != 0 && now_ms - last_ms < PAUSE_MS) return false;
    size_t page = os_page_bytes();
    volatile unsigned char *probe = os_map(page, page);
    if (probe != NULL) {
        *probe = 1;
        if (madvise((void *)(uintptr_t)probe, page, MADV_DONTNEED) == 0) known = *probe == 0 ? ZEROES : KEEPS;
        os_unmap((void *)(uintptr_t)probe, page);
    }
    if (known == UNKNOWN) atomic_store_explicit(&refused_ms, now_ms, memory_order_relaxed);
    else atomic_store_explicit(&verdict, known, memory_order_relaxed);
    return known == ZEROES;
}

bool os_purge(void *address, size_t bytes) {
    int saved = errno;
    if (!os_counted(OS_CALL_MADVISE_FREE, madvise(address, bytes, MADV_DONTNEED) == 0, saved)) return false;
    count(&os_counters.purged_bytes, bytes);
    bool zeroes = purge_zeroes();
    errno = saved;
    return zeroes;
}

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

void os_populate(void *address, size_t bytes) {
    static _Atomic bool unsupported; /* a kernel without it answers EINVAL, and is asked once */
    if (atomic_load_explicit(&unsupported, memory_order_relaxed)) return; /* asking twice is harmless */
    int saved = errno;
    size_t page = os_page_bytes();
    uintptr_t start = round_down((uintptr_t)address, page), end = round_up((uintptr_t)address + bytes, page);
    bool done = madvise((void *)start, end - start, MADV_POPULATE_WRITE) == 0;
    if (!done && errno == EINVAL) atomic_store_explicit(&unsupported, true, memory_order_relaxed);
    os_counted(OS_CALL_MADVISE_POPULATE, done, saved);
}

/* An old kernel may unmap the range and then have no memory to map it afresh. */
enum os_moved os_renew(void *address, size_t bytes) {
    int saved = errno;
    void *got = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    bool done = got == address, out_of_memory = errno == ENOMEM;
    if (!os_counted(OS_CALL_MMAP, done, saved)) return out_of_memory ? OS_MOVE_LOST : OS_NOT_MOVED;
    count(&os_counters.purged_bytes, bytes);
    os_name(address, bytes, OS_NAME_BLOCKS);
    return OS_MOVE_RENEWED;
}

/* Kernels without huge pages answer EINVAL, always: they are asked once. */
static bool advise_huge(void *address, size_t bytes, int advice) {
    static _Atomic bool unsupported;
    if (atomic_load_explicit(&unsupported, memory_order_relaxed)) return false; /* asking twice is harmless */
    int saved = errno;
    bool done = madvise(address, bytes, advice) == 0;
    if (!done && errno == EINVAL) atomic_store_explicit(&unsupported, true, memory_order_relaxed);
    return os_counted(OS_CALL_MADVISE_HUGE, done, saved);
}

bool os_prefer_huge(void *address, size_t bytes) { return advise_huge(address, bytes, MADV_HUGEPAGE); }
bool os_avoid_huge(void *address, size_t bytes) { return advise_huge(address, bytes, MADV_NOHUGEPAGE); }

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

static _Atomic enum { COLLAPSE_UNKNOWN, COLLAPSE_MAY, COLLAPSE_MAY_NOT } collapse; /* relaxed: looking twice is harmless */

bool os_setting_wants_huge(const char *text) { return strstr(text, "[never]") == NULL; }

#define HUGE_SETTINGS "/sys/kernel/mm/transparent_hugepage/"

/* Pages of 2 MiB may have a setting of their own (Linux 6.8). */
static bool wants_huge(void) {
    char all[64], own[64];
    const bool told = os_read_file(HUGE_SETTINGS "enabled", all, sizeof all) > 0;
    const bool of_size = os_read_file(HUGE_SETTINGS "hugepages-2048kB/enabled", own, sizeof own) > 0;
    return told && os_setting_wants_huge(all) && (!of_size || os_setting_wants_huge(own));
}

bool os_collapses(void) {
    if (os_has_own_filter()) return false;
    if (atomic_load_explicit(&collapse, memory_order_relaxed) == COLLAPSE_UNKNOWN)
        atomic_store_explicit(&collapse, wants_huge() ? COLLAPSE_MAY : COLLAPSE_MAY_NOT, memory_order_relaxed);
    return atomic_load_explicit(&collapse, memory_order_relaxed) == COLLAPSE_MAY;
}

bool os_collapse(void *address, size_t bytes) {
    int saved = errno;
    return os_counted(OS_CALL_MADVISE_HUGE, madvise(address, bytes, MADV_COLLAPSE) == 0, saved);
}

#ifndef MADV_COLD /* Linux 5.4 */
#define MADV_COLD 20
#endif

/* MADV_DONTNEED of a part only marks a huge page to be broken later; MADV_COLD of a part breaks it immediately. */
void os_split_huge(void *address, size_t bytes) {
    int saved = errno;
    os_counted(OS_CALL_MADVISE_HUGE, madvise(address, bytes, MADV_COLD) == 0, saved);
}

#ifndef MREMAP_DONTUNMAP /* Linux 5.7 */
#define MREMAP_DONTUNMAP 4
#endif

#define MOVE_FLAGS (MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)

enum move_verdict { MOVE_UNKNOWN, MOVE_WORKS, MOVE_FAILS };
static _Atomic enum move_verdict move_works;

/* Whether two pages were moved as they should be, and both places can be purged. An emulator may believe that FROM is no
 * longer mapped, so the kernel is made to write there before FROM is read. */
static bool was_moved(volatile unsigned char *from, volatile unsigned char *to, size_t page) {
    if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, from) != 0 || from[page] != 0 || to[page] != 1) return false;
    from[page] = 1;
    return madvise((void *)(uintptr_t)from, 2 * page, MADV_DONTNEED) == 0 && from[page] == 0 &&
           madvise((void *)(uintptr_t)to, 2 * page, MADV_DONTNEED) == 0 && to[page] == 0;
}

/* If the kernel lacks support, it refuses before it touches anything. If it lacks memory, it may have unmapped the destination
 * first. The destination is then mapped anew, unless something lies there: the old mapping, or one of another thread. Which of
 * the two cannot be told, so the destination is lost. */
static enum os_moved move_to(void *from, void *to, size_t bytes) {
    int saved = errno;
    void *got = mremap(from, bytes, bytes, MOVE_FLAGS, to);
    bool done = got == to, out_of_memory = errno == ENOMEM || errno == EAGAIN || errno == EFAULT;
    if (os_counted(OS_CALL_MREMAP, done, saved)) return OS_MOVED;
    if (!out_of_memory) return OS_NOT_MOVED;
    got = mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (os_counted(OS_CALL_MMAP, got == to, saved)) {
        os_name(to, bytes, OS_NAME_BLOCKS); /* otherwise it would never merge with its neighbours */
        return OS_MOVE_RENEWED;
    }
    if (got != MAP_FAILED) os_unmap(got, bytes);
    return OS_MOVE_LOST;
}

/* Old kernels refuse; emulators report success and do something else. Found out once, on pages of our own. */
static bool move_is_known_to_work(void) {
    enum move_verdict known = atomic_load_explicit(&move_works, memory_order_relaxed), before = MOVE_UNKNOWN;
    if (known != MOVE_UNKNOWN) return known == MOVE_WORKS;
    int saved = errno;
    size_t page = os_page_bytes();
    unsigned char *from = os_map(2 * page, page), *to = from == NULL ? NULL : os_map(2 * page, page);
    if (to != NULL) {
        from[page] = 1;
        const enum os_moved moved = move_to(from, to, 2 * page);
        const bool works = moved == OS_MOVED && was_moved(from, to, page);
        if (moved != OS_MOVE_RENEWED) known = works ? MOVE_WORKS : MOVE_FAILS;
        if (moved != OS_MOVE_LOST) os_unmap(to, 2 * page);
    }
    if (from != NULL) os_unmap(from, 2 * page);
    errno = saved;
    /* Still unknown where there was no memory. The probe may run twice, and a move may have failed meanwhile: a failure stays. */
    if (known == MOVE_FAILS)
        atomic_store_explicit(&move_works, MOVE_FAILS, memory_order_relaxed);
    else
        atomic_compare_exchange_strong_explicit(&move_works, &before, known, memory_order_relaxed, memory_order_relaxed);
    return known == MOVE_WORKS && before != MOVE_FAILS;
}

/* The place that a move leaves is not locked any more. Where all memory is locked (mlockall), the pool would get some that is not. The
 * destination tells: a locked page is not dropped. What the destination holds is lost anyway; all of it is dropped now, since the kernel
 * may refuse to move before it has unmapped that, and then nobody uses or returns it any more. */
static bool is_locked(void *to, size_t bytes) {
    int saved = errno;
    return !os_counted(OS_CALL_MADVISE_FREE, madvise(to, bytes, MADV_DONTNEED) == 0, saved);
}

/* After a destination was lost nothing is moved any more. */
enum os_moved os_move(void *from, void *to, size_t bytes) {
    if (!move_is_known_to_work() || is_locked(to, bytes)) return OS_NOT_MOVED;
    const enum os_moved moved = move_to(from, to, bytes);
    if (moved == OS_NOT_MOVED || moved == OS_MOVE_LOST) atomic_store_explicit(&move_works, MOVE_FAILS, memory_order_relaxed);
    return moved;
}

void *os_map(size_t bytes, size_t alignment) {
    size_t page = os_page_bytes();
    size_t slack = alignment > page ? alignment - page : 0;
    if (bytes > SIZE_MAX - slack) return NULL;
    char *start = map_pages(NULL, bytes + slack, PROT_READ | PROT_WRITE, 0);
    if (start == NULL) return NULL;
    char *aligned = (char *)round_up((uintptr_t)start, alignment);
    size_t before = (size_t)(aligned - start);
    if (before != 0) os_unmap(start, before);
    if (slack != before) os_unmap(aligned + bytes, slack - before);
    count(&os_counters.committed_bytes, bytes);
    return aligned;
}

bool os_unmap(void *address, size_t bytes) {
    int saved = errno;
    if (!os_counted(OS_CALL_MUNMAP, munmap(address, bytes) == 0, saved)) return false;
    count(&os_counters.unmapped_bytes, bytes);
    return true;
}

/* A limit above this exceeds any address space; so does RLIM_INFINITY. */
#define NO_LIMIT_BYTES (SIZE_MAX / 4)

static size_t limit_of(int resource) {
    int saved = errno;
    struct rlimit limit;
    bool known = getrlimit(resource, &limit) == 0;
    errno = saved;
    return !known || limit.rlim_cur > NO_LIMIT_BYTES ? SIZE_MAX : (size_t)limit.rlim_cur;
}

size_t os_address_limit(void) { return limit_of(RLIMIT_AS); }
size_t os_data_limit(void) { return limit_of(RLIMIT_DATA); }

static _Atomic enum { CHARGE_UNKNOWN, CHARGE_TOUCHED, CHARGE_ALL } charge; /* relaxed: looking twice is harmless */

static int read_charge(void) {
    char mode[4];
    const int saved = errno;
    const bool all = os_read_file("/proc/sys/vm/overcommit_memory", mode, sizeof mode) > 0 && mode[0] == '2';
    errno = saved;
    return all ? CHARGE_ALL : CHARGE_TOUCHED;
}

bool os_charges_all(void) {
    if (atomic_load_explicit(&charge, memory_order_relaxed) == CHARGE_UNKNOWN && !os_has_own_filter())
        atomic_store_explicit(&charge, read_charge(), memory_order_relaxed);
    return atomic_load_explicit(&charge, memory_order_relaxed) == CHARGE_ALL;
}

bool os_is_limited(void) { return os_address_limit() != SIZE_MAX || os_data_limit() != SIZE_MAX; }

uint64_t os_random_seed(void) {
    /* The kernel places sixteen random bytes for each new program image. */
    const unsigned char *bytes = (const unsigned char *)getauxval(AT_RANDOM);
    uint64_t seed = (uintptr_t)&bytes;
    if (bytes != NULL) memcpy(&seed, bytes, sizeof seed);
    return seed;
}
