/* footprint.c - two numbers, each an estimate. A thread that frees and the purge thread that ends must not both miss
 * that there is memory to return: so the bytes in use, like the mark that the purge thread runs, are sequentially
 * consistent. */
#include "heap/footprint.h"

#include <stdatomic.h>
#include <stdbool.h>

static _Atomic int64_t in_use, peak;

static int64_t get(const _Atomic int64_t *number) { return atomic_load_explicit(number, memory_order_seq_cst); }

static int64_t higher_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* Replaces the peak by VALUE if it is *SEEN; otherwise stores in *SEEN what another thread made it. release, acquire: who lowers it
 * reads what is in use after that, and not less than it was raised for. */
static bool replace_peak(int64_t *seen, int64_t value) {
    return atomic_compare_exchange_weak_explicit(&peak, seen, value, memory_order_release, memory_order_acquire);
}

void footprint_add(int64_t bytes) {
    int64_t now = atomic_fetch_add_explicit(&in_use, bytes, memory_order_seq_cst) + bytes, seen = get(&peak);
    while (now > seen && !replace_peak(&seen, now)) {}
}

void footprint_tell(int64_t *change) {
    if (*change != 0) footprint_add(*change);
    *change = 0;
}

void footprint_returned(uint64_t bytes) {
    int64_t seen = get(&peak);
    while (!replace_peak(&seen, higher_of(seen - (int64_t)bytes, get(&in_use)))) {}
}

void footprint_settled(uint64_t bytes) {
    int64_t seen = get(&peak);
    while (!replace_peak(&seen, higher_of((int64_t)bytes, get(&in_use)))) {}
}

uint64_t footprint_in_use(void) { return get(&in_use) > 0 ? (uint64_t)get(&in_use) : 0; }

uint64_t footprint_returnable(void) {
    int64_t now = get(&in_use); /* first: a thread that freed had set the peak before */
    int64_t above = get(&peak) - now;
    return above > 0 ? (uint64_t)above : 0;
}
