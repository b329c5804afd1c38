/* stack_handlers_test.c - signal handlers that allocate and free while their thread works on the stack of the same class: each block is in
 * one place afterwards.
 *
 * Planted defects it was seen to catch:
 *   a stack that spills is open to handlers      what_a_handler_takes_from_a_spill, what_a_handler_frees_while_a_stack_is_emptied
 *   one that gets deeper is                      what_a_handler_takes_from_a_stack_that_gets_deeper, ..._frees_...
 *   one that is refilled is                      what_a_handler_frees_during_a_refill
 *   a refill forgets what came before it         what_a_handler_frees_before_a_refill
 *   a push is open to handlers                   what_a_handler_takes_from_a_push, what_a_handler_frees_during_a_push
 *   one of another heap's block is               what_a_handler_takes_where_another_heaps_block_is_kept
 */
#include "at_write.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "heap/enter.h"
#include "heap/thread.h"
#include "own_stacks.h"
#include "region/outside.h"
#include "threads.h"

enum { BYTES = 3000, BLOCKS = 64, SOME = 3 };

static struct heap *heap;
static struct bin *bin;
static unsigned class;
static void *blocks[BLOCKS]; /* in use */
static size_t in_use, handled;

static void take(void) {
    void *block = hak_malloc(BYTES);
    CHECK(block != NULL);
    blocks[in_use++] = block;
}

static void give(void) { hak_free(blocks[--in_use]); }

static void take_some(void) {
    handled++;
    for (int i = 0; i < SOME; i++) take();
}

static void give_some(void) {
    handled++;
    for (int i = 0; i < SOME; i++) give();
}

/* A stack of COUNT blocks that gets no deeper, and some in use. */
static void begin(size_t count) {
    hak_free(hak_malloc(BYTES));
    heap = thread_heap();
    class = size_class_of(BYTES);
    bin = &heap->bins[class];
    CHECK(bin->depth <= BLOCKS / 4 && count <= bin->depth);
    bin->most = bin->depth;
    use_much();
    heap_settings.thread_cache_bytes = GIB(1);
    while (in_use < 2 * bin->depth) take();
    while (stack_held(heap, class) > count) take();
    while (stack_held(heap, class) < count) give();
}

static void in_slow_path(void (*work)(void)) {
    CHECK(slow_enter());
    os_lock_take(&heap->lock);
    work();
    os_lock_drop(&heap->lock);
    slow_leave();
}

/* Blocks that are out of their slabs are in use or in the stack, each once; so are those that are given next. */
static void check_blocks(void) {
    CHECK_EQ(handled, 1);
    check_stack(heap, class);
    for (int round = 0; round < 2; round++) {
        size_t inside = 0;
        drain(heap);
        for (size_t i = 0; i < in_use; i++) {
            inside += outside_bytes(blocks[i]) == 0;
            for (size_t k = 0; k < i; k++) CHECK_AT(blocks[k] != blocks[i], i);
            for (void **place = bin->bottom; place < stack_top(heap, class); place++)
                CHECK_AT(*place != blocks[i], i);
        }
        CHECK_EQ(blocks_out(heap, class), inside + stack_held(heap, class));
        while (in_use < BLOCKS) take();
    }
    while (in_use != 0) give();
}

/* Where the bits of the oldest block in the stack are about to be set. */
static void interrupt_spill(void (*handler)(void)) {
    interrupt_at_write(slab_at(slab_head(page_index(*bin->bottom))), handler);
}

static void take_from_a_spill(void) {
    begin(0);
    while (stack_has_room(heap, class)) give();
    interrupt_spill(take_some);
    give();
    check_blocks();
}
TEST(what_a_handler_takes_from_a_spill) { IN_CHILD(take_from_a_spill); }

static void push_one(void) { CHECK(stack_push(heap, class, blocks[--in_use])); }

