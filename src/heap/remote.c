/* remote.c - cross-thread frees.
 *
 * A freer sets the blocks' bits in the remote bitmap of their slab. The first to do so since the owner last looked
 * (it turns queued from 0 to 1) pushes the slab onto the owner's inbox, a stack that any thread may push to and that
 * only the holder of the heap's lock empties, as a whole: no ABA. The thread that empties it clears queued first and
 * reads the bits after, so a bit that it misses belongs to a freer that queues again.
 *
 * A slab may change owners between two of these steps. The thread that drains it then finds another owner and passes
 * it on. A dead heap (the commons, a heap between two threads, or a shared one that no thread shares now) has no
 * thread that drains it. So a thread that pushes to a heap and then finds it dead marks it, and every thread that
 * calls remote_settle, the pushing one first, drains what is marked. The push and the look at the state, like the
 * change of state and the last drain of a thread that exits, are sequentially consistent, so one of the two sees the
 * other.
 *
 * Marked heaps are in one list of the same kind: the thread that turns undrained from false to true pushes, and
 * remote_settle takes the list as a whole. It clears each mark first and drains after, so what it misses belongs to a
 * freer that marks again. Heaps to which nothing was returned need not be looked at. */
#include "heap/heap.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "os/assert.h"

static void push(struct heap *heap, uint32_t first) {
    struct slab_remote *remote = slab_remote_at(first);
    uint32_t head = atomic_load_explicit(&heap->inbox, memory_order_relaxed); /* checked by the exchange */
    do {
        atomic_store_explicit(&remote->inbox_next, head, memory_order_relaxed); /* published by the exchange */
    } while (!atomic_compare_exchange_weak_explicit(&heap->inbox, &head, first, memory_order_seq_cst,
                                                    memory_order_relaxed));
}

/* Dead heaps to which blocks were returned, for remote_settle: linked by next_undrained. On a cache line of its own:
 * all slow paths read it, few write it. */
static HAK_ALIGNED(128) _Atomic(struct heap *) undrained_heaps;

/* A thread that finds it marked, or a signal handler between the two steps, leaves it to the thread that set the
 * mark: so it is in the list once. */
static void mark_undrained(struct heap *heap) {
    /* acquire: the thread that cleared the mark has read next_undrained. release: the thread that clears it sees the
     * push to the inbox, even of those that find it set; the exchanges of the inbox would ensure that, too. */
    if (atomic_exchange_explicit(&heap->undrained, true, memory_order_acq_rel)) return;
    struct heap *head = atomic_load_explicit(&undrained_heaps, memory_order_relaxed); /* checked by the exchange */
    do {
        heap->next_undrained = head;
        /* release: publishes next_undrained. */
    } while (!atomic_compare_exchange_weak_explicit(&undrained_heaps, &head, heap, memory_order_release,
                                                    memory_order_relaxed));
}

/* Pushes the slab onto its owner's inbox unless it is queued already. */
static void queue(uint32_t first) {
    /* acq_rel: the thread that clears the flag sees the bits set before. And the owner that was named when the slab
     * was set up, before an earlier freer of its blocks queued it, is seen here. */
    if (atomic_exchange_explicit(&slab_remote_at(first)->queued, 1, memory_order_acq_rel) != 0) return;
    struct heap *owner = atomic_load_explicit(&slab_at(first)->owner, memory_order_acquire);
    if (owner == NULL) owner = &commons; /* released meanwhile, or about to be made anew: see remote_drain */
    push(owner, first);
    /* seq_cst: see above. */
    if (atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_DEAD) mark_undrained(owner);
}

/* Drains a slab from the inbox; returns how many blocks. */
static uint32_t drain_slab(struct heap *heap, uint32_t first) {
    /* acq_rel: pairs with queue. */
    atomic_exchange_explicit(&slab_remote_at(first)->queued, 0, memory_order_acq_rel);
    struct heap *owner = atomic_load_explicit(&slab_at(first)->owner, memory_order_acquire);
    if (owner == NULL) return 0; /* it was released, and a late freer pushed it */
    if (owner != heap) {
        queue(first);
        return 0;
    }
    uint32_t blocks = slab_drain(first);
    struct bin *bin = &heap->bins[slab_at(first)->span.class];
    if (blocks == 0) return 0;
    bin_note_returned(bin, blocks);
    counter_sub(&bin->taken_blocks, blocks);
    bin_settle(heap, first);
    return blocks;
}

