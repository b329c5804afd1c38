/* group.c - the control group that the process is in: how much memory it may use, and whether memory is short. Reads files, of
 * cgroup versions 1 and 2; none at start.
 *
 * A program's own thread may come here from deep inside malloc, on a stack of a few KiB: what is large is static. One thread at a time. */
#include "os/os.h"

#include "base/bits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384, MOUNT_BYTES = 1024, PATH_BYTES = 4096, NAME_BYTES = MOUNT_BYTES + PATH_BYTES }; /* no path is longer: PATH_MAX */

static const char controller[] = "memory";

/* Where the controller's files lie. */
struct place {
    char mount[MOUNT_BYTES]; /* under the root that files are read from */
    char path[PATH_BYTES];   /* of the group, below it; "" or "/a/b" */
    bool unified;            /* version 2 */
};

/* A file's contents, and a file's name: valid until the next is read, or named. */
static char text[TEXT_BYTES], name[NAME_BYTES];

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

/* FD is open only for as long as this takes. Not by libc's fcntl: a library that wraps that may be what called malloc, and hold a lock. */
static void keep(struct kept *file, int fd) {
    struct stat now;
    if (!os_fstat(fd, &now)) return;
    *file = (struct kept){(int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, OS_KEPT_DESCRIPTOR_MIN), now.st_dev, now.st_ino};
}

/* Does not move the position of the program's file, should it have got this number just now. */
static bool read_kept(const struct kept *file) {
    const long length = is_ours(file) ? os_read_at(file->fd, text, sizeof text - 1, 0) : 0;
    text[length > 0 ? length : 0] = '\0';
    return length > 0;
}

