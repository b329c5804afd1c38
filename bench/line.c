/* line.c - see line.h. */
#include "line.h"

#include "workload.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void line_add(struct line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof line->text - line->length;
    int added = vsnprintf(line->text + line->length, room, format, arguments);
    va_end(arguments);
    if (added < 0 || (size_t)added >= room) workload_fail("the report does not fit in %d bytes", LINE_BYTES);
    line->length += (size_t)added;
}

void line_add_quoted(struct line *line, const char *text) {
    line_add(line, "\"");
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') line_add(line, "\\");
        if ((unsigned char)*text >= ' ') line_add(line, "%c", *text);
    }
    line_add(line, "\"");
}

void line_add_lower(struct line *line, const char *name) {
    line_add(line, "\"");
    for (; *name != '\0'; name++)
        line_add(line, "%c", *name >= 'A' && *name <= 'Z' ? *name - 'A' + 'a' : *name);
    line_add(line, "\"");
}

void line_print(const struct line *line) {
    for (size_t done = 0; done < line->length;) {
        ssize_t written = write(STDOUT_FILENO, line->text + done, line->length - done);
        if (written < 0 && errno != EINTR) workload_fail("cannot print: %s", strerror(errno));
        if (written > 0) done += (size_t)written;
    }
}
