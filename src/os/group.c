/* group.c - the control group that the process is in: how much memory it may use, and whether memory is short. Reads files, of
 * cgroup versions 1 and 2; none at start. */
#include "os/os.h"

#include "base/bits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TEXT_BYTES = 16384, STAT_BYTES = TEXT_BYTES / 2, STALLS_BYTES = 256, PATH_BYTES = 512, NAME_BYTES = 2 * PATH_BYTES };

static const char controller[] = "memory";

/* Where the controller's files lie. */
struct place {
    char mount[PATH_BYTES / 2]; /* under the root that files are read from */
    char path[PATH_BYTES / 2];  /* of the group, below it; "" or "/a/b" */
    bool unified;               /* version 2 */
};

/* A file that stays open from one full look to the next, under a high number: who opens files beside a program that knows of one
 * thread only takes numbers that it counts on, or closes what it has opened under one of them meanwhile. */
struct kept {
    int fd; /* 0 or -1: none */
    dev_t device;
    ino_t inode;
};

/* Of one thread at a time. A forked child has them, too. */
static struct {
    struct kept used, stat, stalls;
    bool unified; /* the group that the first two are of */
} kept;

/* The program may have closed it, and may have a file of its own under that number. */
static bool is_ours(const struct kept *file) {
    struct stat now;
    return file->fd > 0 && os_fstat(file->fd, &now) && now.st_dev == file->device && now.st_ino == file->inode;
}

static void drop(struct kept *file) {
    if (is_ours(file)) os_close(file->fd);
    file->fd = 0;
}

/* FD is open only for as long as this takes. */
static void keep(struct kept *file, int fd) {
    struct stat now;
    if (os_fstat(fd, &now)) *file = (struct kept){fcntl(fd, F_DUPFD_CLOEXEC, OS_KEPT_DESCRIPTOR_MIN), now.st_dev, now.st_ino};
}

