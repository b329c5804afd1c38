/* buffer.c - blocks of other heaps, kept until there are enough to give back together.
 *
 * The buffer is a stack that its owner only pushes to, without the lock, like the stacks of the front. What lies between the
 * bottom and the top is whoever's who holds the heap's lock: he gives it back, and raises the bottom to the top that he saw.
 * The owner begins at the start again, under the lock, when it is full. So nobody else ever moves the top, the owner reads no
 * bottom, and neither has to know whether the other is at it. */
#include "heap/buffer.h"

#include "heap/footprint.h"

/* Copies what is in it; returns how many, and the top that was seen. */
static uint32_t read_all(struct heap *heap, void **blocks, void ***top) {
    void **bottom = atomic_load_explicit(&heap->buffer_bottom, memory_order_relaxed); /* under the lock */
    *top = atomic_load_explicit(&heap->front.buffer_top, memory_order_acquire);        /* pairs with buffer_push */
    for (void **at = bottom; at != *top; at++) *blocks++ = front_block(at);
    return (uint32_t)(*top - bottom);
}

/* relaxed, all: under the lock, and the top is moved by the owner, or there is none. */
static void begin_anew(struct heap *heap) {
    atomic_store_explicit(&heap->front.buffer_top, heap->buffer, memory_order_relaxed);
    atomic_store_explicit(&heap->front.buffer_bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&heap->buffer_bottom, heap->buffer, memory_order_relaxed);
    atomic_store_explicit(&heap->buffer_given_bytes, 0, memory_order_relaxed);
}

void buffer_begin(struct heap *heap, void **start) {
    heap->buffer = start;
    heap->front.buffer_end = start + REMOTE_BLOCKS - 1; /* the last one is given at once */
    begin_anew(heap);
}

void buffer_give_all(struct heap *heap, void *block) {
    void *blocks[REMOTE_BLOCKS], **top;
    uint32_t count = read_all(heap, blocks, &top);
    if (block != NULL) blocks[count++] = block;
    begin_anew(heap);
    footprint_add(-(int64_t)remote_give(heap, blocks, count));
}

void buffer_take(struct heap *heap) {
    void *blocks[REMOTE_BLOCKS], **top;
    const uint32_t count = read_all(heap, blocks, &top);
    if (count == 0) return;
    atomic_store_explicit(&heap->buffer_bottom, top, memory_order_relaxed); /* under the lock, like the next */
    const size_t bytes = remote_give(NULL, blocks, count);
    atomic_fetch_add_explicit(&heap->buffer_given_bytes, (uint32_t)bytes, memory_order_relaxed);
    footprint_add(-(int64_t)bytes);
}
