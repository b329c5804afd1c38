/* clock.c - the clock that decay follows. */
#include "os/os.h"

#include <errno.h>
#include <time.h>

uint64_t os_clock_ms(void) {
    int saved = errno;
    struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) != 0) {
#else
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0) {
#endif
        errno = saved;
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool os_sleep_ms(uint64_t ms) {
    int saved = errno;
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    const bool slept = nanosleep(&time, NULL) == 0 || errno == EINTR;
    errno = saved;
    return slept;
}
