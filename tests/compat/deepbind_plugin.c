/* deepbind_plugin.c - gives blocks from its own malloc and from libc's functions, and takes blocks. See deepbind.c. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "deepbind.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *plugin_give(enum giver giver) {
    char *text = NULL;
    size_t size = 0;
    FILE *file;
    switch (giver) {
    case GIVE_MALLOC:
        return strcpy(malloc(100), "text");
    case GIVE_STRDUP:
        return strdup("text");
    case GIVE_REALPATH:
        return realpath("/", NULL);
    case GIVE_ASPRINTF:
        return asprintf(&text, "%0100d", 5) == 100 ? text : NULL;
    case GIVE_GETLINE:
        file = fopen("/proc/self/maps", "re");
        if (file == NULL || getline(&text, &size, file) <= 0) return NULL;
        fclose(file);
        return text;
    }
    return NULL;
}

void plugin_take(char *block) { free(block); }
