/* other_kernel.c - a kernel with larger pages, or with fewer addresses, than the one that is there.
 *
 *     LD_PRELOAD="libother_kernel.so libhakmem.so" OTHER_PAGE_BYTES=65536 program
 *     LD_PRELOAD="libother_kernel.so libhakmem.so" OTHER_ADDRESS_BITS=39 program
 *
 *     OTHER_PAGE_BYTES    what AT_PAGESZ, sysconf and getpagesize say. Mappings start at multiples of it; lengths are
 *                         rounded up to it and the rest of the last page is hit, too, as a kernel does; a fixed
 *                         address that is no multiple is refused with EINVAL.
 *     OTHER_ADDRESS_BITS  nothing is mapped at or above 2^BITS: hints there are passed over, fixed addresses refused.
 *     OTHER_STRICT=1      a call from libhakmem.so that such a kernel would refuse, or whose length is no multiple,
 *                         ends the process with a line that says so
 *     OTHER_REPORT=1      one line on stderr at exit: how many calls came from libhakmem.so
 *
 * What libc and the loader map themselves does not pass here and stays as it is. Like fail_calls.c it may run inside
 * malloc and before any constructor: it allocates nothing and takes no lock.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef mmap64

#ifndef MAP_FIXED_NOREPLACE /* Linux 4.17 */
#define MAP_FIXED_NOREPLACE 0x100000
#endif

/* ---- what is asked for ------------------------------------------------------------------------------ */

static struct {
    size_t page_bytes; /* 0: as it is */
    uintptr_t limit;   /* of addresses; 0: as it is */
    bool strict, report;
} other;

static ElfW(auxv_t) auxiliary[64];

/* 0: not read, 1: some thread is at it, 2: read. Until then calls pass through. */
static atomic_int state;

/* Counted for the report. */
static atomic_ulong from_hakmem;

static size_t read_file(const char *path, char *into, size_t bytes) {
    size_t length = 0;
    long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), more = 0;
    if (file < 0) return 0;
    while (length < bytes && (more = syscall(SYS_read, file, into + length, bytes - length)) > 0)
        length += (size_t)more;
    syscall(SYS_close, file);
    return length;
}

static size_t number_of(const char *text, const char *name) {
    size_t length = strlen(name);
    for (; *text != '\0'; text += strlen(text) + 1)
        if (strncmp(text, name, length) == 0 && text[length] == '=')
            return strtoul(text + length + 1, NULL, 10);
    return 0;
}

/* From /proc, because resolvers and constructors of others come before libc's environ is set. */
static bool ready(void) {
    static char text[1 << 16];
    int unread = 0;
    if (atomic_load(&state) == 2) return true;
    if (!atomic_compare_exchange_strong(&state, &unread, 1)) return false;
    int saved = errno;
    read_file("/proc/self/environ", text, sizeof text - 2);
    read_file("/proc/self/auxv", (char *)auxiliary, sizeof auxiliary - sizeof auxiliary[0]);
    size_t bits = number_of(text, "OTHER_ADDRESS_BITS");
    other.page_bytes = number_of(text, "OTHER_PAGE_BYTES");
    other.limit = bits > 0 && bits < 64 ? (uintptr_t)1 << bits : 0;
    other.strict = number_of(text, "OTHER_STRICT") != 0;
    other.report = number_of(text, "OTHER_REPORT") != 0;
    errno = saved;
    atomic_store(&state, 2);
    return true;
}

/* ---- who asks --------------------------------------------------------------------------------------- */

/* libhakmem.so, which is preloaded after this object and so is there before any constructor: found by the name that the
 * loader knows. dl_iterate_phdr takes the loader's lock, so it is asked once. */
static atomic_uintptr_t hakmem_start, hakmem_end;

static int look_at(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size;
    (void)unused;
    if (strstr(object->dlpi_name, "/libhakmem.so") == NULL) return 0;
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (unsigned i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_X)) continue;
        const uintptr_t from = object->dlpi_addr + segment->p_vaddr, to = from + segment->p_memsz;
        start = from < start ? from : start;
        end = to > end ? to : end;
    }
    atomic_store(&hakmem_end, end);
    atomic_store(&hakmem_start, start);
    return 1;
}

