/* map_limit.c - a process that has nearly as many mappings as the kernel allows: what grows keeps its contents.
 *
 * A block that grows is moved by its page tables. It may lie in several mappings that look alike and that the kernel does not join, since
 * they were touched under different advice. Of these Linux from 6.17 on moves one after the other, and fails halfway if the limit of
 * mappings is reached; before, it refuses.
 *
 * Planted defects it was seen to catch:
 *   several mappings are moved at once   what_grows_keeps_its_contents
 */
#include "child.h"
#include "work.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { PAGE = 4096, MOST_MAPPINGS = 70000 }; /* with more the test would take long */

static long number_in(const char *path) {
    char text[32] = "";
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atol(text) : -1;
}

static long mappings(void) {
    static char text[1 << 16];
    const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    long lines = 0;
    for (ssize_t length; (length = read(file, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
    close(file);
    return lines;
}

/* Every other page of it becomes a mapping of its own, and so does what is between them. */
static struct {
    char *start;
    long used;
} wall;

static void leave_mappings(long most) {
    for (long more; (more = most - mappings()) > 1;)
        for (long i = 0; i < (more + 1) / 2; i++) CHECK_EQ(mprotect(wall.start + PAGE * (2 * wall.used++ + 1), PAGE, PROT_READ), 0);
}

static long limit, left;

/* Memory with huge pages, and without, is there when the block begins to grow. */
static void take_and_free_buffers(void) {
    enum { BUFFERS = 600, BYTES = 256 * 1024 - 300 };
    static void *buffers[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) {
        CHECK((buffers[i] = malloc(BYTES)) != NULL);
        memset(buffers[i], 1, BYTES);
    }
    for (int i = 0; i < BUFFERS; i++) free(buffers[i]);
}

static void grow_at_the_limit(void) {
    wall.start = mmap(NULL, (size_t)PAGE * 2 * MOST_MAPPINGS, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(wall.start != MAP_FAILED);
    take_and_free_buffers();
    unsigned char *block = NULL;
    for (size_t held = 0, bytes = MIB(3); held < MIB(300); held = bytes, bytes += bytes / 2) {
        if (held > MIB(100)) leave_mappings(limit - left);
        unsigned char *grown = realloc(block, bytes);
        if (grown != NULL) block = grown;
        for (size_t at = 0; at < held; at++) CHECK_AT(block[at] == 2, at);
        if (grown == NULL) break; /* no mapping was left for it */
        memset(block + held, 2, bytes - held);
    }
    free(block);
}

TEST(what_grows_keeps_its_contents) {
    if ((limit = number_in("/proc/sys/vm/max_map_count")) < 0 || limit > MOST_MAPPINGS) OMIT("the limit is not known, or far");
    if (CHECK_SLOW || sysconf(_SC_PAGESIZE) != PAGE) OMIT("it would take long, or other pages are in use");
    for (left = 7; left <= 16; left += 3) IN_CHILD(grow_at_the_limit);
}
