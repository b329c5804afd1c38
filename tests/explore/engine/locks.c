/* locks.c - the locks there are, who holds them, and in which order they are taken. */
#include "locks.h"

#include "memory.h"
#include "run.h"

#include <string.h>

enum { LOCKS = 64 };

static struct lock {
    uintptr_t address;
    uint64_t after; /* locks that were taken under it, or under one of those */
    unsigned takers;
} locks[LOCKS];
static unsigned count;
static uint64_t held[EXPLORE_THREADS], held_all[EXPLORE_THREADS]; /* without and with those that are steps */

#define CODE ((uintptr_t)__builtin_return_address(0))

static unsigned index_of(const volatile void *state) {
    unsigned i = 0;
    while (i < count && locks[i].address != (uintptr_t)state) i++;
    if (i == LOCKS) explore_fail("more than %d locks", LOCKS);
    if (i == count) locks[count++].address = (uintptr_t)state;
    return i;
}

static bool is_step(unsigned lock) { return run_is_shared(locks[lock].address, sizeof(uint32_t)); }

/* True if one of LOCKS was none before. */
static bool keep(uint64_t these) {
    bool news = false;
    for (unsigned i = 0; i < count; i++) {
        if (!(these >> i & 1) || is_step(i)) continue;
        run_share(locks[i].address, sizeof(uint32_t));
        news = true;
    }
    return news;
}

static uint64_t taken_by_several(void) {
    uint64_t these = 0;
    for (unsigned i = 0; i < count; i++)
        if ((locks[i].takers & (locks[i].takers - 1)) != 0) these |= (uint64_t)1 << i;
    return these;
}

bool locks_keep_all(void) { return keep(taken_by_several()); }

uint64_t locks_held(void) { return held[explore_self()]; }

void locks_blame(uint64_t others) {
    uint64_t common = others & locks_held(), either = (others | locks_held()) & taken_by_several();
    if (keep(common) || keep(either) || locks_keep_all()) run_cut();
}

void locks_keep_held(void) {
    if (keep(held_all[explore_self()])) run_cut();
}

void locks_forget(void) {
    memset(held, 0, sizeof held);
    memset(held_all, 0, sizeof held_all);
}

/* LOCK is taken under those that are held. */
static void note_order(unsigned lock) {
    for (unsigned i = 0; i < count; i++) {
        if (!(held_all[explore_self()] >> i & 1)) continue;
        uint64_t beyond = (uint64_t)1 << lock | locks[lock].after;
        if (beyond >> i & 1 && keep((uint64_t)1 << i | (uint64_t)1 << lock)) run_cut();
        for (unsigned j = 0; j < count; j++)
            if (j == i || locks[j].after >> i & 1) locks[j].after |= beyond;
    }
}

static unsigned note_take(const volatile void *state) {
    unsigned lock = index_of(state), self = explore_self();
    locks[lock].takers |= 1u << self;
    if (held_all[self] >> lock & 1) explore_fail("a thread takes a lock that it has");
    note_order(lock);
    return lock;
}

static void note_held(unsigned lock) {
    held_all[explore_self()] |= (uint64_t)1 << lock;
    if (!is_step(lock)) held[explore_self()] |= (uint64_t)1 << lock;
}

/* ---- what the code calls ---------------------------------------------------------------------------------------- */

static bool to_operand(uint64_t old, const struct change *change, uint64_t *new) {
    (void)old;
    *new = change->operand;
    return true;
}
static bool if_expected(uint64_t old, const struct change *change, uint64_t *new) {
    *new = change->operand;
    return old == change->expected;
}

static const struct change take = {
    .change = to_operand, .operand = 1, .order = memory_order_acquire, .awaits = AWAITS_EQUAL};
static const struct change attempt = {
    .change = if_expected, .operand = 1, .order = memory_order_acquire, .failure_order = memory_order_relaxed};

/* Alone, in a setup or a check. */
static bool take_alone(_Atomic uint32_t *state) {
    memory_touch(state, sizeof *state);
    return atomic_exchange(state, 1) == 0;
}

void explore_lock_take(_Atomic uint32_t *state) {
    if (!run_is_inside()) {
        if (!take_alone(state)) explore_fail("a lock stayed taken");
        return;
    }
    unsigned lock = note_take(state);
    if (is_step(lock)) run_exchange((uintptr_t)state, sizeof *state, &take, CODE);
    note_held(lock);
}

/* Whether it can be had is a matter of who else has it: always a step. */
bool explore_lock_try(_Atomic uint32_t *state) {
    if (!run_is_inside()) return take_alone(state);
    unsigned lock = note_take(state);
    if (keep((uint64_t)1 << lock)) run_cut();
    bool done = run_exchange((uintptr_t)state, sizeof *state, &attempt, CODE) == 0;
    if (done) note_held(lock);
    return done;
}

void explore_lock_drop(_Atomic uint32_t *state) {
    memory_touch(state, sizeof *state);
    if (!run_is_inside()) {
        atomic_store(state, 0);
        return;
    }
    unsigned lock = index_of(state);
    uint64_t bit = (uint64_t)1 << lock;
    if (is_step(lock)) run_store((uintptr_t)state, sizeof *state, memory_order_release, 0, CODE);
    held_all[explore_self()] &= ~bit;
    held[explore_self()] &= ~bit;
}
