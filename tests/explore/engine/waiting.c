/* waiting.c - threads that wait for a value, and the kernel's barrier: the one who asks for it waits until every other thread was
 * interrupted between two of its steps, or has ended. */
#include "fibre.h"
#include "locks.h"

#define CODE ((uintptr_t)__builtin_return_address(0))


static void await(_Atomic uint32_t *word, enum awaits awaits, uint32_t wanted, uintptr_t code) {
    struct change wait = {.change = run_never, .failure_order = memory_order_acquire, .awaits = awaits, .wanted = wanted};
    shared_location_of((uintptr_t)word, 4);
    run_exchange((uintptr_t)word, 4, &wait, code);
}

void explore_await(_Atomic uint32_t *word, uint32_t wanted) { await(word, AWAITS_EQUAL, wanted, CODE); }
void explore_await_at_least(_Atomic uint32_t *word, uint32_t wanted) { await(word, AWAITS_AT_LEAST, wanted, CODE); }

/* The number of the last barrier, and the last that each thread passed, or came to its end before. A page of its own, since
 * pages are what is restored. */
static struct {
    _Alignas(4096) _Atomic uint32_t wanted;
    _Atomic uint32_t passed[THREADS];
} barrier;

void barrier_poll(void) {
    struct fibre *self = &fibres[now.current];
    if (!now.barriers_used || self->in_barrier) return;
    self->in_barrier = true;
    uint32_t wanted = (uint32_t)run_load((uintptr_t)&barrier.wanted, 4, memory_order_acquire, 0);
    if (wanted > self->acknowledged) {
        self->acknowledged = wanted;
        run_fence(memory_order_seq_cst, 0);
        run_store((uintptr_t)&barrier.passed[now.current], 4, memory_order_release, wanted, 0);
    }
    self->in_barrier = false;
}

void barrier_end(void) {
    if (!now.barriers_used) return;
    fibres[now.current].in_barrier = true;
    run_store((uintptr_t)&barrier.passed[now.current], 4, memory_order_release, UINT32_MAX, 0);
}

void explore_barrier_others(void) {
    struct fibre *self = &fibres[now.current];
    if (!now.barriers_used) {
        now.barriers_used = now.anew = true;
        run_cut();
    }
    locks_keep_held();
    self->in_barrier = true;
    run_fence(memory_order_seq_cst, CODE);
    uint32_t number = self->acknowledged = ++now.barriers;
    run_store((uintptr_t)&barrier.wanted, 4, memory_order_release, number, CODE);
    for (unsigned t = 0; t < now.threads; t++)
        if ((int)t != now.current) await(&barrier.passed[t], AWAITS_AT_LEAST, number, CODE);
    run_fence(memory_order_seq_cst, CODE);
    self->in_barrier = false;
}

bool barrier_awaits_waiting(uintptr_t address) {
    const unsigned other = (unsigned)((address - (uintptr_t)barrier.passed) / sizeof barrier.passed[0]);
    return other < now.threads && fibres[other].state == WAITS && !fibres[other].in_barrier;
}

void barrier_begin(void) { explore_memory(&barrier, sizeof barrier); }
