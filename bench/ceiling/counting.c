/* counting.c - serves a workload once, before it is run without checks, and counts how many blocks of each class a thread holds
 * at a time. What the ceiling cannot serve ends here with a line that says why: a size beyond the small classes, a block that a
 * living thread allocated and another frees, more threads or memory than can be prepared.
 *
 * When the process ends, the file that CEILING_COUNT names gets a line: how many threads, and for each class the most
 * blocks that one of them held. Each thread has piles of its own, so nothing is locked. */
#include "counting.h"

#include "base/bits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT_VARIABLE "CEILING_COUNT"
#define PILE_BYTES HAK_MIB(512)
#define ADDRESS_BITS 48
#define NULLS_MAX 60000 /* what prepare.c has room for */

/* The blocks of one class of one thread. They are cut from the start on, so the number cut is the most that were in use at a time. */
struct pile {
    char *start;
    size_t cut; /* blocks */
    void **freed; /* linked through their first words */
};

static struct pile piles[THREADS_MAX][SMALL_CLASSES];
static _Thread_local unsigned own; /* the thread's number */
static _Atomic unsigned nulls;

struct window window; /* its words: 0, or one more than the pile's number */

void thread_begin(unsigned number) { own = number; }

/* The first allocation comes from the only thread. */
static void words_ensure(void) {
    if (HAK_LIKELY(window.words != NULL)) return;
    window.pages = (size_t)1 << (ADDRESS_BITS - PAGE_SHIFT);
    window.words = memory_map(window.pages * sizeof *window.words);
}

static void *pile_cut(struct pile *pile, unsigned class) {
    size_t bytes = class_bytes[class];
    if (pile->start == NULL)
        pile->start = (char *)round_up((uintptr_t)memory_map(PILE_BYTES + PAGE_BYTES), PAGE_BYTES);
    if ((pile->cut + 1) * bytes > PILE_BYTES)
        bare_fail("a thread holds more than %zu MiB of blocks of %zu bytes", PILE_BYTES >> 20, bytes);
    void *block = pile->start + pile->cut++ * bytes;
    page_word_set(page_index(block), own * SMALL_CLASSES + class + 1);
    return block;
}

unsigned block_class_for(size_t bytes) {
    if (bytes > SMALL_MAX_BYTES)
        bare_fail("asks for %zu bytes at once; blocks go up to %d", bytes, SMALL_MAX_BYTES);
    return size_class_of(bytes);
}

void *block_take(unsigned class) {
    words_ensure();
    struct pile *pile = &piles[own][class];
    void **block = pile->freed;
    if (block == NULL) return pile_cut(pile, class);
    pile->freed = *block;
    return block;
}

/* Number of the pile that a block was cut from. */
static unsigned pile_of(const void *block) {
    uint32_t word = window.words == NULL ? 0 : page_word(page_index(block));
    if (word == 0) bare_fail("frees or resizes what malloc never gave it");
    return word - 1;
}

void block_give(void *block) {
    if (block == NULL) {
        if (atomic_fetch_add_explicit(&nulls, 1, memory_order_relaxed) == NULLS_MAX) /* a count */
            bare_fail("frees NULL more than %d times", NULLS_MAX);
        return;
    }
    unsigned number = pile_of(block), owner = number / SMALL_CLASSES;
    if (owner != own && !thread_has_ended(owner)) bare_fail("a thread frees what another allocated");
    struct pile *pile = &piles[own][number % SMALL_CLASSES];
    *(void **)block = pile->freed;
    pile->freed = block;
}

size_t block_bytes(const void *block) { return class_bytes[pile_of(block) % SMALL_CLASSES]; }

static size_t most_held(unsigned class) {
    size_t most = 0;
    for (unsigned thread = 0; thread < threads_begun(); thread++) most = max_size(most, piles[thread][class].cut);
    return most;
}

static __attribute__((destructor)) void report(void) {
    const char *path = getenv(COUNT_VARIABLE);
    if (path == NULL) return;
    char text[(SMALL_CLASSES + 1) * 21];
    size_t length = (size_t)snprintf(text, sizeof text, "%u", threads_begun());
    for (unsigned class = 0; class < SMALL_CLASSES; class++)
        length += (size_t)snprintf(text + length, sizeof text - length, " %zu", most_held(class));
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0 || write(file, text, length) != (ssize_t)length) bare_fail("cannot write what was counted");
    close(file);
}
