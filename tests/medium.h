/* medium.h - what tests of medium blocks share: how many a thread keeps, and how it comes to keep them. */
#ifndef HAK_TESTS_MEDIUM_H
#define HAK_TESTS_MEDIUM_H

#include "blocks.h"
#include "child.h"
#include "threads.h"

#include "ace/decay.h"
#include "heap/alloc.h"
#include "heap/heap.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "span/span.h"

CHECK_UNUSED static const struct heap *own(void) { return thread_heap(); }

CHECK_UNUSED static size_t good_bytes(size_t bytes) { return slab_classes[size_class_of(bytes)].block_bytes; }

/* Of its pages, wherever in the first of them BLOCK begins. */
CHECK_UNUSED static size_t page_bytes_of(const void *block) { return heap_usable_bytes(block) + (uintptr_t)block % PAGE_BYTES; }

CHECK_UNUSED static size_t held_of(const struct heap *heap, size_t bytes) { return stack_held(heap, size_class_of(bytes)); }
CHECK_UNUSED static size_t kept_of(size_t bytes) { return held_of(own(), bytes); }

/* Medium blocks of all sizes together. */
CHECK_UNUSED static size_t kept_bytes(void) {
    size_t bytes = 0;
    for (unsigned class = SMALL_CLASSES; class < SIZE_CLASSES; class++)
        bytes += stack_held(own(), class) * slab_classes[class].block_bytes;
    return bytes;
}

CHECK_UNUSED static uint32_t word_of(const void *block) { return page_word(page_index(block)); }

/* COUNT blocks live at once. */
CHECK_UNUSED static void take_and_give(size_t bytes, size_t count) {
    void *blocks[64];
    CHECK(count <= 64);
    for (size_t i = 0; i < count; i++) CHECK((blocks[i] = heap_alloc(bytes, NULL)) != NULL);
    for (size_t i = 0; i < count; i++) heap_free(blocks[i], NULL);
}

/* Until blocks of BYTES bytes are kept, or not, as they will be. */
CHECK_UNUSED static void settle(size_t bytes, size_t count) {
    for (int i = 0; i < 100; i++) take_and_give(bytes, count);
}

CHECK_UNUSED static struct span_counts counts_now(void) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts;
}

/* What is said is tested elsewhere. */
CHECK_UNUSED static void be_quiet(void) {
    int quiet = open("/dev/null", O_WRONLY);
    CHECK(quiet >= 0 && dup2(quiet, STDERR_FILENO) >= 0);
}

#define CHECK_ABORTS(body)                                                                                   \
    do {                                                                                                     \
        int check_status = child_status(body, CHILD_SECONDS);                                                \
        CHECK(WIFSIGNALED(check_status) && WTERMSIG(check_status) == SIGABRT);                               \
    } while (0)

/* Pointers that were no blocks, from start_counting_foreign on. */
CHECK_UNUSED static size_t foreign;
CHECK_UNUSED static size_t count_foreign(void *block, enum heap_foreign_use use) {
    (void)block;
    (void)use;
    foreign++;
    return 0;
}
CHECK_UNUSED static void start_counting_foreign(void) {
    CHECK(heap_start(&(struct heap_options){.thread_cache_bytes = MIB(16), .decay = ACE_NEVER, .foreign = count_foreign}));
}

#endif
