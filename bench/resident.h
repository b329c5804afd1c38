/* resident.h - how much of this process's memory is resident, as the kernel counts it. */
#ifndef BENCH_RESIDENT_H
#define BENCH_RESIDENT_H

#include <stdint.h>

/* Now: pages of any kind. The kernel may be some dozen pages behind. */
uint64_t rss_kib_read(void);

/* The highest so far: VmHWM and not ru_maxrss, which is inherited from the process that started this one. */
uint64_t peak_rss_kib_read(void);

#endif
