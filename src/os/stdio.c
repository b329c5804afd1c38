/* stdio.c - the lock of libc's list of open streams.
 *
 * glibc takes it in fork, after all fork handlers and before the locks of its own malloc: a thread may hold it and wait
 * for a stream, while the thread that reads from that stream waits for memory. An allocator whose handlers take locks
 * must take this one before them. musl does the same and does not let it be taken. */
#include "os/os.h"

/* Exported by glibc, in no header. Taken again by the thread that holds it. */
void _IO_list_lock(void) __attribute__((weak));
void _IO_list_unlock(void) __attribute__((weak));
void _IO_list_resetlock(void) __attribute__((weak));

void os_stdio_lock(void) {
    if (_IO_list_lock != NULL) _IO_list_lock();
}

void os_stdio_unlock(void) {
    if (_IO_list_unlock != NULL) _IO_list_unlock();
}

void os_stdio_reset(void) {
    if (_IO_list_resetlock != NULL) _IO_list_resetlock();
}