/* Does not move the position of the program's file, should it have got this number just now. */
static bool read_kept(const struct kept *file, char *text, size_t bytes) {
    const long length = is_ours(file) ? os_read_at(file->fd, text, bytes - 1, 0) : 0;
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Reads a file, which stays open as *FILE; false, and it does not, when it cannot be read. */
static bool read_and_keep(struct kept *file, const char *name, char *text, size_t bytes) {
    const int fd = os_open(name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    const long length = os_read_at(fd, text, bytes - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    if (length > 0) keep(file, fd);
    os_close(fd);
    return length > 0;
}

static bool read_at(const char *root, const char *path, char *text, size_t bytes) {
    char name[NAME_BYTES];
    int length = snprintf(name, sizeof name, "%s%s", root, path);
    return length > 0 && (size_t)length < sizeof name && os_read_file(name, text, bytes) > 0;
}

/* The name of a group's file; false when it is too long. */
static bool name_in(char name[NAME_BYTES], const char *root, const struct place *place, const char *file) {
    int length = snprintf(name, NAME_BYTES, "%s%s%s/%s", root, place->mount, place->path, file);
    return length > 0 && length < NAME_BYTES;
}

/* Ends TEXT at the first of STOPS and returns what follows it. */
static char *cut(char *text, const char *stops) {
    char *end = text + strcspn(text, stops);
    char *rest = *end == '\0' ? end : end + 1;
    *end = '\0';
    return rest;
}

static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        bool begins = at == list || at[-1] == ',', ends = at[length] == '\0' || at[length] == ',';
        if (begins && ends) return true;
    }
    return false;
}

/* Lines of /proc/self/cgroup are number:controllers:path; of version 2 the number is 0 and there are no controllers. */
static bool find_path(char *text, struct place *place) {
    bool found = false;
    for (char *line = text; *line != '\0';) {
        char *next = cut(line, "\n"), *controllers = cut(line, ":"), *path = cut(controllers, ":");
        bool unified = controllers[0] == '\0', named = has_word(controllers, controller);
        if ((named || (unified && !found)) && strlen(path) < sizeof place->path) {
            strcpy(place->path, strcmp(path, "/") == 0 ? "" : path);
            place->unified = !named;
            found = true;
            if (named) return true;
        }
        line = next;
    }
    return found;
}

/* Words of a line of mountinfo: 3 is the folder of the file system that is mounted, 4 the mount point; after a lone hyphen come type,
 * source and options. A group's path begins with that folder, which is removed from it. */
static bool read_mount(char *line, struct place *place) {
    char *words[4], *rest = line;
    for (int word = 0; word < 3; word++) rest = cut(rest, " ");
    words[0] = rest;
    words[1] = cut(words[0], " ");
    rest = strstr(cut(words[1], " "), "- ");
    if (rest == NULL) return false;
    words[2] = rest + 2;
    words[3] = cut(cut(words[2], " "), " ");
    if (place->unified ? strcmp(words[2], "cgroup2") != 0
                       : strcmp(words[2], "cgroup") != 0 || !has_word(words[3], controller))
        return false;
    size_t root = strcmp(words[0], "/") == 0 ? 0 : strlen(words[0]);
    if (strncmp(place->path, words[0], root) == 0 && (place->path[root] == '/' || place->path[root] == '\0'))
        memmove(place->path, place->path + root, strlen(place->path + root) + 1);
    if (strlen(words[1]) >= sizeof place->mount) return false;
    strcpy(place->mount, words[1]);
    return true;
}

static bool find_place(const char *root, struct place *place) {
    char text[TEXT_BYTES];
    if (!read_at(root, "/proc/self/cgroup", text, sizeof text) || !find_path(text, place)) return false;
    if (!read_at(root, "/proc/self/mountinfo", text, sizeof text)) return false;
    for (char *line = text; *line != '\0';) {
        char *next = cut(line, "\n");
        if (read_mount(line, place)) return true;
        line = next;
    }
    /* Not found among the mounts that fit in TEXT: the usual place. */
    snprintf(place->mount, sizeof place->mount, "/sys/fs/cgroup%s%s", place->unified ? "" : "/", place->unified ? "" : controller);
    return true;
}

/* OS_UNLIMITED for "max". */
static uint64_t parse_number(const char *text) { return text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : OS_UNLIMITED; }

/* The number in a file of a group; OS_UNLIMITED where there is none. */
static uint64_t read_number(const char *root, const struct place *place, const char *file) {
    char name[NAME_BYTES], text[64];
    return name_in(name, root, place, file) && os_read_file(name, text, sizeof text) > 0 ? parse_number(text) : OS_UNLIMITED;
}

/* Version 1 says "no limit" by a number near 2^63. */
static uint64_t as_limit(uint64_t bytes) { return bytes >= (uint64_t)1 << 62 ? OS_UNLIMITED : bytes; }

/* The group one level up; false at the top. */
static bool ascend(struct place *place) {
    char *last = strrchr(place->path, '/');
    if (last == NULL) return false;
    *last = '\0';
    return true;
}

/* The number behind NAME at the start of a line; 0 where there is none. */
static uint64_t number_after(const char *text, const char *name) {
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, strlen(name)) == 0) return strtoull(line + strlen(name), NULL, 10);
    }
    return 0;
}

/* The part of a group's use that the kernel takes before it kills: the cache of files, without tmpfs, and of their names and inodes. Of
 * the latter version 1 says nothing. */
static uint64_t parse_files(const char *text, bool unified) {
    return number_after(text, unified ? "inactive_file " : "total_inactive_file ") +
           number_after(text, unified ? "active_file " : "total_active_file ") +
           number_after(text, "slab_reclaimable ");
}

static uint64_t read_files(const char *root, const struct place *place) {
    char name[NAME_BYTES], text[STAT_BYTES];
    if (!name_in(name, root, place, "memory.stat") || os_read_file(name, text, sizeof text) <= 0) return 0;
    return parse_files(text, place->unified);
}

