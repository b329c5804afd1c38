/* model.c - start of the library, and what a program does with it. */
#include "model.h"

#include "ace/decay.h"
#include "heap/registry.h"
#include "span/span.h"
#include "watch/foreign.h"

enum { WINDOW_BYTES = 8 << 20 };

static size_t foreign(void *block, enum heap_foreign_use use) {
    explore_fail("%p is no block (use %d)", block, use);
}

uint64_t foreign_count(void) { return 0; }

static void start(uint64_t decay, bool purge_thread) {
    explore_thread_local(&thread_state, sizeof thread_state);
    explore_thread_local(&os_refusal, sizeof os_refusal);
    if (!window_start(WINDOW_BYTES)) explore_fail("no window");
    span_configure(&(struct span_settings){.decay_half_life_ms = decay, .huge_from_pages = UINT64_MAX});
    heap_start(&(struct heap_options){
        .thread_cache_bytes = HAK_MIB(1), .decay = decay, .purge_thread = purge_thread, .foreign = foreign});
}

void model_start(void) { start(ACE_NEVER, false); }
void model_start_with_purge_thread(void) { start(1000, true); }

void model_name_heap(struct heap *heap) {
    explore_name(&heap->inbox, "inbox");
    explore_name(&heap->lock.state, "lock");
    explore_name(&heap->state, "state");
    explore_name(&heap->undrained, "undrained");
    explore_name(&heap->next_undrained, "next_undrained");
    explore_name(&heap->front.buffer_top, "buffer_top");
    explore_name(&heap->buffer_bottom, "buffer_bottom");
    explore_name(&commons.inbox, "commons' inbox");
    explore_name(&commons.lock.state, "commons' lock");
    explore_name(&commons.state, "commons' state");
    explore_name(&commons.undrained, "commons' undrained");
    explore_name(&commons.next_undrained, "commons' next_undrained");
}

void model_name_slab(const void *block) {
    uint32_t first = slab_head(page_index(block));
    explore_name(&slab_remote_at(first)->queued, "queued");
    explore_name(&slab_remote_at(first)->inbox_next, "inbox_next");
    explore_name(&slab_remote_at(first)->inline_bits, "remote bits");
    explore_name(&slab_at(first)->owner, "owner");
    explore_name(&window.words[first], "word");
}

void model_without_heap(void) { thread_forgo_heap(); }

void *model_take(size_t bytes) {
    void *block;
    if (!front_pop(bytes, &block)) block = heap_alloc(bytes, NULL);
    EXPLORE_CHECK(block != NULL);
    *(void **)block = block;
    return block;
}

static void end_use_of(void *block) {
    EXPLORE_CHECK(*(void **)block == block);
    *(void **)block = NULL;
}

void model_give(void *block) {
    end_use_of(block);
    if (!front_push(block)) heap_free(block, NULL);
}

void model_give_home(void *block) {
    end_use_of(block);
    remote_give(NULL, &block, 1);
    remote_settle();
}
