/* decided.c - reports decisions about what a heap keeps. */
#include "heap/heap.h"

HAK_COLD void decided_depth(struct heap *heap, unsigned class, enum ace_reason reason, uint32_t from, uint64_t input0,
                            uint64_t input1, uint64_t input2) {
    struct bin *bin = &heap->bins[class];
    const bool refused = bin->depth == from;
    if (refused && bin->refused) return;
    bin->refused = refused;
    heap_tell(&(struct ace_decision){
        .reason = reason,
        .class = class,
        .thread_id = counter_read(&heap->thread_id),
        .from = from,
        .to = bin->depth,
        .inputs = {input0, input1, input2},
    });
}

HAK_COLD void decided_kept(struct heap *heap, uint32_t from, uint64_t held_bytes, uint64_t touched_bytes) {
    heap_tell(&(struct ace_decision){
        .reason = heap->medium_times < from ? ACE_REASON_TOUCHED : ACE_REASON_HARDLY_TOUCHED,
        .thread_id = counter_read(&heap->thread_id),
        .from = from,
        .to = heap->medium_times,
        .inputs = {held_bytes, touched_bytes},
    });
}
