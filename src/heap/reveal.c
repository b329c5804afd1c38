/* reveal.c - finds memory that threads keep, before an allocation fails. Emptying the stacks of other threads sends
 * each of them to its slow paths: worth it for memory, but not each time that a program asks again for what a limit
 * refuses.
 *
 * So after a vain attempt other threads are left alone for VAIN_MS, unless less memory would be in use now than then,
 * not counting what lies in stacks: others freed since, or less is asked for. That is an estimate: slabs whose blocks
 * lie there may have others in use. What disturbs no other thread is done each time. */
#include "base/bits.h"
#include "heap/buffer.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "span/span.h"

/* ---- what is looked through ------------------------------------------------------------------------------ */

static bool is_any(const struct heap *heap) { return heap != NULL; }

/* Twice: slabs in an inbox that have another owner by now are passed on to its inbox. */
static void drain_all(void) {
    for (int pass = 0; pass < 2; pass++) {
        for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) remote_drain_unlocked(heap);
        remote_settle();
    }
}

void reveal_own(void) {
    struct heap *own = thread_heap();
    if (own != NULL) {
        os_lock_take(&own->lock);
        stack_empty_all(own);
        footprint_tell(&own->in_use_change); /* as in kept.c: before what the caller takes is added */
        buffer_give_all(own, NULL);
        os_lock_drop(&own->lock);
    }
    while (thread_reap_forsaken()) {}
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next)
        if (atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_DEAD) thread_retire_parked(heap); /* a hint */
    drain_all();
}

/* ---- whether others are asked -------------------------------------------------------------------------------- */

enum { VAIN_MS = 50 };

/* The last attempt that did not help, as far as is known yet: when, and how much would have been in use. relaxed,
 * all: at worst others are asked once too often, or not immediately. */
static struct {
    _Atomic uint64_t ms, bytes;
} vain = {.bytes = UINT64_MAX};

void reveal_helped(void) { atomic_store_explicit(&vain.bytes, UINT64_MAX, memory_order_relaxed); }

/* Bytes in use with BYTES more, not counting what stacks hold. */
static uint64_t in_use_with(size_t bytes) {
    const uint64_t used = span_in_use_bytes();
    return used + bytes - min_size(used, stack_hidden_bytes()); /* read while others write it */
}

/* Whether to ask other threads; records the attempt as vain until reveal_helped. */
static bool may_help(size_t bytes) {
    const uint64_t now_ms = os_clock_ms(), in_use = in_use_with(bytes);
    if (now_ms - atomic_load_explicit(&vain.ms, memory_order_relaxed) < VAIN_MS &&
        in_use >= atomic_load_explicit(&vain.bytes, memory_order_relaxed))
        return false;
    atomic_store_explicit(&vain.ms, now_ms, memory_order_relaxed);
    atomic_store_explicit(&vain.bytes, in_use, memory_order_relaxed);
    return true;
}

void reveal_others(size_t bytes) {
    stack_reclaim_lock(); /* another thread may be at it: what that finds may suffice here */
    if (may_help(bytes)) {
        stack_reclaim(is_any);
        for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) buffer_take_unlocked(heap);
        drain_all();
    }
    stack_reclaim_unlock();
}