/* Reads the file NAME, which stays open as *FILE; false, and it does not, when it cannot be read. */
static bool read_and_keep(struct kept *file) {
    const int fd = os_open(name, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return false;
    const long length = os_read_at(fd, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    if (length > 0) keep(file, fd);
    os_close(fd);
    return length > 0;
}

/* Sets NAME; false when it is too long. */
static bool set_name(const char *const parts[], size_t count) {
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t more = strlen(parts[i]);
        if (more >= sizeof name - length) return false;
        memcpy(name + length, parts[i], more + 1);
        length += more;
    }
    return true;
}

static bool read_at(const char *root, const char *folder, const char *file) {
    const char *const parts[] = {root, folder, file};
    return set_name(parts, 3) && os_read_file(name, text, sizeof text) > 0;
}

/* NAME is that of a group's file. */
static bool name_in(const char *root, const struct place *place, const char *file) {
    const char *const parts[] = {root, place->mount, place->path, "/", file};
    return set_name(parts, 5);
}

/* Ends LINE at the first of STOPS and returns what follows it. */
static char *cut(char *line, const char *stops) {
    char *end = line + strcspn(line, stops);
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
static bool find_path(struct place *place) {
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

/* A folder of a file system, and where it is mounted. */
struct mount {
    char *folder, *point;
};

/* Words of a line of mountinfo: 3 is the folder, 4 the mount point; after a lone hyphen come type, source and options. False if no group's
 * files are there. */
static bool read_mount(char *line, bool unified, struct mount *mount) {
    char *rest = line;
    for (int word = 0; word < 3; word++) rest = cut(rest, " ");
    mount->folder = rest;
    mount->point = cut(mount->folder, " ");
    rest = strstr(cut(mount->point, " "), "- ");
    if (rest == NULL) return false;
    char *type = rest + 2, *options = cut(cut(type, " "), " ");
    return unified ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && has_word(options, controller);
}

/* What follows FOLDER in the PATH of a group; NULL if the group is neither that folder nor in it. */
static const char *path_below(const char *folder, const char *path) {
    const size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
    if (strncmp(path, folder, length) != 0) return NULL;
    return path[length] == '/' || path[length] == '\0' ? path + length : NULL;
}

/* Of the mounts in TEXT the first that the group is below; where there is none, the first, with the path as it is. */
static bool find_mount(struct place *place) {
    bool found = false;
    for (char *line = text; *line != '\0';) {
        struct mount mount;
        char *next = cut(line, "\n");
        if (read_mount(line, place->unified, &mount) && strlen(mount.point) < sizeof place->mount) {
            const char *below = path_below(mount.folder, place->path);
            if (below != NULL || !found) strcpy(place->mount, mount.point);
            found = true;
            if (below != NULL) {
                memmove(place->path, below, strlen(below) + 1);
                return true;
            }
        }
        line = next;
    }
    return found;
}

static bool find_place_by(const char *root, const char *folder, struct place *place) {
    if (!read_at(root, folder, "/cgroup") || !find_path(place)) return false;
    if (!read_at(root, folder, "/mountinfo")) return false;
    /* Not found among the mounts that fit in TEXT: the usual place. */
    if (!find_mount(place)) strcpy(place->mount, place->unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    return true;
}

/* Once the process's first thread has ended by pthread_exit, its folder tells neither group nor mounts, and any other thread's does. */
static bool find_place(const char *root, struct place *place) {
    return find_place_by(root, "/proc/self", place) || find_place_by(root, "/proc/thread-self", place);
}

/* OS_UNLIMITED for "max". */
static uint64_t parse_number(const char *digits) { return digits[0] >= '0' && digits[0] <= '9' ? strtoull(digits, NULL, 10) : OS_UNLIMITED; }

/* The number in a file of a group; OS_UNLIMITED where there is none. */
static uint64_t read_number(const char *root, const struct place *place, const char *file) {
    return name_in(root, place, file) && os_read_file(name, text, sizeof text) > 0 ? parse_number(text) : OS_UNLIMITED;
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

/* The number behind LABEL at the start of a line of TEXT; 0 where there is none. */
static uint64_t number_after(const char *label) {
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, label, strlen(label)) == 0) return strtoull(line + strlen(label), NULL, 10);
    }
    return 0;
}

/* The part of a group's use that the kernel takes before it kills: the cache of files, without tmpfs, and of their names and inodes. Of
 * the latter version 1 says nothing. */
static uint64_t parse_files(bool unified) {
    return number_after(unified ? "inactive_file " : "total_inactive_file ") +
           number_after(unified ? "active_file " : "total_active_file ") +
           number_after("slab_reclaimable ");
}

static uint64_t read_files(const char *root, const struct place *place) {
    if (!name_in(root, place, "memory.stat") || os_read_file(name, text, sizeof text) <= 0) return 0;
    return parse_files(place->unified);
}

static const char *use_file(const struct place *place) { return place->unified ? "memory.current" : "memory.usage_in_bytes"; }

static void keep_use(const char *root, const struct place *place) {
    kept.unified = place->unified;
    if (name_in(root, place, use_file(place))) read_and_keep(&kept.used);
    if (name_in(root, place, "memory.stat")) read_and_keep(&kept.stat);
}

/* Of the group and those above it, the one that is nearest to its limit counts: its limits, and what is used of them. */
static void read_memory(const char *root, const struct place *lowest, struct os_group *group) {
    static struct place place, nearest_place;
    uint64_t least_left = OS_UNLIMITED;
    place = *lowest;
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
static uint64_t parse_stalls(void) {
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
    if (place->unified && name_in(root, place, "memory.pressure") && read_and_keep(&kept.stalls)) return parse_stalls();
    if (!name_in(root, &machine, "memory") || !read_and_keep(&kept.stalls)) return OS_UNLIMITED;
    return parse_stalls();
}

/* The group that it found; valid until the next. */
static const struct place *read_limits(const char *root, struct os_group *group) {
    static const struct place nowhere = {.unified = false};
    static struct place place;
    *group = (struct os_group){OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED, OS_UNLIMITED};
    drop(&kept.used);
    drop(&kept.stat);
    if (!find_place(root, &place)) return &nowhere;
    read_memory(root, &place, group);
    return &place;
}

void os_group_read(const char *root, struct os_group *group) {
    const int saved = errno;
    drop(&kept.stalls);
    const struct place *const place = read_limits(root, group);
    group->stalled = read_stalls(root, place);
    errno = saved;
}

void os_group_read_limits(const char *root, struct os_group *group) {
    const int saved = errno;
    read_limits(root, group);
    errno = saved;
}

void os_group_read_again(struct os_group *group) {
    const int saved = errno;
    group->memory_used_bytes = OS_UNLIMITED;
    const uint64_t used = read_kept(&kept.used) ? parse_number(text) : OS_UNLIMITED;
    if (used != OS_UNLIMITED && read_kept(&kept.stat))
        group->memory_used_bytes = used - min_size(used, parse_files(kept.unified));
    group->stalled = read_kept(&kept.stalls) ? parse_stalls() : OS_UNLIMITED;
    errno = saved;
}