uint32_t remote_drain_some(struct heap *heap, uint32_t most_slabs) {
    /* relaxed, as below: under the lock. */
    uint32_t drained = 0, first = atomic_load_explicit(&heap->undrained_slabs, memory_order_relaxed);
    /* seq_cst: see above. */
    if (first == 0) first = atomic_exchange_explicit(&heap->inbox, 0, memory_order_seq_cst);
    for (; first != 0 && most_slabs != 0; most_slabs--) {
        uint32_t next = atomic_load_explicit(&slab_remote_at(first)->inbox_next, memory_order_relaxed); /* came with the inbox */
        drained += drain_slab(heap, first);
        first = next;
    }
    atomic_store_explicit(&heap->undrained_slabs, first, memory_order_relaxed);
    return drained;
}

uint32_t remote_drain(struct heap *heap) {
    uint32_t drained = 0;
    if (atomic_load_explicit(&heap->undrained_slabs, memory_order_relaxed) != 0) /* under the lock */
        drained = remote_drain_some(heap, UINT32_MAX);
    return drained + remote_drain_some(heap, UINT32_MAX);
}

bool remote_drain_unlocked(struct heap *heap) {
    if (!remote_has_some(heap)) return false;
    enum { PORTIONS = 4096 }; /* others may go on freeing for ever */
    os_lock_take(&heap->lock);
    for (int portion = 0; portion < PORTIONS && remote_has_some(heap); portion++) {
        remote_drain_some(heap, DRAIN_SLABS);
        os_lock_pass(&heap->lock);
    }
    os_lock_drop(&heap->lock);
    return true;
}

HAK_NOINLINE static void settle_all(void) {
    /* acquire: pairs with every push that the list is made of, since each was an exchange. */
    struct heap *heap = atomic_exchange_explicit(&undrained_heaps, NULL, memory_order_acquire);
    while (heap != NULL) {
        struct heap *next = heap->next_undrained; /* the next thread to set the mark writes there */
        /* acq_rel: pairs with mark_undrained, both ways. */
        atomic_exchange_explicit(&heap->undrained, false, memory_order_acq_rel);
        os_lock_take(&heap->lock);
        remote_drain(heap);
        os_lock_drop(&heap->lock);
        heap = next;
    }
}

void remote_settle(void) {
    /* relaxed: a hint; the thread that pushed a heap sees it here, and one that is missed is seen by the next caller.
     * Repeated, since what is drained may be passed on to another dead heap. */
    while (HAK_UNLIKELY(atomic_load_explicit(&undrained_heaps, memory_order_relaxed) != NULL)) settle_all();
}

void remote_mark_anew(void) {
    /* seq_cst: in this order for the thread's own signal handlers, which may free meanwhile. They find every heap
     * marked before the list is emptied; and what they leave to the mark of a heap is in its inbox when that is
     * looked at. */
    for (struct heap *heap = &commons; heap != NULL; heap = registry_next(heap))
        atomic_store_explicit(&heap->undrained, true, memory_order_seq_cst);
    atomic_store_explicit(&undrained_heaps, NULL, memory_order_seq_cst);
    for (struct heap *heap = &commons; heap != NULL; heap = registry_next(heap)) {
        atomic_store_explicit(&heap->undrained, false, memory_order_seq_cst);
        /* relaxed: the only thread there is. */
        const bool some = atomic_load_explicit(&heap->inbox, memory_order_seq_cst) != 0 ||
                          atomic_load_explicit(&heap->undrained_slabs, memory_order_relaxed) != 0;
        if (some && atomic_load_explicit(&heap->state, memory_order_relaxed) == HEAP_DEAD) mark_undrained(heap);
    }
}

/* ---- returning blocks --------------------------------------------------------------------------- */

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

size_t remote_give(struct heap *freer, void *const *blocks, size_t count) {
    HAK_ASSERT(count <= REMOTE_BLOCKS);
    void *sorted[REMOTE_BLOCKS];
    enum { GROUPS_AS_THEY_COME = 4 }; /* consecutive blocks mostly share a page; else they are sorted */
    size_t bytes = 0;
    for (unsigned groups = 0; count != 0; groups++) {
        if (groups == GROUPS_AS_THEY_COME && count > 2) {
            group_by_page(blocks, count, sorted);
            blocks = sorted;
        }
        size_t page = page_index(*blocks);
        uint32_t word = page_word(page);
        if (HAK_UNLIKELY(word == WORD_NONE || word == WORD_LARGE))
            os_panic("free of %p: this block was already free", *blocks);
        uint32_t first = slab_head(page);
        size_t given = slab_put_remote(first, blocks, count);
        queue(first);
        const unsigned class = word & WORD_CLASS_MASK;
        if (freer != NULL) stack_count_foreign(freer, class, (uint32_t)given);
        bytes += given * slab_classes[class].block_bytes;
        blocks += given;
        count -= given;
    }
    return bytes;
}
