/* mapping.c - what lies at an address, as /proc/self/maps has it. Reads a file: only for messages and reports, and not under a filter of
 * the program's own, which may end it for that. */
#include "os/os.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A line is "start-end permissions offset device inode", some blanks, and a name if there is one. */
enum { WORDS_BEFORE_NAME = 5, LINE_BYTES = 1024 };

static const char *name_in(const char *line) {
    for (int word = 0; word < WORDS_BEFORE_NAME; word++) {
        line += strcspn(line, " ");
        line += strspn(line, " ");
    }
    return line;
}

/* Fills *MAPPING, which held the line before, and returns whether it is a file's. A nameless range right behind a file's is what
 * that file needs beyond its contents (.bss); it keeps the file's name. */
static bool read_line(const char *line, bool file_before, struct os_mapping *mapping) {
    char *after;
    uintptr_t end_before = mapping->end;
    mapping->start = strtoull(line, &after, 16);
    mapping->end = strtoull(after + 1, NULL, 16);
    const char *name = name_in(line);
    if (name[0] == '\0' && file_before && mapping->start == end_before) return false;
    size_t length = strlen(name), most = sizeof mapping->name - 1;
    strcpy(mapping->name, length > most ? name + length - most : name);
    return name[0] == '/';
}

/* Opens the list of mappings, at whose first LINE it then is. Once the process's first thread has ended by pthread_exit, the process's
 * own list is empty, and that of any other thread is not. Emulators know the former alone. */
static bool open_list(struct os_lines *lines, char *line, size_t bytes) {
    static const char *const names[] = {"/proc/self/maps", "/proc/thread-self/maps"};
    if (os_has_own_filter()) return false;
    for (int i = 0; i < 2; i++) {
        if (!os_lines_open(lines, names[i])) continue;
        if (os_lines_next(lines, line, bytes)) return true;
        os_lines_close(lines);
    }
    return false;
}

bool os_find_mapping(const void *address, struct os_mapping *mapping) {
    struct os_lines lines;
    char line[LINE_BYTES];
    *mapping = (struct os_mapping){0};
    int saved = errno;
    bool found = false, file = false;
    if (open_list(&lines, line, sizeof line)) {
        do {
            file = read_line(line, file, mapping);
            found = (uintptr_t)address >= mapping->start && (uintptr_t)address < mapping->end;
        } while (!found && os_lines_next(&lines, line, sizeof line));
        os_lines_close(&lines);
    }
    errno = saved;
    return found;
}

uint64_t os_count_mappings(void) {
    struct os_lines lines;
    char beginning[2];
    uint64_t count = 0;
    int saved = errno;
    if (open_list(&lines, beginning, sizeof beginning)) {
        do count++;
        while (os_lines_next(&lines, beginning, sizeof beginning));
        os_lines_close(&lines);
    }
    errno = saved;
    return count;
}
