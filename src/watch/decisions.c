/* decisions.c - a ring of the last decisions.
 *
 * A writer takes its place for itself; who finds it taken was overtaken by all others, or is about to overtake one, and
 * keeps nothing: so no place is ever written by two. While it is written its number is 0, and readers look at the number
 * twice. A child that was forked in between does without this place. */
#include "watch/decisions.h"

#include "heap/purger.h"

struct decision_slot decision_ring[DECISIONS_KEPT];
counter decision_counts[ACE_REASON_COUNT];

static counter last_number;

#define KIND(id, name, unit) {name, unit},
const struct decision_kind decision_kinds[ACE_KIND_COUNT] = {ACE_KINDS(KIND)};
#undef KIND
#define REASON(id, kind, name, ...) {name, ACE_KIND_##kind, {__VA_ARGS__}},
const struct decision_reason decision_reasons[ACE_REASON_COUNT] = {ACE_REASONS(REASON)};
#undef REASON

static struct decision_slot *slot_of(uint64_t number) { return &decision_ring[(number - 1) % DECISIONS_KEPT]; }

static void keep(const struct decision *decision) {
    struct decision_slot *slot = slot_of(decision->number);
    /* acquire, and release below: the next writer's marks come after this one's. */
    if (atomic_exchange_explicit(&slot->taken, 1, memory_order_acquire) != 0) return;
    if (counter_read(&slot->number) < decision->number) {
        counter_set(&slot->number, 0);
        /* release, each: whoever sees something new finds no number, or the new one. */
#define KEEP(name, ...)                                                                                       \
    if (&slot->name != &slot->number) atomic_store_explicit(&slot->name, decision->name, memory_order_release);
        DECISION_FIELDS(KEEP)
#undef KEEP
        atomic_store_explicit(&slot->number, decision->number, memory_order_release); /* pairs with decision_read */
    }
    atomic_store_explicit(&slot->taken, 0, memory_order_release);
}

bool decision_read(uint64_t number, struct decision *decision) {
    const struct decision_slot *slot = slot_of(number);
    uint64_t before = atomic_load_explicit(&slot->number, memory_order_acquire); /* pairs with keep */
    /* acquire, each: what was read comes before the second look. */
#define READ(name, ...) decision->name = atomic_load_explicit(&slot->name, memory_order_acquire);
    DECISION_FIELDS(READ)
#undef READ
    decision->number = counter_read(&slot->number);
    return before == number && decision->number == number;
}

uint64_t decisions_made(void) { return counter_read(&last_number); }

/* A kernel that refuses its clock says 0. */
static uint64_t since_start_ms(void) {
    uint64_t now_ms = os_clock_ms(), start_ms = counter_read(&purger_start_ms);
    return now_ms > start_ms ? now_ms - start_ms : 0;
}

HAK_COLD void decision_note(const struct ace_decision *made) {
    const struct decision decision = {
        .number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1, /* each its own */
        .time_ms = since_start_ms(),
        .thread_id = made->thread_id,
        .reason = made->reason,
        .class = made->class,
        .from = made->from,
        .to = made->to,
        .input0 = made->inputs[0],
        .input1 = made->inputs[1],
        .input2 = made->inputs[2],
    };
    atomic_fetch_add_explicit(&decision_counts[made->reason], 1, memory_order_relaxed); /* a statistic */
    keep(&decision);
}
