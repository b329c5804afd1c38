/* footprint.h - what a process costs: resident bytes, mappings, threads; and tables of random blocks.
 *
 * Everything here asks the kernel by open and read into the stack and keeps its tables in mappings of
 * its own, populated before the first measurement: the test itself never moves what it measures.
 */
#ifndef HAK_TESTS_FOOTPRINT_H
#define HAK_TESTS_FOOTPRINT_H

#include "preload/served.h" /* first: it says _GNU_SOURCE */

#include "blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

/* The first is absent from other allocators and from hakmem without it, the second from musl. */
extern size_t hak_collect(void) __attribute__((weak));
extern int malloc_trim(size_t pad) __attribute__((weak));

#define IDLE_MILLISECONDS 10000 /* by then an idle process has given back what it does not need */
#define LATE_MILLISECONDS 5000  /* later, at most, where the machine is busy: the last part is purged half a second before */
#define PURGE_THREAD "hakmem-purge"

/* Time. */

static inline uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline void sleep_ms(uint64_t milliseconds) {
    struct timespec rest = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000};
    while (nanosleep(&rest, &rest) < 0 && errno == EINTR) continue;
}

/* The files of /proc. */

/* Reads as much as fits and ends it with a zero byte; the length, 0 where it cannot be read. */
static inline size_t read_text(const char *path, char *text, size_t room) {
    size_t length = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        ssize_t more;
        while (length < room - 1 && (more = read(file, text + length, room - 1 - length)) > 0)
            length += (size_t)more;
        close(file);
    }
    text[length] = '\0';
    return length;
}

/* The number behind "\nNAME:"; false where there is none. */
static inline bool number_of(const char *path, const char *name, int base, uint64_t *number) {
    char text[8192];
    read_text(path, text, sizeof text);
    for (const char *line = text; (line = strchr(line, '\n')) != NULL;) {
        line++;
        if (strncmp(line, name, strlen(name)) != 0 || line[strlen(name)] != ':') continue;
        *number = strtoull(line + strlen(name) + 1, NULL, base);
        return true;
    }
    return false;
}

/* Exact, where statm lags behind by the counters of every processor. */
static inline size_t rss_bytes(void) {
    uint64_t kib;
    return number_of("/proc/self/smaps_rollup", "Rss", 10, &kib) ? KIB(kib) : resident_bytes();
}

/* The most that was ever resident. */
static inline size_t peak_bytes(void) {
    uint64_t kib = 0;
    CHECK(number_of("/proc/self/status", "VmHWM", 10, &kib));
    return KIB(kib);
}

