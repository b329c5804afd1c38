/* bin.c - the slabs of one size class: which list each is in, taking blocks from the fullest, putting blocks back,
 * handing slabs over. Every function but bin_lock_owner and bin_take_out runs under the heap's lock. */
#include "base/bits.h"
#include "heap/heap.h"

static enum bucket bucket_for(uint32_t free, uint32_t blocks) {
    if (free == 0) return BUCKET_FULL;
    if (free * 4 <= blocks) return BUCKET_QUARTER;
    if (free * 2 <= blocks) return BUCKET_HALF;
    return BUCKET_MORE;
}

static void link_into(struct bin *bin, uint32_t first, enum bucket bucket) {
    struct slab *slab = slab_at(first);
    slab->bucket = (uint8_t)bucket;
    slab->span.prev = 0;
    slab->span.next = bin->slabs[bucket];
    if (slab->span.next != 0) slab_at(slab->span.next)->span.prev = first;
    bin->slabs[bucket] = first;
}

static void unlink_from(struct bin *bin, uint32_t first) {
    const struct slab *slab = slab_at(first);
    if (slab->span.next != 0) slab_at(slab->span.next)->span.prev = slab->span.prev;
    if (slab->span.prev != 0)
        slab_at(slab->span.prev)->span.next = slab->span.next;
    else
        bin->slabs[slab->bucket] = slab->span.next;
}

struct heap *bin_lock_owner(uint32_t first) {
    for (;;) {
        /* acquire: pairs with slab_set_owner. */
        struct heap *owner = atomic_load_explicit(&slab_at(first)->owner, memory_order_acquire);
        if (owner == NULL) return NULL;
        os_lock_take(&owner->lock);
        if (atomic_load_explicit(&slab_at(first)->owner, memory_order_relaxed) == owner) return owner; /* locked */
        os_lock_drop(&owner->lock);
    }
}

void bin_place(struct heap *heap, uint32_t first) {
    const struct slab *slab = slab_at(first);
    struct bin *bin = &heap->bins[slab->span.class];
    counter_add(&bin->slab_count, 1);
    counter_add(&bin->taken_blocks, slab_classes[slab->span.class].blocks - slab->free);
    atomic_fetch_add_explicit(&heap->slab_total, 1, memory_order_relaxed); /* a hint to others */
    link_into(bin, first, bucket_for(slab->free, slab_classes[slab->span.class].blocks));
}

void bin_unlink(struct heap *heap, uint32_t first) {
    const struct slab *slab = slab_at(first);
    struct bin *bin = &heap->bins[slab->span.class];
    counter_sub(&bin->slab_count, 1);
    counter_sub(&bin->taken_blocks, slab_classes[slab->span.class].blocks - slab->free);
    atomic_fetch_sub_explicit(&heap->slab_total, 1, memory_order_relaxed); /* a hint to others */
    unlink_from(bin, first);
}

void bin_settle(struct heap *heap, uint32_t first) {
    const struct slab *slab = slab_at(first);
    uint32_t blocks = slab_classes[slab->span.class].blocks;
    if (slab->free == blocks) {
        bin_unlink(heap, first);
        slab_release(first);
        return;
    }
    enum bucket bucket = bucket_for(slab->free, blocks);
    if (bucket == slab->bucket) return;
    struct bin *bin = &heap->bins[slab->span.class];
    unlink_from(bin, first);
    link_into(bin, first, bucket);
}

/* The fullest slab in the list LEAST or in one of emptier slabs; 0 when there is none. */
static uint32_t fullest_from(const struct bin *bin, enum bucket least) {
    for (int bucket = (int)least; bucket < BUCKETS; bucket++)
        if (bin->slabs[bucket] != 0) return bin->slabs[bucket];
    return 0;
}

/* The fullest that has a free block. */
static uint32_t fullest(const struct bin *bin) { return fullest_from(bin, BUCKET_QUARTER); }

bool bin_next_is_zero(const struct heap *heap, unsigned class) {
    const uint32_t first = fullest(&heap->bins[class]);
    return first != 0 && slab_next_is_zero(first);
}

/* While other threads return blocks: from this block size on, a returned block is better than one that was never
 * used, which faults in a page, or a good part of one. A smaller block that was never used costs less than fetching
 * the cache line of a returned one from the processor that freed it. */
static bool is_better_returned(const struct bin *bin, unsigned class) {
    return slab_classes[class].block_bytes >= HAK_KIB(1) && bin->returning != 0;
}

void bin_note_returned(struct bin *bin, uint32_t blocks) {
    enum { FILLS = 64 };
    counter_add(&bin->remote_blocks, blocks);
    bin->returning = FILLS;
}

bool bin_wants_drain(const struct heap *heap, unsigned class) {
    const uint32_t first = fullest(&heap->bins[class]);
    return first == 0 || (is_better_returned(&heap->bins[class], class) && slab_returned(first) == 0);
}

