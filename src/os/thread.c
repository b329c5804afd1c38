/* thread.c - the one thread that hakmem starts by itself, what is known of this thread and of the libraries around it, and a barrier
 * for all other threads. */
#include "base/bits.h"
#include "os/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From the kernel's membarrier.h, which musl's headers lack. */
enum { MEMBARRIER_PRIVATE = 1 << 3, MEMBARRIER_REGISTER_PRIVATE = 1 << 4 };

/* Room for the exit handlers of a process that ends with this thread. The usual 8 MiB would be more than they take: all of it counts
 * against ulimit -v, and is faulted in under mlockall. If thread-local storage needs more, the thread gets the default size. */
enum { STACK_BYTES = 1024 * 1024 };

static struct {
    bool (*body)(void);
    const char *name;
    sigset_t mask; /* of the thread that starts it */
} starting; /* one at a time: see purger.c */

static void *run(void *unused) {
    const sigset_t mask = starting.mask; /* read now: once BODY is done, another thread may be started */
    prctl(PR_SET_NAME, starting.name);
    if (starting.body()) pthread_sigmask(SIG_SETMASK, &mask, NULL);
    return unused;
}

static bool start_with_stack(size_t stack_bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool done = (stack_bytes == 0 || pthread_attr_setstacksize(&attributes, stack_bytes) == 0) &&
                pthread_create(&thread, &attributes, run, NULL) == 0;
    pthread_attr_destroy(&attributes);
    return done;
}

static const int synchronous[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

bool os_thread_start(bool (*body)(void), const char *name) {
    int saved = errno;
    sigset_t sent, before;
    sigfillset(&sent);
    /* A signal of a thread's own instruction or call that is blocked ends the process, whatever its handler would do: that of a sandbox
     * answers trapped calls, that of a garbage collector makes pages writable. */
    for (size_t i = 0; i < sizeof synchronous / sizeof synchronous[0]; i++) sigdelset(&sent, synchronous[i]);
    /* The new thread inherits the mask. */
    if (pthread_sigmask(SIG_BLOCK, &sent, &before) != 0) return os_counted(OS_CALL_THREAD, false, saved);
    starting.body = body;
    starting.name = name;
    starting.mask = before;
    bool done = start_with_stack(STACK_BYTES) || start_with_stack(0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return os_counted(OS_CALL_THREAD, done, saved);
}

uint32_t os_thread_id(void) {
    const int saved = errno; /* a sandbox may refuse */
    const uint32_t id = (uint32_t)syscall(SYS_gettid);
    errno = saved;
    return id;
}

uint32_t os_first_thread_id(void) { return (uint32_t)getpid(); }

uint32_t os_cpu(void) {
    const int saved = errno;
    const int cpu = sched_getcpu();
    errno = saved;
    return (uint32_t)cpu;
}

/* By a system call, not by libc's functions: every process calls this, and would fault in their pages of libc. */
uint32_t os_processors(void) {
    enum { WORDS = 128 }; /* the kernel refuses a mask that is too small for all processors that it may have */
    uint64_t allowed[WORDS];
    const int saved = errno;
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof allowed, allowed);
    errno = saved;
    if (bytes <= 0) return UINT32_MAX;
    uint32_t count = 0;
    for (size_t word = 0; word < (size_t)bytes / sizeof allowed[0]; word++)
        for (uint64_t bits = allowed[word]; bits != 0; bits &= bits - 1) count++;
    return count;
}

uint64_t os_signal_mask(void) {
    sigset_t blocked;
    uint64_t bits = 0;
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0) return 0;
    for (int number = 1; number <= 64; number++)
        if (sigismember(&blocked, number) == 1) bits |= (uint64_t)1 << (number - 1);
    return bits;
}

/* ---- whose code it is ------------------------------------------------------------------------------- */

/* What errno is made of, in glibc and musl. */
extern int *errno_location(void) __asm__("__errno_location");

static struct range {
    uintptr_t start, end;
} libc_code, threads_code, loader_code;

static bool under_valgrind; /* its tools preload a library of their own */

/* What one object's segments span. */
static struct range range_of(const struct dl_phdr_info *object) {
    struct range range = {UINTPTR_MAX, 0};
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t start = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        range.start = min_size(range.start, start);
        range.end = max_size(range.end, start + object->dlpi_phdr[i].p_memsz);
    }
    return range;
}

static bool holds(struct range range, uintptr_t address) { return address >= range.start && address < range.end; }

static int look_at(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size;
    (void)unused;
    struct range range = range_of(object);
    /* A function that programs do not replace by one of their own. */
    if (holds(range, (uintptr_t)&errno_location)) libc_code = range;
    /* Before glibc 2.34 a library of its own. */
    if (holds(range, (uintptr_t)pthread_create)) threads_code = range;
    if (holds(range, getauxval(AT_BASE))) loader_code = range;
    if (strstr(object->dlpi_name, "/vgpreload_") != NULL) under_valgrind = true;
    return 0;
}

/* Where callbacks of dl_iterate_phdr return to. */
static const void *after_callback;

static uintptr_t first_record; /* libc's of the first thread; 0: not known */

static HAK_NOINLINE int look_back(struct dl_phdr_info *object, size_t size, void *unused) {
    after_callback = __builtin_return_address(0);
    return look_at(object, size, unused);
}

void os_find_libc(void) {
    dl_iterate_phdr(look_back, NULL);
    if (os_thread_id() == os_first_thread_id()) first_record = (uintptr_t)pthread_self();
}

bool os_is_libc(const void *address) {
    uintptr_t at = (uintptr_t)address;
    return libc_code.end == 0 || holds(libc_code, at) || holds(threads_code, at) || holds(loader_code, at);
}

