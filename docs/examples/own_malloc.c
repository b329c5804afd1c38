/* A program that brings its own malloc: it cuts blocks from mappings, and never takes one back. */

#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROOM_BYTES = 16 << 20, BLOCKS = 100000, BYTES = 500, SECONDS = 30 };

static char *room;
static size_t room_left;

void *malloc(size_t bytes) {
    size_t size = (bytes + sizeof(size_t) + 15) & ~(size_t)15;
    if (size > ROOM_BYTES) return NULL;
    if (size > room_left) {
        void *more = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED) return NULL;
        room = more, room_left = ROOM_BYTES;
    }
    char *block = room + sizeof(size_t);
    memcpy(room, &bytes, sizeof bytes);
    room += size, room_left -= size;
    return block;
}

void free(void *block) { (void)block; }

void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

void *realloc(void *block, size_t bytes) {
    char *moved = malloc(bytes);
    size_t old = 0;
    if (moved == NULL || block == NULL) return moved;
    memcpy(&old, (char *)block - sizeof old, sizeof old);
    return memcpy(moved, block, old < bytes ? old : bytes);
}

int main(void) {
    for (int i = 0; i < BLOCKS; i++) {
        char *block = malloc(BYTES);
        if (block == NULL) return 1;
        memset(block, 1, BYTES);
    }
    sleep(SECONDS);
    return 0;
}
