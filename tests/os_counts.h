/* os_counts.h - what os/ counts of its calls of the kernel. */
#ifndef HAK_TESTS_OS_COUNTS_H
#define HAK_TESTS_OS_COUNTS_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include "os/os.h"

CHECK_UNUSED static uint64_t counted(const _Atomic uint64_t *place) { return atomic_load(place); }

CHECK_UNUSED static uint64_t calls_of(enum os_call call) { return counted(&os_counters.calls[call]); }

/* Address space that was had from the kernel and not given back. */
CHECK_UNUSED static uint64_t mapped_bytes(void) {
    return counted(&os_counters.reserved_bytes) - counted(&os_counters.unmapped_bytes);
}

#endif
