/* footprint.c - two numbers, each an estimate. A thread that frees and the purge thread that ends must not both miss
 * that there is memory to return: so the bytes in use, like the mark that the purge thread runs, are sequentially
 * consistent. */
#include "heap/footprint.h"

#include <stdatomic.h>

static _Atomic int64_t in_use, peak;

static int64_t get(const _Atomic int64_t *number) { return atomic_load_explicit(number, memory_order_seq_cst); }

/* relaxed: the peak is a hint. */
static void set(_Atomic int64_t *number, int64_t value) { atomic_store_explicit(number, value, memory_order_relaxed); }

void footprint_add(int64_t bytes) {
    int64_t now = atomic_fetch_add_explicit(&in_use, bytes, memory_order_seq_cst) + bytes;
    if (now > get(&peak)) set(&peak, now);
}

void footprint_tell(int64_t *change) {
    if (*change != 0) footprint_add(*change);
    *change = 0;
}

void footprint_returned(uint64_t bytes) {
    int64_t lower = get(&peak) - (int64_t)bytes, now = get(&in_use);
    set(&peak, lower > now ? lower : now);
}

void footprint_settled(uint64_t bytes) {
    int64_t now = get(&in_use);
    set(&peak, (int64_t)bytes > now ? (int64_t)bytes : now);
}

uint64_t footprint_in_use(void) { return get(&in_use) > 0 ? (uint64_t)get(&in_use) : 0; }

uint64_t footprint_returnable(void) {
    int64_t now = get(&in_use); /* first: a thread that freed had set the peak before */
    int64_t above = get(&peak) - now;
    return above > 0 ? (uint64_t)above : 0;
}
