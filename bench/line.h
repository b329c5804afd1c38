/* line.h - the one JSON line that a workload prints: text in a fixed buffer, so that reporting allocates nothing. */
#ifndef BENCH_LINE_H
#define BENCH_LINE_H

#include <stddef.h>

/* Room for a latency histogram of some hundred buckets. */
#define LINE_BYTES (64 << 10)

struct line {
    size_t length;
    char text[LINE_BYTES];
};

/* Ends the program with a message when the text does not fit. */
void line_add(struct line *line, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* TEXT as a JSON string; control characters are left out. */
void line_add_quoted(struct line *line, const char *text);

/* NAME in lower case, as a JSON string. */
void line_add_lower(struct line *line, const char *name);

/* Writes all of it to standard output. */
void line_print(const struct line *line);

#endif
