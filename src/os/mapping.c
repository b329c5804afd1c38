/* mapping.c - what lies at an address, as /proc/self/maps has it. Reads a file: only for messages. */
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
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

/* Fills *MAPPING, which held the line before, and says whether it is a file's. A nameless range right behind a file's is what
 * that file asks for beyond its contents (.bss): it keeps the name. */
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

/* Reads lines from FD until one holds ADDRESS. The end of a line that is too long is passed over. */
static bool read_lines(int fd, uintptr_t address, struct os_mapping *mapping) {
    char line[LINE_BYTES], piece[LINE_BYTES];
    size_t length = 0;
    bool file = false;
    for (long got; (got = os_read(fd, piece, sizeof piece)) > 0;) {
        for (long i = 0; i < got; i++) {
            if (piece[i] != '\n') {
                if (length < sizeof line - 1) line[length++] = piece[i];
                continue;
            }
            line[length] = '\0';
            file = read_line(line, file, mapping);
            if (address >= mapping->start && address < mapping->end) return true;
            length = 0;
        }
    }
    return false;
}

bool os_find_mapping(const void *address, struct os_mapping *mapping) {
    *mapping = (struct os_mapping){0};
    int saved = errno, fd = os_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    bool found = fd >= 0 && read_lines(fd, (uintptr_t)address, mapping);
    if (fd >= 0) os_close(fd);
    errno = saved;
    return found;
}

uint64_t os_count_mappings(void) {
    char piece[LINE_BYTES];
    uint64_t lines = 0;
    int saved = errno, fd = os_open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    for (long got; fd >= 0 && (got = os_read(fd, piece, sizeof piece)) > 0;)
        for (long i = 0; i < got; i++) lines += piece[i] == '\n';
    if (fd >= 0) os_close(fd);
    errno = saved;
    return lines;
}
