/* foreign.c - pointers that hakmem never returned: what they look like, and what is done with them. */
#include "watch/foreign.h"

#include "heap/large.h"
#include "os/os.h"
#include "slab/slab.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static _Atomic enum foreign_policy policy;
static _Atomic bool told; /* the line about the first ignored pointer was printed */
_Atomic uint64_t foreign_seen;

/* relaxed: a setting by itself. */
void foreign_configure(enum foreign_policy chosen) { atomic_store_explicit(&policy, chosen, memory_order_relaxed); }

uint64_t foreign_count(void) { return atomic_load_explicit(&foreign_seen, memory_order_relaxed); } /* a statistic */

/* ---- what it looks like ---------------------------------------------------------------------------- */

struct inside {
    size_t offset, block; /* bytes; both 0: no block begins before the pointer and extends beyond it */
};

/* Of small blocks. */
static struct inside inside_slab(const char *pointer, size_t page, unsigned class) {
    const size_t block = slab_classes[class].block_bytes;
    return (struct inside){(size_t)(pointer - (const char *)page_address(slab_head(page))) % block, block};
}

/* In a medium block the offset counts from its page, since nothing tells where in that page the block begins. */
static struct inside find_inside(const char *pointer, size_t page) {
    size_t first = page;
    while (first > 0 && page_word(first) == WORD_NONE) first--;
    const uint32_t word = page_word(first);
    const unsigned class = word & WORD_CLASS_MASK;
    if (word != WORD_NONE && word != WORD_LARGE && !class_is_medium(class))
        return first == page ? inside_slab(pointer, page, class) : (struct inside){0};
    const char *start = word == WORD_LARGE ? large_start(first) : page_address(first);
    const size_t block = word == WORD_LARGE ? large_usable_bytes(first) : word != WORD_NONE ? slab_classes[class].block_bytes : 0;
    const size_t offset = (size_t)(pointer - start);
    return offset < block ? (struct inside){offset, block} : (struct inside){0};
}

static void describe_inside(const void *pointer, char *text, size_t bytes) {
    const size_t page = page_index(pointer);
    const struct inside inside = page < span_end_page() ? find_inside(pointer, page) : (struct inside){0};
    if (inside.offset != 0)
        snprintf(text, bytes, "it points %zu bytes into a block of %zu bytes", inside.offset, inside.block);
    else
        snprintf(text, bytes, "it lies in hakmem's memory where no block is: perhaps it was freed before");
}

/* The mapping that holds this function's variables. */
static bool is_own_stack(const struct os_mapping *mapping) {
    uintptr_t here = (uintptr_t)&mapping;
    return here >= mapping->start && here < mapping->end;
}

#define OTHER_MALLOC                                                                                          \
    "another malloc's block, of a library opened with RTLD_DEEPBIND perhaps: HAKMEM_FOREIGN_FREE=libc hands " \
    "it back to libc, ./hakmem run --no-deepbind keeps it from coming up"

#define OUTSIDE                                                                                            \
    "it lies outside of hakmem's memory; what is there is not looked up without /proc, nor under a seccomp " \
    "filter of the program's"

HAK_COLD void foreign_describe(const void *pointer, char *text, size_t bytes) {
    struct os_mapping mapping;
    if (window_holds(pointer))
        describe_inside(pointer, text, bytes);
    else if (!os_find_mapping(pointer, &mapping))
        snprintf(text, bytes, mapping.end == 0 ? OUTSIDE : "nothing is mapped there");
    else if (is_own_stack(&mapping))
        snprintf(text, bytes, "it lies on this thread's stack");
    else if (mapping.name[0] == '\0')
        snprintf(text, bytes, "it lies in memory that is not hakmem's: " OTHER_MALLOC);
    else if (strcmp(mapping.name, "[heap]") == 0)
        snprintf(text, bytes, "it lies in libc's own heap: " OTHER_MALLOC);
    else
        snprintf(text, bytes, "it lies in %s", mapping.name);
}

/* ---- what is done with it -------------------------------------------------------------------------- */

typedef void free_function(void *block);
typedef size_t usable_size_function(void *block);

/* Weak: a static program has no dynamic loader, and no other malloc either. */
#pragma weak dlsym

/* Of the malloc that the program would have without hakmem. */
static _Atomic(usable_size_function *) next_usable_size;
static _Atomic(free_function *) next_free;

static bool find_next(void) {
    if (atomic_load_explicit(&next_free, memory_order_acquire) != NULL) return true; /* and so is the other, see below */
    if (dlsym == NULL) return false;
    usable_size_function *usable = (usable_size_function *)dlsym(RTLD_NEXT, "malloc_usable_size");
    free_function *release = (free_function *)dlsym(RTLD_NEXT, "free");
    if (usable == NULL || release == NULL) return false;
    atomic_store_explicit(&next_usable_size, usable, memory_order_relaxed);
    atomic_store_explicit(&next_free, release, memory_order_release);
    return true;
}

void foreign_prepare(void) {
    const int saved = errno;
    if (atomic_load_explicit(&policy, memory_order_relaxed) == FOREIGN_LIBC) find_next();
    errno = saved;
}

/* Gives the block to the next malloc. False when there is none. */
static bool hand_on(void *block, enum heap_foreign_use use, size_t *size) {
    const int saved = errno; /* another's free need not leave it, but ours promises to */
    if (!find_next()) return false;
    if (use == HEAP_FOREIGN_SIZE)
        *size = atomic_load_explicit(&next_usable_size, memory_order_relaxed)(block);
    else
        atomic_load_explicit(&next_free, memory_order_relaxed)(block);
    errno = saved;
    return true;
}

HAK_COLD size_t foreign_handle(void *block, enum heap_foreign_use use) {
    /* realloc asks for the size first, perhaps twice; the pointer counts once. relaxed: a statistic. */
    if (use == HEAP_FOREIGN_FREE) atomic_fetch_add_explicit(&foreign_seen, 1, memory_order_relaxed);
    const enum foreign_policy now = atomic_load_explicit(&policy, memory_order_relaxed);
    size_t size = 0;
    if (now == FOREIGN_LIBC && !window_holds(block) && hand_on(block, use, &size))
        return size;
    if (now == FOREIGN_COUNT && atomic_exchange_explicit(&told, true, memory_order_relaxed)) return 0; /* one line in all */
    char looks[320];
    foreign_describe(block, looks, sizeof looks);
    if (now != FOREIGN_COUNT) os_panic("%p is not the start of a block of hakmem: %s", block, looks);
    os_message("%p is not the start of a block of hakmem: %s; ignored, and so are all that follow", block,
               looks);
    return 0;
}
