/* at_write.h - interrupts this thread where it next writes to some memory, for certain: as a signal might that arrives at that moment. */
#ifndef HAK_TESTS_AT_WRITE_H
#define HAK_TESTS_AT_WRITE_H

#include "check.h" /* first: it says _GNU_SOURCE */

#include <signal.h>
#include <sys/mman.h>

static struct {
    char *start;
    size_t bytes;
    void (*handler)(void);
} at_write;

static void at_write_now(int number) {
    if (at_write.handler == NULL || mprotect(at_write.start, at_write.bytes, PROT_READ | PROT_WRITE) != 0)
        _exit(1);
    signal(number, SIG_DFL);
    void (*handler)(void) = at_write.handler;
    at_write.handler = NULL;
    handler();
}

/* HANDLER is called once, before the first write to the page of ADDRESS. For a child, whose SIGSEGV it takes. */
static void interrupt_at_write(void *address, void (*handler)(void)) {
    at_write.bytes = (size_t)sysconf(_SC_PAGESIZE);
    at_write.start = (char *)((uintptr_t)address & ~(uintptr_t)(at_write.bytes - 1));
    at_write.handler = handler;
    CHECK(signal(SIGSEGV, at_write_now) != SIG_ERR);
    CHECK_EQ(mprotect(at_write.start, at_write.bytes, PROT_READ), 0);
}

#endif
