/* kernel.h - what the kernel can do, asked by the calls themselves: os/ would pass its own defects off as the kernel's. */
#ifndef HAK_TESTS_KERNEL_H
#define HAK_TESTS_KERNEL_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

/* ---- moves by page tables ----------------------------------------------------------------------------------- */

#ifndef MREMAP_DONTUNMAP /* Linux 5.7 */
#define MREMAP_DONTUNMAP 4
#endif

static bool gives_back(volatile unsigned char *place, size_t page) {
    place[page] = 2;
    return madvise((void *)(uintptr_t)place, 2 * page, MADV_DONTNEED) == 0 && place[page] == 0;
}

/* Two pages of which the second was written: its contents are at the new place, the old one is still mapped, and both can be given
 * back. An emulator may say so and have unmapped the old place: the kernel writes there before this program reads it. */
CHECK_UNUSED static bool kernel_moves(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = 2 * page;
    volatile unsigned char *places[2];
    for (size_t i = 0; i < 2; i++) {
        void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(place != MAP_FAILED);
        places[i] = place;
    }
    volatile unsigned char *from = places[0], *to = places[1];
    from[page] = 1;
    const bool moves =
        syscall(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == (long)to &&
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, from) == 0 && from[page] == 0 && to[page] == 1 &&
        gives_back(from, page) && gives_back(to, page);
    for (size_t i = 0; i < 2; i++) munmap((void *)(uintptr_t)places[i], bytes);
    return moves;
}

#define NEED_MOVES()                                             \
    do {                                                         \
        if (!kernel_moves()) SKIP("the kernel moves nothing");   \
    } while (0)

/* ---- bringing memory in -------------------------------------------------------------------------------------- */

CHECK_UNUSED static bool kernel_populates(void) {
    enum { POPULATE_WRITE = 23 }; /* Linux 5.14 */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *place = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    const bool populates = syscall(SYS_madvise, place, page, POPULATE_WRITE) == 0;
    munmap(place, page);
    return populates;
}

/* ---- a barrier for the other threads of a process ----------------------------------------------------------- */

CHECK_UNUSED static bool kernel_has_barrier(void) {
    enum { QUERY = 0, PRIVATE = 1 << 3 };
    long commands = syscall(SYS_membarrier, QUERY, 0, 0);
    return commands > 0 && (commands & PRIVATE) != 0;
}

/* Without it nobody takes from others' stacks. */
#define NEED_BARRIER()                                                   \
    do {                                                                 \
        if (!kernel_has_barrier()) SKIP("the kernel has no membarrier"); \
    } while (0)

#endif
