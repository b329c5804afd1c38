/* memory.c - copies of the pages that the setup wrote, and marks on those that an execution writes. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { REGIONS = 32, PAGE = 4096, LOCALS = 4, LOCAL_BYTES = 256 };

static struct region {
    uintptr_t start;
    size_t pages;
    char **copy;     /* of a page; NULL: it was all zero */
    uint8_t *touched;
} regions[REGIONS];
static unsigned region_count;

/* Pages written since memory_keep, or in the setup. */
static struct { struct region *region; size_t page; } *dirty;
static size_t dirty_count, dirty_room;

/* One variable after the other in an image. */
static struct {
    struct local_variable { char *start; size_t bytes; } variables[LOCALS];
    unsigned count;
    size_t bytes;
    int current; /* whose they are now; -1: the setup's */
    char images[1 + EXPLORE_THREADS][LOCAL_BYTES], kept[1 + EXPLORE_THREADS][LOCAL_BYTES];
} local = {.current = -1};

static struct { char *start, *copy; size_t bytes; } whole[4];
static unsigned whole_count;

static void *need(void *memory) {
    if (memory == NULL) abort();
    return memory;
}

void explore_memory(void *start, size_t bytes) {
    if (region_count == REGIONS) explore_fail("more than %d mappings", REGIONS);
    uintptr_t first = (uintptr_t)start / PAGE * PAGE, end = ((uintptr_t)start + bytes + PAGE - 1) / PAGE * PAGE;
    struct region *region = &regions[region_count++];
    region->start = first;
    region->pages = (end - first) / PAGE;
    region->copy = need(calloc(region->pages, sizeof *region->copy));
    region->touched = need(calloc(region->pages, 1));
}

static struct region *region_of(uintptr_t address) {
    for (unsigned i = 0; i < region_count; i++)
        if (address - regions[i].start < regions[i].pages * PAGE) return &regions[i];
    return NULL;
}

static void touch_page(struct region *region, size_t page) {
    if (region->touched[page]) return;
    region->touched[page] = 1;
    if (dirty_count == dirty_room) {
        dirty_room = dirty_room == 0 ? 256 : 2 * dirty_room;
        dirty = need(realloc(dirty, dirty_room * sizeof *dirty));
    }
    dirty[dirty_count].region = region;
    dirty[dirty_count++].page = page;
}

void memory_touch(const volatile void *start, size_t bytes) {
    struct region *region = region_of((uintptr_t)start);
    if (region == NULL || bytes == 0) return;
    size_t first = ((uintptr_t)start - region->start) / PAGE, last = ((uintptr_t)start + bytes - 1 - region->start) / PAGE;
    for (size_t page = first; page <= last; page++) touch_page(region, page);
}

void memory_restore_always(void *start, size_t bytes) {
    if (whole_count == sizeof whole / sizeof whole[0]) abort();
    whole[whole_count].start = start;
    whole[whole_count].bytes = bytes;
    whole[whole_count++].copy = need(malloc(bytes));
}

static void take_locals(char *image) {
    for (unsigned i = 0; i < local.count; image += local.variables[i++].bytes)
        memcpy(image, local.variables[i].start, local.variables[i].bytes);
}

static void put_locals(const char *image) {
    for (unsigned i = 0; i < local.count; image += local.variables[i++].bytes)
        memcpy(local.variables[i].start, image, local.variables[i].bytes);
}

void memory_keep(void) {
    for (unsigned i = 0; i < whole_count; i++) memcpy(whole[i].copy, whole[i].start, whole[i].bytes);
    for (size_t i = 0; i < dirty_count; i++) {
        struct region *region = dirty[i].region;
        char **copy = &region->copy[dirty[i].page];
        if (*copy == NULL) *copy = need(malloc(PAGE));
        memcpy(*copy, (void *)(region->start + dirty[i].page * PAGE), PAGE);
        region->touched[dirty[i].page] = 0;
    }
    dirty_count = 0;
    memory_switch(-1);
    take_locals(local.images[0]);
    memcpy(local.kept, local.images, sizeof local.kept);
}

/* Only what differs is written: the linker's tables are read-only by now. */
static void restore_whole(char *start, const char *copy, size_t bytes) {
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        size_t length = bytes - at < sizeof(uint64_t) ? bytes - at : sizeof(uint64_t);
        if (memcmp(start + at, copy + at, length) != 0) memcpy(start + at, copy + at, length);
    }
}

void memory_restore(void) {
    for (unsigned i = 0; i < whole_count; i++) restore_whole(whole[i].start, whole[i].copy, whole[i].bytes);
    for (size_t i = 0; i < dirty_count; i++) {
        struct region *region = dirty[i].region;
        void *page = (void *)(region->start + dirty[i].page * PAGE);
        const char *copy = region->copy[dirty[i].page];
        if (copy != NULL)
            memcpy(page, copy, PAGE);
        else
            memset(page, 0, PAGE);
        region->touched[dirty[i].page] = 0;
    }
    dirty_count = 0;
    memcpy(local.images, local.kept, sizeof local.kept);
    put_locals(local.images[0]);
    local.current = -1;
}

/* ---- thread-local variables -------------------------------------------------------------------------------- */

void explore_thread_local(void *start, size_t bytes) {
    if (local.count == LOCALS || local.bytes + bytes > LOCAL_BYTES)
        explore_fail("more than %d thread-local variables, or %d bytes of them", LOCALS, LOCAL_BYTES);
    for (int i = 0; i <= EXPLORE_THREADS; i++) memcpy(local.images[i] + local.bytes, start, bytes);
    local.variables[local.count++] = (struct local_variable){start, bytes};
    local.bytes += bytes;
}

void memory_switch(int thread) {
    if (thread == local.current || local.bytes == 0) return;
    take_locals(local.images[local.current + 1]);
    put_locals(local.images[thread + 1]);
    local.current = thread;
}

bool memory_is_thread_local(uintptr_t address) {
    for (unsigned i = 0; i < local.count; i++)
        if (address - (uintptr_t)local.variables[i].start < local.variables[i].bytes) return true;
    return false;
}

/* ---- words --------------------------------------------------------------------------------------------------- */

uint64_t memory_load(uintptr_t address, unsigned bytes) {
    uint64_t value = 0;
    memcpy(&value, (const void *)address, bytes); /* the low bytes come first */
    return value;
}

void memory_store(uintptr_t address, unsigned bytes, uint64_t value) {
    memory_touch((const void *)address, bytes);
    memcpy((void *)address, &value, bytes);
}
