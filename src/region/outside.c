/* outside.c - a hash table of mappings, in parts that are never freed. A slot is 0 (never used: searches end here),
 * EMPTIED, CLAIMED (being filled or emptied by one thread), or the address of a block. A slot that was used is never
 * 0 again, so a part that was full once would be searched from end to end for ever: therefore a block lies in one of
 * the first REACH slots from where its search starts, or in a later part. */
#include "region/outside.h"

#include "base/bits.h"
#include "os/os.h"

#define CLAIMED ((uintptr_t)1)
#define EMPTIED ((uintptr_t)OUTSIDE_NO_BLOCK)

enum { REACH = OUTSIDE_FIRST_SLOTS }; /* all of the first part */

struct outside_slot outside_first_slots[OUTSIDE_FIRST_SLOTS];
struct outside_table outside_first = {.slots = OUTSIDE_FIRST_SLOTS, .slot = outside_first_slots};

struct outside_totals outside_totals;

/* Counts BLOCKS more, or fewer, of BYTES bytes. Any thread writes the totals, so counter_add would lose updates;
 * relaxed, like all counters. */
static void count(int blocks, size_t bytes) {
    atomic_fetch_add_explicit(&outside_totals.blocks, (uint64_t)blocks, memory_order_relaxed);
    atomic_fetch_add_explicit(&outside_totals.bytes, (uint64_t)blocks * bytes, memory_order_relaxed);
}

/* The table after TABLE, made if there is none; NULL if the kernel refuses. */
static struct outside_table *next_table(struct outside_table *table) {
    /* acquire: pairs with the release below, so that the table's length is seen. */
    struct outside_table *next = atomic_load_explicit(&table->next, memory_order_acquire);
    if (next != NULL) return next;
    size_t bytes = sizeof(struct outside_table) + OUTSIDE_LATER_SLOTS * sizeof(struct outside_slot);
    bytes = round_up(bytes, os_page_bytes());
    struct outside_table *fresh = os_map(bytes, os_page_bytes());
    if (fresh == NULL) return NULL;
    fresh->slots = OUTSIDE_LATER_SLOTS;
    fresh->slot = (struct outside_slot *)(fresh + 1);
    if (atomic_compare_exchange_strong_explicit(&table->next, &next, fresh, memory_order_acq_rel,
                                                memory_order_acquire))
        return fresh;
    os_unmap(fresh, bytes);
    return next;
}

static size_t start_slot(const struct outside_table *table, uintptr_t address) {
    return (size_t)((address >> 12) * 0x9e3779b97f4a7c15u >> 32) % table->slots;
}

static bool remember(uintptr_t address, size_t bytes) {
    for (struct outside_table *table = &outside_first; table != NULL; table = next_table(table)) {
        size_t start = start_slot(table, address);
        for (size_t i = 0; i < REACH; i++) {
            struct outside_slot *slot = &table->slot[(start + i) % table->slots];
            uintptr_t empty = atomic_load_explicit(&slot->address, memory_order_relaxed); /* checked below */
            if (empty != 0 && empty != EMPTIED) continue;
            /* acquire: the last user's read of bytes came before it emptied the slot. */
            if (!atomic_compare_exchange_strong_explicit(&slot->address, &empty, CLAIMED, memory_order_acquire,
                                                         memory_order_relaxed))
                continue;
            slot->bytes = bytes;
            /* release: a thread that sees the address sees the size. */
            atomic_store_explicit(&slot->address, address, memory_order_release);
            return true;
        }
    }
    return false;
}

static struct outside_slot *find(uintptr_t address) {
    if (address <= EMPTIED) return NULL;
    for (struct outside_table *table = &outside_first; table != NULL;
         table = atomic_load_explicit(&table->next, memory_order_acquire)) { /* as in next_table */
        size_t start = start_slot(table, address);
        for (size_t i = 0; i < REACH; i++) {
            struct outside_slot *slot = &table->slot[(start + i) % table->slots];
            /* acquire: pairs with the release in remember. */
            uintptr_t found = atomic_load_explicit(&slot->address, memory_order_acquire);
            if (found == address) return slot;
            if (found == 0) break; /* it would have been put here */
        }
    }
    return NULL;
}

void *outside_map(size_t bytes, size_t alignment) {
    size_t page = os_page_bytes();
    if (bytes > PTRDIFF_MAX - page) return NULL;
    size_t size = round_up(max_size(bytes, 1), page);
    void *address = os_map(size, max_size(alignment, page));
    if (address == NULL) return NULL;
    if (!remember((uintptr_t)address, size)) {
        os_unmap(address, size);
        return NULL;
    }
    count(1, size);
    return address;
}

size_t outside_bytes(const void *address) {
    const struct outside_slot *slot = find((uintptr_t)address);
    return slot == NULL ? 0 : slot->bytes;
}

bool outside_unmap(void *address) {
    struct outside_slot *slot = find((uintptr_t)address);
    uintptr_t expected = (uintptr_t)address;
    /* One of two threads that free the same block wins; acquire as in find. */
    if (slot == NULL || !atomic_compare_exchange_strong_explicit(&slot->address, &expected, CLAIMED,
                                                                 memory_order_acquire, memory_order_relaxed))
        return false;
    size_t bytes = slot->bytes;
    atomic_store_explicit(&slot->address, EMPTIED, memory_order_release); /* the slot may be filled again */
    if (!os_unmap(address, bytes)) os_purge(address, bytes); /* too many mappings: the addresses are lost, the memory is not */
    count(-1, bytes);
    return true;
}
