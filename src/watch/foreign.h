/* foreign.h - pointers that hakmem never returned. */
#ifndef HAK_WATCH_FOREIGN_H
#define HAK_WATCH_FOREIGN_H

#include "heap/alloc.h"

enum foreign_policy {
    FOREIGN_ABORT, /* a line that says what the pointer looks like, then the end of the process */
    FOREIGN_COUNT, /* counted, with a line for the first, and otherwise ignored; its size is 0 */
    FOREIGN_LIBC, /* counted, and handed to the next malloc behind hakmem, unless it lies in hakmem's own memory */
};

/* At start, and whenever the settings change. */
void foreign_configure(enum foreign_policy policy);

/* Looks the next malloc up if pointers are handed to it: later each that is freed would clear the program's dlerror. Takes locks of the
 * loader, so it holds none of ours; from a constructor on. */
void foreign_prepare(void);

/* A heap_foreign_handler. */
size_t foreign_handle(void *block, enum heap_foreign_use use);

/* How many were freed, by realloc, too. */
extern HAK_HIDDEN _Atomic uint64_t foreign_seen;
uint64_t foreign_count(void);

/* Writes what POINTER looks like to TEXT, as "it lies ...", cut to BYTES. Allocates nothing; reads a file. */
void foreign_describe(const void *pointer, char *text, size_t bytes);

#endif