/* Where the slot is written that the block goes into: its page is not that of the heap. */
static void interrupt_push(void (*handler)(void)) {
    begin(SOME);
    CHECK((uintptr_t)stack_top(heap, class) / os_page_bytes() > (uintptr_t)(heap + 1) / os_page_bytes());
    interrupt_at_write(stack_top(heap, class), handler);
    in_slow_path(push_one);
    check_blocks();
}
static void take_from_a_push(void) { interrupt_push(take_some); }
static void free_during_a_push(void) { interrupt_push(give_some); }
TEST(what_a_handler_takes_from_a_push) { IN_CHILD(take_from_a_push); }
TEST(what_a_handler_frees_during_a_push) { IN_CHILD(free_during_a_push); }

static void *take_theirs(void *theirs) {
    *(void **)theirs = hak_malloc(BYTES);
    return NULL;
}

/* A block of another heap, where the stream is due for a check; it is the next then, and goes home. */
static void interrupt_keep(void (*handler)(void)) {
    void *theirs;
    begin(SOME);
    run_thread(take_theirs, &theirs);
    bin->streams = true;
    stack_set_keeping(heap, class, true);
    heap->front.stream_left[class] = 1;
    interrupt_at_write(stack_top(heap, class), handler);
    hak_free(theirs);
    take();
    CHECK(blocks[--in_use] == theirs);
    remote_give(NULL, &theirs, 1);
    check_blocks();
}
static void take_where_kept(void) { interrupt_keep(take_some); }
static void free_where_kept(void) { interrupt_keep(give_some); }
TEST(what_a_handler_takes_where_another_heaps_block_is_kept) { IN_CHILD(take_where_kept); }
TEST(what_a_handler_frees_where_another_heaps_block_is_kept) { IN_CHILD(free_where_kept); }

static void empty(void) { stack_empty(heap, class); }

static void free_while_emptied(void) {
    begin(SOME);
    interrupt_spill(give_some);
    in_slow_path(empty);
    CHECK_EQ(stack_held(heap, class), 0);
    check_blocks();
}
TEST(what_a_handler_frees_while_a_stack_is_emptied) { IN_CHILD(free_while_emptied); }

static void get_deeper(void) { adapt(heap, class, SWING, SWING); }

/* In the call by which the larger stack comes; so there must be none before. */
static void deepen_during(void (*handler)(void)) {
    begin(SOME);
    bin->most = 1 << 13;
    fail_arm(FAIL_ANY, 1, true, 0);
    while (books_take(1) != NULL) {
    }
    fail_disarm();
    while (handled == 0) {
        const uint32_t depth = bin->depth;
        fail_interrupt(1, handler);
        in_slow_path(get_deeper);
        CHECK(bin->depth > depth);
    }
    fail_interrupt(0, NULL);
    check_blocks();
}
static void take_while_deepened(void) { deepen_during(take_some); }
static void free_while_deepened(void) { deepen_during(give_some); }
TEST(what_a_handler_takes_from_a_stack_that_gets_deeper) { IN_CHILD(take_while_deepened); }
TEST(what_a_handler_frees_to_a_stack_that_gets_deeper) { IN_CHILD(free_while_deepened); }

/* Where the blocks are in the stack, but still free by the books of their slab. */
static void free_during_a_refill(void) {
    uint32_t fullest = 0;
    begin(0);
    for (int bucket = BUCKET_MORE; bucket > BUCKET_FULL; bucket--)
        if (bin->slabs[bucket] != 0) fullest = bin->slabs[bucket];
    CHECK(fullest != 0);
    interrupt_at_write(slab_at(fullest), give_some);
    take();
    check_blocks();
}
TEST(what_a_handler_frees_during_a_refill) { IN_CHILD(free_during_a_refill); }

/* A decision is told between the miss and the refill. */
static void give_before_a_refill(const struct ace_decision *decision) {
    if (decision->class == class && handled == 0) give_some();
}
static void free_before_a_refill(void) {
    begin(0);
    heap_settings.keeper = give_before_a_refill;
    bin->most = 1 << 13;
    bin->recent_refills = bin->recent_spills = SWING;
    bin->recent_refilled_blocks = bin->recent_spilled_blocks = SWING;
    take();
    CHECK_EQ(stack_held(heap, class), SOME - 1);
    check_blocks();
}
TEST(what_a_handler_frees_before_a_refill) { IN_CHILD(free_before_a_refill); }