static inline size_t count_mappings(void) {
    char text[8192];
    size_t lines = 0;
    ssize_t length;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    while ((length = read(file, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
    close(file);
    return lines;
}

struct threads {
    size_t count;
    int purger; /* the thread that is named PURGE_THREAD, or 0 */
};

/* opendir would allocate. */
static inline struct threads look_at_threads(void) {
    struct entry {
        uint64_t inode;
        int64_t offset;
        unsigned short length;
        unsigned char type;
        char name[];
    };
    union {
        char bytes[4096];
        uint64_t aligned;
    } buffer;
    struct threads seen = {0, 0};
    long length;
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(folder >= 0);
    while ((length = syscall(SYS_getdents64, folder, buffer.bytes, sizeof buffer.bytes)) > 0) {
        for (long at = 0; at < length;) {
            const struct entry *entry = (const struct entry *)(const void *)(buffer.bytes + at);
            char path[64], name[32];
            at += entry->length;
            if (entry->name[0] == '.') continue;
            seen.count++;
            snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", entry->name);
            read_text(path, name, sizeof name);
            if (strcmp(name, PURGE_THREAD "\n") == 0) seen.purger = atoi(entry->name);
        }
    }
    close(folder);
    return seen;
}

static inline int purge_thread(void) { return look_at_threads().purger; }

/* Looks until the purge thread is there (or gone) for at most so long. */
static inline bool wait_for_purge_thread(bool there, uint64_t milliseconds) {
    for (uint64_t end = now_ms() + milliseconds;;) {
        if ((purge_thread() != 0) == there) return true;
        if (now_ms() > end) return false;
        sleep_ms(2);
    }
}

/* Waits until no more than so much is resident, for at most so long; what is then. */
static inline size_t wait_for_rss(size_t bytes, uint64_t milliseconds) {
    for (uint64_t end = now_ms() + milliseconds;;) {
        size_t rss = rss_bytes();
        if (rss <= bytes || now_ms() > end) return rss;
        sleep_ms(50);
    }
}

/* Memory of the test itself: resident from the start, in small pages, so that measurements before and
 * after contain the same of it. */
static inline void *map_populated(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < bytes; at += 4096) ((volatile char *)memory)[at] = 1;
    memset(memory, 0, bytes);
    return memory;
}

/* Sizes between two bounds, each power of two as likely as the next. */
static inline size_t rng_log(struct rng *rng, size_t least, size_t most) {
    size_t steps = 0, low;
    while (least << (steps + 1) <= most) steps++;
    low = least << rng_below(rng, steps + 1);
    size_t high = 2 * low > most ? most : 2 * low;
    return low + rng_below(rng, high - low + 1);
}

/* Random blocks, each filled to its last byte. */

#define TABLE_LEAST 100
#define TABLE_MOST KIB(64)

struct extent {
    uintptr_t from, to;
};

struct table {
    size_t count, room, bytes; /* bytes: of the table itself */
    uint64_t seed;
    struct table_entry {
        void *block; /* NULL once freed */
        uint32_t size, order;
    } * entries;
    struct extent *extents;
};

static inline struct table table_map(size_t room, uint64_t seed) {
    struct table table = {.room = room, .seed = seed};
    table.bytes = room * (sizeof *table.entries + sizeof *table.extents);
    table.entries = map_populated(table.bytes);
    table.extents = (struct extent *)(table.entries + room);
    return table;
}

/* Room for so many bytes of blocks, of either kind of sizes. */
static inline size_t table_room(size_t bytes) { return bytes / KIB(6) + 1000; }

static inline void table_allocate(struct table *table, size_t bytes, struct rng *rng, bool logarithmic) {
    for (size_t held = 0; held < bytes;) {
        size_t size = logarithmic ? rng_log(rng, TABLE_LEAST, TABLE_MOST)
                                  : TABLE_LEAST + rng_below(rng, TABLE_MOST - TABLE_LEAST + 1);
        struct table_entry *entry = &table->entries[table->count];
        CHECK(table->count < table->room);
        entry->block = malloc(size);
        CHECK(entry->block != NULL);
        entry->size = (uint32_t)size;
        entry->order = (uint32_t)table->count++;
        block_fill(entry->block, size, block_key(entry->block, table->seed));
        held += size;
    }
}

static inline void table_shuffle(struct table *table, struct rng *rng) {
    for (size_t i = table->count; i > 1; i--) {
        size_t other = rng_below(rng, i);
        uint32_t swap = table->entries[i - 1].order;
        table->entries[i - 1].order = table->entries[other].order;
        table->entries[other].order = swap;
    }
}

/* Frees in shuffled order, and verifies before; the last ones of the order stay. */
static inline void table_free_all_but(struct table *table, size_t kept) {
    for (size_t i = 0; i + kept < table->count; i++) {
        struct table_entry *entry = &table->entries[table->entries[i].order];
        if (entry->block == NULL) continue;
        CHECK_AT(block_holds(entry->block, entry->size, block_key(entry->block, table->seed)), i);
        free(entry->block);
        entry->block = NULL;
    }
}

static inline void table_verify(const struct table *table) {
    for (size_t i = 0; i < table->count; i++) {
        const struct table_entry *entry = &table->entries[i];
        if (entry->block == NULL) continue;
        CHECK_AT(block_holds(entry->block, entry->size, block_key(entry->block, table->seed)), i);
    }
}

static inline void sort_extents(struct extent *extents, size_t count) {
    for (size_t gap = count / 2; gap > 0; gap /= 2) {
        for (size_t i = gap; i < count; i++) {
            struct extent moving = extents[i];
            size_t at = i;
            for (; at >= gap && extents[at - gap].from > moving.from; at -= gap)
                extents[at] = extents[at - gap];
            extents[at] = moving;
        }
    }
}

/* Bytes of the distinct pages of the kernel that the live blocks touch. */
static inline size_t table_live_bytes(struct table *table) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), reached = 0;
    size_t live = 0, pages = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct table_entry *entry = &table->entries[i];
        if (entry->block == NULL) continue;
        uintptr_t from = (uintptr_t)entry->block;
        table->extents[live++] = (struct extent){from / page, (from + entry->size - 1) / page + 1};
    }
    sort_extents(table->extents, live);
    for (size_t i = 0; i < live; i++) {
        uintptr_t from = table->extents[i].from, to = table->extents[i].to;
        if (from < reached) from = reached;
        if (to <= from) continue;
        pages += to - from;
        reached = to;
    }
    return pages * page;
}

/* Makes memory dirty and free: blocks of one size, filled, then all freed. */
static inline void dirty_and_free(size_t bytes, size_t size) {
    size_t count = bytes / size;
    void **first = NULL, **block;
    for (size_t i = 0; i < count; i++) {
        CHECK((block = malloc(size)) != NULL);
        memset(block, 0x5a, size);
        *block = first;
        first = block;
    }
    while ((block = first) != NULL) {
        first = *block;
        free(block);
    }
}

#endif
