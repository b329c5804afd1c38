/* remote.c - blocks that cross threads.
 *
 * A freer sets the blocks' bits in the remote bitmap of their slab. The first to do so since the owner last
 * looked (it turns queued from 0 to 1) hangs the slab on the owner's inbox, a stack that anyone may push to
 * and that only the holder of the heap's lock empties, as a whole: no ABA. Whoever empties it clears
 * queued first and reads the bits after, so a bit that it misses belongs to a freer that queues again.
 *
 * A slab may change hands between two of these steps. Whoever drains it then finds another owner and passes it
 * on. Nobody waits in a dead heap (the commons, and heaps between two threads), so whoever pushes to one
 * and then finds it dead marks it, and whoever passes by without a lock, himself first, drains what is marked. The
 * push and the look at the state, like the change of state and the last drain of a thread that exits, are
 * sequentially consistent, so one of the two sees the other. */
#include "base/bits.h"
#include "heap/heap.h"
#include "heap/registry.h"
#include "os/assert.h"

static void push(struct heap *heap, uint32_t first) {
    struct slab_remote *remote = slab_remote_at(first);
    uint32_t head = atomic_load_explicit(&heap->inbox, memory_order_relaxed); /* checked by the exchange */
    do {
        atomic_store_explicit(&remote->inbox_next, head, memory_order_relaxed); /* published by the exchange */
    } while (!atomic_compare_exchange_weak_explicit(&heap->inbox, &head, first, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

/* Dead heaps with something in their inbox, which nobody but a passer-by empties. */
static _Atomic uint32_t undrained_heaps;

/* Counted first: or whoever clears the mark meanwhile takes away what was not yet added, and the next to mark another heap
 * adds to less than nothing, finds none, and leaves what he pushed. */
static void mark_undrained(struct heap *heap) {
    atomic_fetch_add_explicit(&undrained_heaps, 1, memory_order_relaxed); /* the mark publishes it */
    /* release: whoever clears the mark sees the push before it. */
    if (atomic_exchange_explicit(&heap->undrained, true, memory_order_acq_rel))
        atomic_fetch_sub_explicit(&undrained_heaps, 1, memory_order_relaxed); /* it was marked already */
}

/* Hangs the slab on its owner's inbox unless it hangs somewhere. */
static void queue(uint32_t first) {
    /* acq_rel: the bits set before are seen by whoever clears the flag; and the owner named by whoever
     * set the slab up, before an earlier freer of its blocks queued it, is seen here. */
    if (atomic_exchange_explicit(&slab_remote_at(first)->queued, 1, memory_order_acq_rel) != 0) return;
    struct heap *owner = atomic_load_explicit(&slab_at(first)->owner, memory_order_acquire);
    if (owner == NULL) owner = &commons; /* released meanwhile, or about to be made anew: see remote_drain */
    push(owner, first);
    /* seq_cst: see above. */
    if (atomic_load_explicit(&owner->state, memory_order_seq_cst) != HEAP_LIVE) mark_undrained(owner);
}

uint32_t remote_drain(struct heap *heap) {
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
            struct bin *bin = &heap->bins[slab_at(first)->span.class];
            counter_add(&bin->remote_blocks, blocks);
            counter_sub(&bin->taken_blocks, blocks);
            drained += blocks;
            if (blocks != 0) bin_settle(heap, first);
        } else if (owner != NULL) {
            queue(first);
        } /* without owner it was released, and a late freer pushed it */
        first = next;
    }
    return drained;
}

HAK_NOINLINE static void settle_all(void) {
    struct heap *heap;
    while ((heap = registry_find_undrained()) != NULL) {
        /* acquire: pairs with mark_undrained. */
        if (!atomic_exchange_explicit(&heap->undrained, false, memory_order_acq_rel)) continue;
        atomic_fetch_sub_explicit(&undrained_heaps, 1, memory_order_relaxed);
        os_lock_take(&heap->lock);
        remote_drain(heap);
        os_lock_drop(&heap->lock);
    }
}

void remote_settle(void) {
    /* relaxed: a hint; a mark that is missed here is seen by the next to pass. */
    if (HAK_UNLIKELY(atomic_load_explicit(&undrained_heaps, memory_order_relaxed) != 0)) settle_all();
}

/* ---- giving back -------------------------------------------------------------------------------- */

/* Stores BLOCKS in SORTED by the low bits of their page index: blocks of one page end up side by side, in the order in
 * which they were freed. */
static void group_by_page(void *const *blocks, size_t count, void **sorted) {
    enum { GROUPS = 128 };
    uint16_t ends[GROUPS] = {0};
    for (size_t i = 0; i < count; i++) ends[page_index(blocks[i]) % GROUPS]++;
    uint16_t sum = 0;
    for (unsigned group = 0; group < GROUPS; group++) {
        uint16_t in_group = ends[group];
        ends[group] = sum;
        sum = (uint16_t)(sum + in_group);
    }
    for (size_t i = 0; i < count; i++) sorted[ends[page_index(blocks[i]) % GROUPS]++] = blocks[i];
}

/* Whether blocks that follow each other are of one page, mostly. */
static bool are_grouped(void *const *blocks, size_t count) {
    size_t changes = 0;
    for (size_t i = 1; i < count; i++) changes += page_index(blocks[i]) != page_index(blocks[i - 1]);
    return changes <= 4;
}

void remote_give(void *const *blocks, size_t count) {
    HAK_ASSERT(count <= REMOTE_BLOCKS);
    void *sorted[REMOTE_BLOCKS];
    if (count > 2 && !are_grouped(blocks, count)) {
        group_by_page(blocks, count, sorted);
        blocks = sorted;
    }
    while (count != 0) {
        size_t page = page_index(*blocks);
        uint32_t word = page_word(page);
        if (HAK_UNLIKELY(word == WORD_NONE || word == WORD_LARGE))
            os_panic("free of %p: this block was already free", *blocks);
        uint32_t first = slab_head(page);
        size_t given = slab_put_remote(first, blocks, count);
        queue(first);
        blocks += given;
        count -= given;
    }
}
