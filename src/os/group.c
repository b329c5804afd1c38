/* group.c - the control group that the process is in: how much memory and processor time it may use, and whether memory is
 * short. Reads files, of cgroup versions 1 and 2; none at start. */
#include "os/os.h"

#include "base/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 16384, PATH_BYTES = 512 };

/* Where a controller's files lie. */
struct place {
    char mount[PATH_BYTES / 2]; /* under the root that files are read from */
    char path[PATH_BYTES / 2];  /* of the group, below it; "" or "/a/b" */
    bool unified;               /* version 2 */
};

static bool read_at(const char *root, const char *path, char *text, size_t bytes) {
    char name[PATH_BYTES + PATH_BYTES];
    int length = snprintf(name, sizeof name, "%s%s", root, path);
    return length > 0 && (size_t)length < sizeof name && os_read_file(name, text, bytes) > 0;
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
static bool find_path(char *text, const char *controller, struct place *place) {
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
static bool read_mount(char *line, const char *controller, struct place *place) {
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

static bool find_place(const char *root, const char *controller, struct place *place) {
    char text[TEXT_BYTES];
    if (!read_at(root, "/proc/self/cgroup", text, sizeof text) || !find_path(text, controller, place)) return false;
    if (!read_at(root, "/proc/self/mountinfo", text, sizeof text)) return false;
    for (char *line = text; *line != '\0';) {
        char *next = cut(line, "\n");
        if (read_mount(line, controller, place)) return true;
        line = next;
    }
    /* Not found among the mounts that fit in TEXT: the usual place. */
    snprintf(place->mount, sizeof place->mount, "/sys/fs/cgroup%s%s", place->unified ? "" : "/", place->unified ? "" : controller);
    return true;
}

/* The number in file NAME of a group; OS_UNLIMITED for "max", or where there is none. */
static uint64_t read_number(const char *root, const struct place *place, const char *name) {
    char path[PATH_BYTES], text[64];
    int length = snprintf(path, sizeof path, "%s%s/%s", place->mount, place->path, name);
    if (length < 0 || (size_t)length >= sizeof path || !read_at(root, path, text, sizeof text)) return OS_UNLIMITED;
    return text[0] >= '0' && text[0] <= '9' ? strtoull(text, NULL, 10) : OS_UNLIMITED;
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
static uint64_t read_files(const char *root, const struct place *place) {
    const bool unified = place->unified;
    char path[PATH_BYTES], text[TEXT_BYTES / 2];
    int length = snprintf(path, sizeof path, "%s%s/memory.stat", place->mount, place->path);
    if (length < 0 || (size_t)length >= sizeof path || !read_at(root, path, text, sizeof text)) return 0;
    return number_after(text, unified ? "inactive_file " : "total_inactive_file ") +
           number_after(text, unified ? "active_file " : "total_active_file ") +
           number_after(text, "slab_reclaimable ");
}

/* Of the group and those above it, the one that is nearest to its limit counts: its limits, and what is used of them. */
static void read_memory(const char *root, struct place place, struct os_group *group) {
    uint64_t least_left = OS_UNLIMITED;
    do {
        const bool unified = place.unified;
        uint64_t limit = as_limit(read_number(root, &place, unified ? "memory.max" : "memory.limit_in_bytes"));
        uint64_t high = unified ? as_limit(read_number(root, &place, "memory.high")) : OS_UNLIMITED;
        uint64_t used = read_number(root, &place, unified ? "memory.current" : "memory.usage_in_bytes");
        const uint64_t nearest = min_size(limit, high);
        if (nearest == OS_UNLIMITED || used == OS_UNLIMITED) continue;
        /* Before groups are compared: one that is full of files has room. */
        used -= min_size(used, read_files(root, &place));
        const uint64_t left = nearest - min_size(used, nearest);
        if (left >= least_left) continue;
        least_left = left;
        group->memory_limit_bytes = limit;
        group->memory_high_bytes = high;
        group->memory_used_bytes = used;
    } while (ascend(&place));
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
    char path[PATH_BYTES], text[256];
    int length = snprintf(path, sizeof path, "%s%s/memory.pressure", place->mount, place->path);
    if (place->unified && length > 0 && (size_t)length < sizeof path && read_at(root, path, text, sizeof text))
        return parse_stalls(text);
    return read_at(root, "/proc/pressure/memory", text, sizeof text) ? parse_stalls(text) : OS_UNLIMITED;
}

/* In hundredths of a processor: "50000 100000" is 50. */
static uint64_t read_quota(const char *root, const struct place *place) {
    char path[PATH_BYTES], text[64], *rest;
    if (!place->unified) {
        uint64_t quota = read_number(root, place, "cpu.cfs_quota_us"), period = read_number(root, place, "cpu.cfs_period_us");
        return quota == OS_UNLIMITED || period == OS_UNLIMITED || period == 0 ? OS_UNLIMITED : quota * 100 / period;
    }
    int length = snprintf(path, sizeof path, "%s%s/cpu.max", place->mount, place->path);
    if (length < 0 || (size_t)length >= sizeof path || !read_at(root, path, text, sizeof text)) return OS_UNLIMITED;
    if (text[0] < '0' || text[0] > '9') return OS_UNLIMITED;
    uint64_t quota = strtoull(text, &rest, 10), period = strtoull(rest, NULL, 10);
    return period == 0 ? OS_UNLIMITED : quota * 100 / period;
}

void os_group_read(const char *root, struct os_group *group) {
    struct place place;
    *group = (struct os_group){OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED};
    if (find_place(root, "memory", &place)) {
        read_memory(root, place, group);
        group->stalled = read_stalls(root, &place);
    } else {
        struct place nowhere = {.unified = false};
        group->stalled = read_stalls(root, &nowhere);
    }
    if (!find_place(root, "cpu", &place)) return;
    do {
        uint64_t quota = read_quota(root, &place);
        if (quota < group->cpu_quota) group->cpu_quota = quota;
    } while (ascend(&place));
}