bool os_is_libc_alone(const void *address) {
    const uintptr_t program = getauxval(AT_ENTRY);
    return libc_code.end != 0 && !holds(libc_code, program) && !holds(threads_code, program) && os_is_libc(address);
}

bool os_is_loader(const void *address) { return holds(loader_code, (uintptr_t)address) && !holds(libc_code, (uintptr_t)address); }

/* ---- whether the loader's lock is held ------------------------------------------------------------------ */

enum { FAR = 1024 * 1024 }; /* what is looked at */

/* The kernel reads the set before it finds that it knows no such way to change the mask. Every sandbox allows this call. */
static bool is_readable(uintptr_t address) {
    enum { NO_WAY = -1 };
    return syscall(SYS_rt_sigprocmask, NO_WAY, address, NULL, sizeof(uint64_t)) != 0 && errno == EINVAL;
}

/* A word of any frame: in assembly, since it is no variable of this function. */
static uintptr_t word_at(uintptr_t address) {
    uintptr_t word;
#if defined(__x86_64__)
    __asm__ volatile("movq (%1), %0" : "=r"(word) : "r"(address) : "memory");
#elif defined(__aarch64__)
    __asm__ volatile("ldr %0, [%1]" : "=r"(word) : "r"(address) : "memory");
#else
    word = *(const volatile uintptr_t *)address;
#endif
    return word;
}

/* Whether WORD is the return address WANTED. A function may have signed it before it stored it, in the upper bits. */
static bool is_return_to(uintptr_t word, const void *wanted) {
    const uintptr_t difference = word ^ (uintptr_t)wanted;
#if defined(__aarch64__)
    return difference << 16 == 0;
#else
    return difference == 0;
#endif
}

/* Where the stack that holds AT ends; 0 on a stack that is neither the process's first nor one that libc made, such as a fibre's: what
 * lies beyond that is others', who may unmap it at any time. libc's record of a thread lies at the end of the stack that it began on,
 * the kernel's random bytes at the end of the first one, which may be long, but lies far from all that is mapped. */
static uintptr_t stack_end(uintptr_t at) {
    enum { FIRST_MOST = 64 * 1024 * 1024 };
    const uintptr_t record = (uintptr_t)pthread_self();
    const bool is_first = record == first_record;
    const uintptr_t end = is_first ? (uintptr_t)getauxval(AT_RANDOM) : record;
    return end - at <= (is_first ? FIRST_MOST : FAR) ? round_down(end, sizeof(void *)) : 0; /* wraps where END is below AT */
}

/* The return address of a callback lies somewhere between AT and END. Every page is tested first: a fibre's stack may lie close below
 * another's end. An emulator that calls all addresses readable is not believed. */
static bool is_on_stack(uintptr_t at, uintptr_t end, const void *wanted) {
    enum { UNMAPPED = 8, LEAST_PAGE_BYTES = 4096 };
    if (is_readable(UNMAPPED)) return false;
    for (uintptr_t known = 0; at < end; at += sizeof wanted) {
        if (at >= known && !is_readable(at)) return false;
        known = round_down(at, LEAST_PAGE_BYTES) + LEAST_PAGE_BYTES;
        if (is_return_to(word_at(at), wanted)) return true;
    }
    return false;
}

bool os_may_be_loader_callback(void) {
    if (under_valgrind) return true; /* it would report each word of a frame that was never written */
    const uintptr_t at = round_up((uintptr_t)__builtin_frame_address(0), sizeof(void *)), end = stack_end(at);
    if (end == 0) return true;
    int saved = errno;
    bool found = is_on_stack(at, min_size(end, at + FAR), after_callback);
    errno = saved;
    return found;
}

/* ---- a library stays where it is ----------------------------------------------------------------------- */

/* Weak: a static program has no dynamic loader to ask, and should not be made to link one. */
#pragma weak dlsym

/* Whether OBJECT is linked to stay loaded (-z nodelete), as libhakmem.so is. */
static bool is_kept(const struct dl_phdr_info *object) {
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const ElfW(Dyn) *entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++)
            if (entry->d_tag == DT_FLAGS_1) return (entry->d_un.d_val & DF_1_NODELETE) != 0;
    }
    return false;
}

/* *NAME becomes the path of the object that holds this code, if it is a library that could be unloaded. */
static int look_for_own(struct dl_phdr_info *object, size_t size, void *name) {
    (void)size;
    if (!holds(range_of(object), (uintptr_t)&libc_code)) return 0;
    if (object->dlpi_name[0] != '\0' && !is_kept(object)) *(const char **)name = object->dlpi_name;
    return 1;
}

void os_stay_loaded(void) {
    const char *name = NULL;
    dl_iterate_phdr(look_for_own, &name);
    if (name == NULL || dlsym == NULL) return;
    /* By dlsym, since linkers warn of a reference to dlopen in static programs. */
    void *(*open_library)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_DEFAULT, "dlopen");
    if (open_library != NULL) open_library(name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* ---- a barrier --------------------------------------------------------------------------------------- */

bool os_barrier_others(void) {
    int saved = errno;
    /* A process registers once, which may take the kernel some milliseconds; to register again costs nothing. The child of a fork is
     * registered already. */
    bool done = syscall(SYS_membarrier, MEMBARRIER_REGISTER_PRIVATE, 0, 0) == 0 &&
                syscall(SYS_membarrier, MEMBARRIER_PRIVATE, 0, 0) == 0;
    return os_counted(OS_CALL_MEMBARRIER, done, saved);
}
