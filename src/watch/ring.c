/* ring.c - the slots of a ring: how they are written and read. */
#include "watch/ring.h"

#include <string.h>

static struct ring_slot *slot_of(const struct ring *ring, uint64_t number) {
    return &ring->slots[(number - 1) % ring->slot_count];
}

static void keep(struct ring_slot *slot, const uint64_t *values, uint32_t count) {
    /* acquire, and release below: what the next writer stores comes after what this one did. */
    if (atomic_exchange_explicit(&slot->taken, 1, memory_order_acquire) != 0) return;
    if (counter_read(&slot->values[0]) < values[0]) {
        counter_set(&slot->values[0], 0);
        /* release, each: a reader that sees a new value finds no number, or the new one. */
        for (uint32_t i = 1; i < count; i++)
            atomic_store_explicit(&slot->values[i], values[i], memory_order_release);
        atomic_store_explicit(&slot->values[0], values[0], memory_order_release); /* pairs with ring_read */
    }
    atomic_store_explicit(&slot->taken, 0, memory_order_release);
}

uint64_t ring_add(const struct ring *ring, const void *record) {
    uint64_t values[RING_VALUES];
    memcpy(values, record, ring->value_count * sizeof values[0]);
    values[0] = atomic_fetch_add_explicit(ring->last_number, 1, memory_order_relaxed) + 1; /* each record has its own */
    keep(slot_of(ring, values[0]), values, ring->value_count);
    return values[0];
}

bool ring_read(const struct ring *ring, uint64_t number, void *record) {
    const struct ring_slot *slot = slot_of(ring, number);
    uint64_t values[RING_VALUES];
    const uint64_t before = atomic_load_explicit(&slot->values[0], memory_order_acquire); /* pairs with keep */
    /* acquire, each: these reads come before the second look at the number. */
    for (uint32_t i = 1; i < ring->value_count; i++)
        values[i] = atomic_load_explicit(&slot->values[i], memory_order_acquire);
    values[0] = counter_read(&slot->values[0]);
    memcpy(record, values, ring->value_count * sizeof values[0]);
    return before == number && values[0] == number;
}