static bool is_hakmem(const void *caller) {
    static atomic_bool looked;
    if (!atomic_exchange(&looked, true)) dl_iterate_phdr(look_at, NULL);
    uintptr_t at = (uintptr_t)caller, start = atomic_load(&hakmem_start);
    return start != 0 && at >= start && at < atomic_load(&hakmem_end);
}

/* ---- the two rules ---------------------------------------------------------------------------------- */

static size_t page_bytes(void) { return other.page_bytes; }

static size_t round_page(size_t bytes) {
    return page_bytes() == 0 ? bytes : (bytes + page_bytes() - 1) & ~(page_bytes() - 1);
}

static bool is_whole(uintptr_t value) { return page_bytes() == 0 || value % page_bytes() == 0; }

__attribute__((noreturn)) static void complain(const char *call, uintptr_t address, size_t bytes) {
    char line[160];
    int length = snprintf(line, sizeof line, "other_kernel: %s(%#lx, %#lx) with pages of %zu bytes\n", call,
                          (unsigned long)address, (unsigned long)bytes, page_bytes());
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
    abort();
}

/* Whether a call on a range passes; false after EINVAL. */
static bool passes(const char *call, const void *address, size_t bytes, const void *caller) {
    if (!ready()) return true;
    bool hakmem = is_hakmem(caller), whole = is_whole((uintptr_t)address);
    if (hakmem) atomic_fetch_add(&from_hakmem, 1);
    if (hakmem && other.strict && !(whole && is_whole(bytes))) complain(call, (uintptr_t)address, bytes);
    if (!whole) errno = EINVAL;
    return whole;
}

/* ---- mapping ---------------------------------------------------------------------------------------- */

struct request {
    size_t bytes; /* whole pages */
    int protection, flags, file;
    off_t offset;
};

static void *map_at(const struct request *request, uintptr_t hint, int more_flags) {
    return (void *)syscall(SYS_mmap, hint, request->bytes, request->protection, request->flags | more_flags,
                           request->file, request->offset);
}

/* Somewhere below the limit, from its top down; what was unmapped is not used again. */
static void *map_low(const struct request *request, size_t alignment) {
    static atomic_uintptr_t lowest;
    uintptr_t unset = 0;
    atomic_compare_exchange_strong(&lowest, &unset, other.limit - ((uintptr_t)1 << 30));
    for (;;) {
        uintptr_t top = atomic_load(&lowest);
        if (top < request->bytes + ((uintptr_t)1 << 32)) break;
        uintptr_t place = (top - request->bytes) & ~(alignment - 1);
        if (!atomic_compare_exchange_strong(&lowest, &top, place)) continue;
        void *got = map_at(request, place, MAP_FIXED_NOREPLACE);
        if (got != MAP_FAILED || errno != EEXIST) return got;
    }
    errno = ENOMEM;
    return MAP_FAILED;
}

/* Anywhere, at a multiple of ALIGNMENT: more than is needed, and the rest given back. */
static void *map_aligned(const struct request *request, size_t alignment) {
    struct request wide = *request;
    wide.bytes += alignment;
    char *start = map_at(&wide, 0, 0);
    if (start == MAP_FAILED) return MAP_FAILED;
    char *place = (char *)(((uintptr_t)start + alignment - 1) & ~(alignment - 1));
    if (place != start) syscall(SYS_munmap, start, place - start);
    syscall(SYS_munmap, place + request->bytes, (size_t)(start + wide.bytes - (place + request->bytes)));
    if (request->file >= 0 && map_at(request, (uintptr_t)place, MAP_FIXED) == MAP_FAILED) return MAP_FAILED;
    return place;
}

