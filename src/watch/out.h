/* out.h - text on its way to a descriptor: buffered in pieces of some KiB, so that a report costs few calls. Nothing here
 * allocates; one thread at a time uses a struct out. */
#ifndef HAK_WATCH_OUT_H
#define HAK_WATCH_OUT_H

#include "base/attributes.h"

#include <stdbool.h>
#include <stddef.h>

struct out {
    int fd;
    int error; /* errno of the first write that failed, after which nothing is written; 0: none did */
    size_t used;
    char text[2048];
};

void out_begin(struct out *out, int fd);

/* At most 1000 bytes at a time. Knows %s %d %u %zu %llu %x %p %c and %%. */
void out_print(struct out *out, const char *format, ...) HAK_PRINTF(2, 3);

/* TEXT in double quotes, escaped for JSON and for the values of labels; what is no printable ASCII becomes a '?'. */
void out_quote(struct out *out, const char *text);

/* Writes what is left. False when not everything could be written: then errno says why. */
bool out_end(struct out *out);

#endif
