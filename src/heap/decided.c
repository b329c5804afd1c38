/* decided.c - tells what was decided about what a heap keeps. */
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

HAK_COLD void decided_spans(struct heap *heap, enum ace_reason reason, uint32_t pages, uint32_t from, uint32_t to, uint64_t input1,
                            uint64_t input2) {
    heap_tell(&(struct ace_decision){
        .reason = reason,
        .thread_id = counter_read(&heap->thread_id),
        .from = from,
        .to = to,
        .inputs = {pages, input1, input2},
    });
}