/* A hint is taken if it can be; a kernel rounds it up to a page. */
static void *map_near(const struct request *request, uintptr_t hint) {
    size_t alignment = page_bytes() == 0 ? 4096 : page_bytes();
    hint = round_page(hint);
    if (other.limit != 0 && (hint == 0 || hint + request->bytes > other.limit))
        return map_low(request, alignment);
    if (hint == 0 && page_bytes() == 0) return map_at(request, 0, 0);
    if (hint != 0) {
        void *got = map_at(request, hint, 0);
        if (got == MAP_FAILED || is_whole((uintptr_t)got)) return got;
        syscall(SYS_munmap, got, request->bytes);
    }
    return other.limit != 0 ? map_low(request, alignment) : map_aligned(request, alignment);
}

static void *map(void *hint, size_t bytes, int protection, int flags, int file, off_t offset,
                 const void *caller) {
    struct request request = {bytes, protection, flags, file, offset};
    if (!ready()) return map_at(&request, (uintptr_t)hint, 0);
    bool fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
    bool hakmem = is_hakmem(caller);
    if (hakmem) atomic_fetch_add(&from_hakmem, 1);
    if (hakmem && other.strict && !is_whole(bytes)) complain("mmap", (uintptr_t)hint, bytes);
    request.bytes = round_page(bytes);
    if (!fixed) return map_near(&request, (uintptr_t)hint);
    if (!is_whole((uintptr_t)hint)) {
        if (hakmem && other.strict) complain("mmap", (uintptr_t)hint, bytes);
        errno = EINVAL;
        return MAP_FAILED;
    }
    if (other.limit != 0 && (uintptr_t)hint + request.bytes > other.limit) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return map_at(&request, (uintptr_t)hint, 0);
}

/* ---- the functions in libc's place ------------------------------------------------------------------ */

void *mmap(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map(hint, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

/* glibc's name for the same under _FILE_OFFSET_BITS=64; musl does not declare it. */
void *mmap64(void *hint, size_t bytes, int protection, int flags, int file, off_t offset);

void *mmap64(void *hint, size_t bytes, int protection, int flags, int file, off_t offset) {
    return map(hint, bytes, protection, flags, file, offset, __builtin_return_address(0));
}

int munmap(void *address, size_t bytes) {
    if (!passes("munmap", address, bytes, __builtin_return_address(0))) return -1;
    return (int)syscall(SYS_munmap, address, round_page(bytes));
}

int mprotect(void *address, size_t bytes, int protection) {
    if (!passes("mprotect", address, bytes, __builtin_return_address(0))) return -1;
    return (int)syscall(SYS_mprotect, address, round_page(bytes), protection);
}

int madvise(void *address, size_t bytes, int advice) {
    if (!passes("madvise", address, bytes, __builtin_return_address(0))) return -1;
    return (int)syscall(SYS_madvise, address, round_page(bytes), advice);
}

/* What grows without a place of its own is not moved: the kernel would choose one of its small pages. */
void *mremap(void *address, size_t bytes, size_t new_bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *target = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    const void *caller = __builtin_return_address(0);
    if (!passes("mremap", address, bytes, caller) || !passes("mremap", target, new_bytes, caller))
        return MAP_FAILED;
    if (target == NULL) flags &= ~MREMAP_MAYMOVE;
    return (void *)syscall(SYS_mremap, address, round_page(bytes), round_page(new_bytes), flags, target);
}

unsigned long getauxval(unsigned long kind) {
    bool read = ready();
    if (kind == AT_PAGESZ && page_bytes() != 0) return page_bytes();
    for (size_t i = 0; read && auxiliary[i].a_type != AT_NULL; i++)
        if (auxiliary[i].a_type == kind) return auxiliary[i].a_un.a_val;
    errno = ENOENT;
    return 0;
}

int getpagesize(void) { return (int)getauxval(AT_PAGESZ); }

/* The only one that is no system call and no word of the kernel's. */
long sysconf(int name) {
    union {
        void *object;
        long (*function)(int);
    } next;
    if (name == _SC_PAGESIZE) return (long)getauxval(AT_PAGESZ);
    next.object = dlsym(RTLD_NEXT, "sysconf");
    return next.function(name);
}

__attribute__((destructor)) static void print_report(void) {
    char line[100];
    if (!ready() || !other.report) return;
    int length =
        snprintf(line, sizeof line, "other_kernel: %lu calls from libhakmem\n", atomic_load(&from_hakmem));
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written;
}
