/* out.c - see out.h. */
#include "watch/out.h"

#include "os/os.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void out_begin(struct out *out, int fd) {
    out->fd = fd;
    out->error = 0;
    out->used = 0;
}

static void flush(struct out *out) {
    if (out->error == 0 && !os_write(out->fd, out->text, out->used)) out->error = errno;
    out->used = 0;
}

void out_print(struct out *out, const char *format, ...) {
    enum { MOST_BYTES = 1000 };
    if (sizeof out->text - out->used <= MOST_BYTES) flush(out);
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out->text + out->used, MOST_BYTES + 1, format, arguments);
    va_end(arguments);
    if (length > 0) out->used += length <= MOST_BYTES ? (size_t)length : MOST_BYTES;
}

void out_quote(struct out *out, const char *text) {
    out_print(out, "\"");
    for (; *text != '\0'; text++) {
        bool printable = *text >= ' ' && *text <= '~';
        out_print(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", printable ? *text : '?');
    }
    out_print(out, "\"");
}

bool out_end(struct out *out) {
    flush(out);
    if (out->error != 0) errno = out->error;
    return out->error == 0;
}