static const char *use_file(const struct place *place) { return place->unified ? "memory.current" : "memory.usage_in_bytes"; }

static void keep_use(const char *root, const struct place *place) {
    char name[NAME_BYTES], text[STAT_BYTES];
    kept.unified = place->unified;
    if (name_in(name, root, place, use_file(place))) read_and_keep(&kept.used, name, text, sizeof text);
    if (name_in(name, root, place, "memory.stat")) read_and_keep(&kept.stat, name, text, sizeof text);
}

/* Of the group and those above it, the one that is nearest to its limit counts: its limits, and what is used of them. */
static void read_memory(const char *root, struct place place, struct os_group *group) {
    uint64_t least_left = OS_UNLIMITED;
    struct place nearest_place = place;
    do {
        const bool unified = place.unified;
        uint64_t limit = as_limit(read_number(root, &place, unified ? "memory.max" : "memory.limit_in_bytes"));
        uint64_t high = unified ? as_limit(read_number(root, &place, "memory.high")) : OS_UNLIMITED;
        const uint64_t nearest = min_size(limit, high);
        if (nearest == OS_UNLIMITED) continue;
        uint64_t used = read_number(root, &place, use_file(&place));
        if (used == OS_UNLIMITED) continue;
        /* Before groups are compared: one that is full of files has room. */
        used -= min_size(used, read_files(root, &place));
        const uint64_t left = nearest - min_size(used, nearest);
        if (left >= least_left) continue;
        least_left = left;
        nearest_place = place;
        group->memory_limit_bytes = limit;
        group->memory_high_bytes = high;
        group->memory_used_bytes = used;
    } while (ascend(&place));
    if (least_left != OS_UNLIMITED) keep_use(root, &nearest_place);
}

/* "some avg10=1.23 ..." in hundredths. */
static uint64_t parse_stalls(const char *text) {
    const char *at = strstr(text, "some avg10=");
    if (at == NULL) return OS_UNLIMITED;
    char *point;
    uint64_t whole = strtoull(at + strlen("some avg10="), &point, 10), hundredths = 0;
    for (int digit = 1; digit <= 2; digit++) {
        bool present = *point == '.' && point[digit] >= '0' && point[digit] <= '9';
        hundredths = hundredths * 10 + (present ? (uint64_t)(point[digit] - '0') : 0);
        if (!present) break;
    }
    return whole * 100 + hundredths;
}

static uint64_t read_stalls(const char *root, const struct place *place) {
    static const struct place machine = {.mount = "/proc/pressure"};
    char name[NAME_BYTES], text[STALLS_BYTES];
    if (place->unified && name_in(name, root, place, "memory.pressure") && read_and_keep(&kept.stalls, name, text, sizeof text))
        return parse_stalls(text);
    if (!name_in(name, root, &machine, "memory") || !read_and_keep(&kept.stalls, name, text, sizeof text)) return OS_UNLIMITED;
    return parse_stalls(text);
}

void os_group_read(const char *root, struct os_group *group) {
    const int saved = errno;
    static const struct place nowhere = {.unified = false};
    struct place place;
    *group = (struct os_group){OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED};
    drop(&kept.used);
    drop(&kept.stat);
    drop(&kept.stalls);
    const bool found = find_place(root, &place);
    if (found) read_memory(root, place, group);
    group->stalled = read_stalls(root, found ? &place : &nowhere);
    errno = saved;
}

void os_group_read_again(struct os_group *group) {
    const int saved = errno;
    char text[STAT_BYTES];
    group->memory_used_bytes = OS_UNLIMITED;
    const uint64_t used = read_kept(&kept.used, text, sizeof text) ? parse_number(text) : OS_UNLIMITED;
    if (used != OS_UNLIMITED && read_kept(&kept.stat, text, sizeof text))
        group->memory_used_bytes = used - min_size(used, parse_files(text, kept.unified));
    group->stalled = read_kept(&kept.stalls, text, sizeof text) ? parse_stalls(text) : OS_UNLIMITED;
    errno = saved;
}
