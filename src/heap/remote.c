/* remote.c - blocks that cross threads.
 *
 * A freer sets the blocks' bits in the remote bitmap of their slab. The first to do so since the owner last
 * looked (it turns queued from 0 to 1) hangs the slab on the owner's inbox, a stack that anyone may push to
 * and that only the holder of the heap's lock empties, as a whole: no ABA. Whoever empties it clears
 * queued first and reads the bits after, so a bit that it misses belongs to a freer that queues again.
 *
 * A slab may change hands between two of these steps. Whoever drains it then finds another owner and passes it
 * on. Nobody waits in a dead heap (the commons, and heaps between two threads), so whoever pushes to one
 * and then finds it dead drains it himself: the push and the look at the state, like the change of state
 * and the last drain of a thread that exits, are sequentially consistent, so one of the two sees the other. */
#include "base/bits.h"
#include "heap/heap.h"
#include "os/assert.h"

static void push(struct heap *heap, uint32_t first) {
    struct slab_remote *remote = slab_remote_at(first);
    uint32_t head = atomic_load_explicit(&heap->inbox, memory_order_relaxed); /* checked by the exchange */
    do {
        atomic_store_explicit(&remote->inbox_next, head, memory_order_relaxed); /* published by the exchange */
    } while (!atomic_compare_exchange_weak_explicit(&heap->inbox, &head, first, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

/* Hangs the slab on its owner's inbox unless it hangs somewhere. Returns the heap that must be drained because
 * nobody else will; NULL when there is none. */
static struct heap *queue(uint32_t first) {
    /* acq_rel: the bits set before are seen by whoever clears the flag; and the owner named by whoever
     * set the slab up, before an earlier freer of its blocks queued it, is seen here. */
    if (atomic_exchange_explicit(&slab_remote_at(first)->queued, 1, memory_order_acq_rel) != 0) return NULL;
    struct heap *owner = atomic_load_explicit(&slab_at(first)->owner, memory_order_acquire);
    if (owner == NULL) owner = &commons; /* released meanwhile, or about to be made anew: see remote_drain */
    push(owner, first);
    /* seq_cst: see above. */
    return atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_LIVE ? NULL : owner;
}

uint32_t remote_drain(struct heap *heap, bool *orphans) {
    uint32_t drained = 0;
    /* seq_cst: see above. */
    uint32_t first = atomic_exchange_explicit(&heap->inbox, 0, memory_order_seq_cst);
    while (first != 0) {
        struct slab_remote *remote = slab_remote_at(first);
        uint32_t next = atomic_load_explicit(&remote->inbox_next, memory_order_relaxed); /* came with the inbox */
        /* acq_rel: pairs with queue. */
        atomic_exchange_explicit(&remote->queued, 0, memory_order_acq_rel);
        struct heap *owner = atomic_load_explicit(&slab_at(first)->owner, memory_order_acquire);
        if (owner == heap) {
            uint32_t blocks = slab_drain(first);
            heap->bins[slab_at(first)->span.class].remote_blocks += blocks;
            drained += blocks;
            if (blocks != 0) bin_settle(heap, first);
        } else if (owner != NULL && queue(first) != NULL) {
            *orphans = true;
        } /* without owner it was released, and a late freer pushed it */
        first = next;
    }
    return drained;
}

/* A dead heap other than the commons passes its slabs on to the commons at most. */
void remote_drain_dead(struct heap *heap) {
    bool orphans = false;
    os_lock_take(&heap->lock);
    remote_drain(heap, &orphans);
    os_lock_drop(&heap->lock);
    if (!orphans) return;
    orphans = false;
    os_lock_take(&commons.lock);
    remote_drain(&commons, &orphans);
    os_lock_drop(&commons.lock);
}

/* ---- giving back -------------------------------------------------------------------------------- */

/* Sorts by the low bits of the page index: blocks of one page end up side by side, in the order in which they
 * were freed. */
static void group_by_page(void **blocks, size_t count) {
    enum { GROUPS = 128 };
    uint16_t ends[GROUPS] = {0};
    void *sorted[REMOTE_BLOCKS];
    for (size_t i = 0; i < count; i++) ends[page_index(blocks[i]) % GROUPS]++;
    uint16_t sum = 0;
    for (unsigned group = 0; group < GROUPS; group++) {
        uint16_t in_group = ends[group];
        ends[group] = sum;
        sum = (uint16_t)(sum + in_group);
    }
    for (size_t i = 0; i < count; i++) sorted[ends[page_index(blocks[i]) % GROUPS]++] = blocks[i];
    for (size_t i = 0; i < count; i++) blocks[i] = sorted[i];
}

void remote_give(void **blocks, size_t count) {
    HAK_ASSERT(count <= REMOTE_BLOCKS);
    if (count > 2) group_by_page(blocks, count);
    struct heap *dead = NULL;
    while (count != 0) {
        uint32_t first = slab_head(page_index(*blocks));
        size_t given = slab_put_remote(first, blocks, count);
        struct heap *drain = queue(first);
        /* Several slabs of one dead heap are drained together. */
        if (drain != NULL && dead != NULL && drain != dead) remote_drain_dead(dead);
        if (drain != NULL) dead = drain;
        blocks += given;
        count -= given;
    }
    if (dead != NULL) remote_drain_dead(dead);
}

void remote_give_quietly(void *block) {
    uint32_t first = slab_head(page_index(block));
    slab_put_remote(first, &block, 1);
    queue(first); /* a dead heap is left to whoever drains it next */
}
