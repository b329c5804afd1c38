/* outcomes.c - what a litmus test saw, in all its executions. */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512, BYTES = 64 };

static char seen[MOST][BYTES];
static unsigned count;
static char all[MOST * BYTES];

void explore_outcome(const char *format, ...) {
    char text[BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    for (unsigned i = 0; i < count; i++)
        if (strcmp(seen[i], text) == 0) return;
    if (count == MOST) explore_fail("more than %d outcomes", MOST);
    strcpy(seen[count++], text);
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

const char *run_outcomes(void) {
    qsort(seen, count, sizeof seen[0], by_text);
    all[0] = '\0';
    for (unsigned i = 0; i < count; i++) {
        if (i > 0) strcat(all, " ");
        strcat(all, seen[i]);
    }
    return all;
}
