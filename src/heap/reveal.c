/* reveal.c - whom it costs something that an allocation fails. What other threads hide lies in their stacks: to take it
 * sends each of them to its slow paths, where it finds nothing. That is worth it for memory; but a program that asks on and
 * on for what a limit refuses would keep the stacks of all threads empty.
 *
 * So what did not help is not done again for VAIN_MS, unless less would be in use by now than would have been then, without
 * what lies in stacks: others freed since, and be it into their stacks, or less is asked for. That is an estimate, since
 * slabs of the blocks that lie there may have others in use. What costs nobody else is looked through each time. */
#include "base/bits.h"
#include "heap/heap.h"
#include "span/span.h"

enum { VAIN_MS = 50 };

/* When it did not help, as far as is known yet, and how much would have been in use. relaxed, all: others are asked once too
 * often, or not at once. */
static struct {
    _Atomic uint64_t ms, bytes;
} vain = {.bytes = UINT64_MAX};

void reveal_helped(void) { atomic_store_explicit(&vain.bytes, UINT64_MAX, memory_order_relaxed); }

/* With BYTES more, and with nothing hidden. */
static uint64_t in_use_with(size_t bytes) {
    struct span_counts counts;
    span_counts_read(&counts);
    return counts.used_pages * PAGE_BYTES + bytes - stack_hidden_bytes();
}

/* Whether others are asked; remembers it as if in vain. */
static bool may_help(size_t bytes) {
    const uint64_t now_ms = os_clock_ms(), in_use = in_use_with(bytes);
    if (now_ms - atomic_load_explicit(&vain.ms, memory_order_relaxed) < VAIN_MS &&
        in_use >= atomic_load_explicit(&vain.bytes, memory_order_relaxed))
        return false;
    atomic_store_explicit(&vain.ms, now_ms, memory_order_relaxed);
    atomic_store_explicit(&vain.bytes, in_use, memory_order_relaxed);
    return true;
}

bool reveal_hidden(size_t bytes) {
    bool some = thread_reveal(false);
    if (may_help(bytes)) some |= thread_reveal(true);
    return some;
}