/* How many of WANT blocks to take from the slab at FIRST when GOT are taken already. Where returned blocks are better
 * and the slab has some: only those. Never-used blocks only if there was nothing else. */
static uint32_t taken_of(const struct bin *bin, uint32_t first, uint32_t want, uint32_t got) {
    if (!is_better_returned(bin, slab_at(first)->span.class)) return want;
    const uint32_t returned = slab_returned(first);
    if (returned != 0) return min_u32(want, returned);
    return got == 0 ? want : 0;
}

uint32_t bin_fill(struct heap *heap, unsigned class, void **end, uint32_t want, bool *zero) {
    uint32_t got = 0;
    for (uint32_t first; got < want && (first = fullest(&heap->bins[class])) != 0;) {
        const uint32_t taken = taken_of(&heap->bins[class], first, want - got, got);
        if (taken == 0) break;
        if (got == 0) *zero = slab_next_is_zero(first);
        got += slab_take(first, end - got, taken);
        bin_settle(heap, first);
    }
    if (heap->bins[class].returning != 0) heap->bins[class].returning--;
    counter_add(&heap->bins[class].taken_blocks, got);
    heap->in_use_change += (int64_t)got * slab_classes[class].block_bytes;
    return got;
}

static HAK_COLD _Noreturn void report_freed_twice(const void *block) {
    os_panic("free of %p: this block was already free", block);
}

/* A block of another heap that the thread which freed it kept. */
static void put_foreign(struct heap *heap, void *const *block, uint32_t word) {
    /* The stack held it twice: the first put released its slab. */
    if (HAK_UNLIKELY(word == WORD_NONE || word == WORD_LARGE)) report_freed_twice(*block);
    heap->in_use_change -= slab_classes[word & WORD_CLASS_MASK].block_bytes;
    remote_give(NULL, block, 1);
}

void bin_put(struct heap *heap, void *const *blocks, size_t count) {
    while (count != 0) {
        size_t page = page_index(*blocks), put = 1;
        uint32_t word = page_word(page), class = word ^ (uint32_t)(uintptr_t)heap;
        uint32_t first = slab_head(page);
        /* relaxed: the owner changes from or to this heap only under this heap's lock. It is compared, too, because
         * another heap's address may have the same low half. */
        if (HAK_LIKELY(class < SIZE_CLASSES &&
                       atomic_load_explicit(&slab_at(first)->owner, memory_order_relaxed) == heap)) {
            put = slab_put(first, blocks, count);
            counter_add(&heap->bins[class].spilled_blocks, put);
            counter_sub(&heap->bins[class].taken_blocks, put);
            heap->in_use_change -= (int64_t)put * slab_classes[class].block_bytes;
            bin_settle(heap, first);
        } else {
            put_foreign(heap, blocks, word);
        }
        blocks += put;
        count -= put;
    }
}

void bin_take_out(void *block, uint32_t first, bool freed) {
    struct heap *owner = bin_lock_owner(first);
    if (HAK_UNLIKELY(owner == NULL)) report_freed_twice(block);
    slab_put(first, &block, 1); /* checks that it is in use */
    bin_unlink(owner, first);
    struct bin *bin = &owner->bins[slab_at(first)->span.class];
    counter_sub(&bin->taken_blocks, 1);
    if (freed) bin_note_returned(bin, 1);
    slab_disown(first);
    os_lock_drop(&owner->lock);
}

/* One of the two is the commons; both locks are held. */
static void move(struct heap *from, struct heap *to, uint32_t first, unsigned class) {
    bin_unlink(from, first);
    slab_set_owner(first, to, heap_word(to, class));
    bin_place(to, first);
}

/* One at a time: a large heap has many, and every thread that needs a slab takes the lock of the commons. */
static void hand_over_one(struct heap *heap, uint32_t first, unsigned class) {
    os_lock_take(&commons.lock);
    move(heap, &commons, first, class);
    os_lock_drop(&commons.lock);
}

bool bin_hand_over(struct heap *heap, uint32_t most_slabs) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        for (int bucket = 0; bucket < BUCKETS; bucket++)
            for (uint32_t first; (first = heap->bins[class].slabs[bucket]) != 0; most_slabs--) {
                if (most_slabs == 0) return false;
                hand_over_one(heap, first, class);
            }
    return true;
}

bool bin_hand_over_fullest(struct heap *heap, unsigned class, enum bucket least) {
    uint32_t first = fullest_from(&heap->bins[class], least);
    if (first == 0) return false;
    hand_over_one(heap, first, class);
    return true;
}

bool bin_adopt(struct heap *heap, unsigned class) {
    if (HAK_LIKELY(atomic_load_explicit(&commons.slab_total, memory_order_relaxed) == 0)) return false; /* a hint */
    os_lock_take(&commons.lock);
    uint32_t first = fullest(&commons.bins[class]);
    if (first != 0) {
        move(&commons, heap, first, class);
        counter_add(&heap->bins[class].adopted_slabs, 1);
    }
    os_lock_drop(&commons.lock);
    return first != 0;
}
