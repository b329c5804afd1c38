/* resident.c - how much of a range is resident.
 *
 * mincore tells, but a seccomp filter may end a process that calls it: systemd's @system-service, the list that most services are
 * held to, lacks it on purpose. Every filter under which a program can be started lets it open files, so where one was in force
 * from the start /proc/self/pagemap is read instead. A filter that the program made itself may end it for that, too: under such a
 * one the kernel is not asked. */
#include "os/os.h"

#include "base/bits.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

/* Both add to *RESIDENT how many of PAGES pages from ADDRESS on are; false where the kernel does not say. */

static bool ask_mincore(char *address, size_t pages, size_t *resident) {
    enum { PIECE = 512 };
    unsigned char is_resident[PIECE];
    for (size_t done = 0; done < pages; done += PIECE) {
        const int saved = errno;
        const size_t piece = min_size(pages - done, PIECE), page = os_page_bytes();
        if (!os_counted(OS_CALL_MINCORE, mincore(address + done * page, piece * page, is_resident) == 0, saved)) return false;
        for (size_t i = 0; i < piece; i++) *resident += is_resident[i] & 1;
    }
    return true;
}

/* Of this thread, since once the process's first thread has ended by pthread_exit the process's own cannot be read. */
static int open_pagemap(void) {
    const int file = os_open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    return file >= 0 ? file : os_open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0); /* before Linux 3.17 */
}

/* The file has a word for each page of the address space, whose highest bit says that the page is present. */
static bool ask_pagemap(const char *address, size_t pages, size_t *resident) {
    enum { PIECE = 128, PRESENT = 63 };
    uint64_t words[PIECE];
    const int saved = errno, file = open_pagemap();
    bool told = file >= 0;
    for (size_t done = 0; told && done < pages; done += PIECE) {
        const size_t piece = min_size(pages - done, PIECE), at = (uintptr_t)address / os_page_bytes() + done;
        told = os_read_at(file, words, piece * sizeof *words, at * sizeof *words) == (long)(piece * sizeof *words);
        for (size_t i = 0; told && i < piece; i++) *resident += words[i] >> PRESENT;
    }
    if (file >= 0) os_close(file);
    errno = saved;
    return told;
}

bool os_tells_resident(void *address, size_t bytes, size_t *resident_bytes) {
    const size_t page = os_page_bytes(), pages = (bytes + page - 1) / page;
    size_t resident = 0;
    const bool told = os_was_filtered() ? ask_pagemap(address, pages, &resident)
                                        : !os_has_own_filter() && ask_mincore(address, pages, &resident);
    *resident_bytes = min_size(resident * page, bytes);
    return told;
}

size_t os_resident_bytes(void *address, size_t bytes) {
    size_t resident_bytes;
    return os_tells_resident(address, bytes, &resident_bytes) ? resident_bytes : bytes;
}
