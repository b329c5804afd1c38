/* decisions.c - the ring of the last decisions, and the names of all kinds and reasons. */
#include "watch/decisions.h"

#include "heap/purger.h"

struct ring_slot decision_slots[DECISIONS_KEPT];
counter decision_counts[ACE_REASON_COUNT];

static counter last_number;
_Static_assert(sizeof(struct decision) <= RING_VALUES * sizeof(uint64_t), "a slot holds it");
static const struct ring ring = {decision_slots, &last_number, DECISIONS_KEPT,
                                 sizeof(struct decision) / sizeof(uint64_t)};

#define KIND(id, name, unit) {name, unit},
const struct decision_kind decision_kinds[ACE_KIND_COUNT] = {ACE_KINDS(KIND)};
#undef KIND
#define REASON(id, kind, name, ...) {name, ACE_KIND_##kind, {__VA_ARGS__}},
const struct decision_reason decision_reasons[ACE_REASON_COUNT] = {ACE_REASONS(REASON)};
#undef REASON

uint64_t decisions_made(void) { return counter_read(&last_number); }

bool decision_read(uint64_t number, struct decision *decision) { return ring_read(&ring, number, decision); }

/* If the kernel refuses its clock, the time is 0; so it is before the first look. */
static uint64_t since_start_ms(void) {
    const uint64_t start_ms = counter_read(&purger_start_ms);
    if (start_ms == 0) return 0;
    const uint64_t now_ms = os_clock_ms();
    return now_ms > start_ms ? now_ms - start_ms : 0;
}

HAK_COLD void decision_note(const struct ace_decision *made) {
    const struct decision decision = {
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
    ring_add(&ring, &decision);
    /* release: whoever acquires the count can read what was counted. */
    atomic_fetch_add_explicit(&decision_counts[made->reason], 1, memory_order_release);
}
