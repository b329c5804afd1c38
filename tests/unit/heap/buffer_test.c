/* buffer_test.c - the buffer of blocks of other heaps: kept by its owner without a lock, emptied by others while the owner
 * sleeps, and while it does not.
 *
 * Planted defects it was seen to catch:
 *   the taker does not look whether the owner is busy, or passes no barrier   the_busy_and_the_unseen_..., every_block_...
 *   the owner does not look whether it is wanted, or is never busy            every_block_is_given_back_once: aborts
 *   the barrier does nothing                                                  every_block_is_given_back_once: aborts
 *   an owner that waits stays busy               the_busy_and_the_unseen_are_left_alone
 *   the count goes down after the blocks went    every_block_is_given_back_once
 *   the bytes are not reset, or not told         it_is_given_back_when_it_is_full
 *   a full buffer loses its last block           it_is_given_back_when_it_is_full
 *   it stays wanted                              a_sleeper_is_robbed
 */
#include "child.h"
#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/footprint.h"
#include "heap/thread.h"
#include "own_heap.h"

#include <sched.h>

static uint32_t waiting_in(struct heap *heap) { return atomic_load(&heap->remote_count); }

/* COUNT new blocks of OWNER's. */
static void take_of(struct heap *owner, unsigned class, void **blocks, uint32_t count) {
    bool zero;
    os_lock_take(&owner->lock);
    remote_drain(owner);
    for (uint32_t got = 0;;) {
        got += bin_fill(owner, class, blocks + count - got, count - got, &zero);
        if (got == count) break;
        os_lock_drop(&owner->lock);
        uint32_t fresh = slab_create(class, false);
        CHECK(fresh != 0);
        os_lock_take(&owner->lock);
        slab_set_owner(fresh, owner, heap_word(owner, class));
        bin_place(owner, fresh);
    }
    os_lock_drop(&owner->lock);
}

static uint32_t blocks_out(struct heap *heap) {
    uint32_t out = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++)
        for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
            for (uint32_t at = heap->bins[class].slabs[bucket]; at != 0; at = slab_at(at)->span.next)
                out += slab_classes[class].blocks - slab_at(at)->free;
    return out;
}

/* As purge.c does it. */
static void rob(struct heap *heap) {
    buffer_want(heap);
    buffer_take(heap, os_barrier_others());
}

TEST(it_is_given_back_when_it_is_full) {
    static void *blocks[2 * REMOTE_BLOCKS];
    struct heap *other = make_heap(HEAP_LIVE), *mine = make_heap(HEAP_LIVE);
    footprint_add((int64_t)GIB(1));
    for (unsigned class = 0; class < SIZE_CLASSES; class += 3) {
        uint32_t bytes = slab_classes[class].block_bytes, most = (REMOTE_BYTES + bytes - 1) / bytes;
        if (most > REMOTE_BLOCKS) most = REMOTE_BLOCKS;
        take_of(other, class, blocks, 2 * most);
        for (uint32_t i = 0; i < 2 * most; i++) {
            uint64_t in_use = footprint_in_use();
            buffer_keep(mine, blocks[i], bytes);
            CHECK_EQ(waiting_in(mine), (i + 1) % most);
            CHECK_EQ(atomic_load(&mine->remote_bytes), (i + 1) % most * bytes);
            CHECK_EQ(in_use - footprint_in_use(), (i + 1) % most == 0 ? (uint64_t)most * bytes : 0);
            CHECK(!atomic_load(&mine->remote_busy));
        }
        CHECK_EQ(drain(other), 2 * most);
        CHECK_EQ(blocks_out(other), 0);
    }
    footprint_add(-(int64_t)GIB(1));
}

TEST(a_sleeper_is_robbed) {
    void *blocks[10];
    struct heap *other = make_heap(HEAP_LIVE), *mine = make_heap(HEAP_LIVE);
    if (!os_barrier_others()) SKIP("the kernel has no membarrier");
    take_of(other, 20, blocks, 10);
    for (int i = 0; i < 7; i++) buffer_keep(mine, blocks[i], slab_classes[20].block_bytes);
    rob(mine);
    CHECK_EQ(waiting_in(mine), 0);
    CHECK_EQ(atomic_load(&mine->remote_bytes), 0);
    CHECK(!atomic_load(&mine->remote_wanted));
    CHECK_EQ(drain(other), 7);
    rob(mine); /* there is nothing */
    CHECK_EQ(drain(other), 0);
    for (int i = 7; i < 10; i++) buffer_keep(mine, blocks[i], slab_classes[20].block_bytes);
    CHECK_EQ(waiting_in(mine), 3);
    os_lock_take(&mine->lock);
    buffer_give_all(mine);
    os_lock_drop(&mine->lock);
    CHECK_EQ(drain(other), 3);
}

/* Whoever is at it is left alone; and so is everybody where the kernel has no barrier. */
TEST(the_busy_and_the_unseen_are_left_alone) {
    void *blocks[3];
    struct heap *other = make_heap(HEAP_LIVE), *mine = make_heap(HEAP_LIVE);
    take_of(other, 20, blocks, 3);
    buffer_keep(mine, blocks[0], slab_classes[20].block_bytes);
    buffer_want(mine);
    buffer_take(mine, false);
    CHECK_EQ(waiting_in(mine), 1);
    atomic_store(&mine->remote_busy, true);
    buffer_want(mine);
    buffer_take(mine, true);
    CHECK_EQ(waiting_in(mine), 1);
    CHECK(!atomic_load(&mine->remote_wanted));
    atomic_store(&mine->remote_busy, false);
    /* While it is wanted the owner goes by the lock, and says so. */
    buffer_want(mine);
    buffer_keep(mine, blocks[1], slab_classes[20].block_bytes);
    CHECK(!atomic_load(&mine->remote_busy));
    CHECK_EQ(waiting_in(mine), 2);
    buffer_take(mine, true);
    CHECK_EQ(waiting_in(mine), 0);
    buffer_keep(mine, blocks[2], slab_classes[20].block_bytes);
    CHECK_EQ(waiting_in(mine), 1);
    CHECK_EQ(drain(other), 2);
}

/* ---- the owner does not sleep -------------------------------------------------------------------------- */

enum { OWNERS = 2, CLASSES = 4 };
static const unsigned classes[CLASSES] = {0, 15, 31, 47};
static struct heap *source, *keepers[OWNERS];
static atomic_uint ended;

/* Takes blocks of the one heap and keeps them in its own buffer: what is given back twice, or not at all, is missed. */
static void *keep_blocks(void *argument) {
    size_t which = (size_t)(uintptr_t)argument;
    struct rng rng = {check_now.seed + which};
    void *blocks[64];
    for (size_t i = 0; i < check_count(6000); i++) {
        unsigned class = classes[rng_below(&rng, CLASSES)];
        uint32_t count = 1 + (uint32_t)rng_below(&rng, 64);
        take_of(source, class, blocks, count);
        for (uint32_t k = 0; k < count; k++) {
            uint64_t *word = blocks[k]; /* nobody else has it */
            word[0] = (uintptr_t)argument ^ i;
            if (k > 0) CHECK(*(uint64_t *)blocks[k - 1] == ((uintptr_t)argument ^ i));
        }
        for (uint32_t k = 0; k < count; k++) {
            CHECK(*(uint64_t *)blocks[k] == ((uintptr_t)argument ^ i));
            buffer_keep(keepers[which], blocks[k], slab_classes[class].block_bytes);
        }
        if (i % 64 == 0) sched_yield();
    }
    atomic_fetch_add(&ended, 1);
    return NULL;
}

TEST(every_block_is_given_back_once) {
    pthread_t threads[OWNERS];
    uint64_t robbed = 0, rounds = 0;
    if (!os_barrier_others()) SKIP("the kernel has no membarrier");
    source = make_heap(HEAP_LIVE);
    atomic_store(&ended, 0);
    for (uintptr_t i = 0; i < OWNERS; i++) {
        keepers[i] = make_heap(HEAP_LIVE);
        CHECK_EQ(pthread_create(&threads[i], NULL, keep_blocks, (void *)i), 0);
    }
    while (atomic_load(&ended) < OWNERS) {
        bool passed;
        uint32_t before[OWNERS];
        for (int i = 0; i < OWNERS; i++) {
            buffer_want(keepers[i]);
            before[i] = waiting_in(keepers[i]);
        }
        passed = os_barrier_others();
        for (int i = 0; i < OWNERS; i++) {
            buffer_take(keepers[i], passed);
            robbed += before[i] != 0;
        }
        rounds++;
        if (rounds % 8 == 0) sched_yield();
    }
    for (int i = 0; i < OWNERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(robbed > (CHECK_SLOW ? 0 : 20)); /* they met */
    for (int i = 0; i < OWNERS; i++) rob(keepers[i]);
    remote_settle(); /* a slab that went and came again may hang in the inbox of the commons */
    drain(source);
    CHECK_EQ(blocks_out(source), 0);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) CHECK_EQ(source->bins[class].slab_count, 0);
}

/* ---- fork ----------------------------------------------------------------------------------------------- */

/* The child finds in the buffers of the others what their counts promise, and gives it back: nothing of it is on its way
 * already, and little is lost. */
static atomic_bool forks_end;
static struct heap *_Atomic forked_heap;
static void *_Atomic ring[512];

static void *keep_from_ring(void *unused) {
    heap_free(heap_alloc(64), NULL);
    atomic_store(&forked_heap, thread_heap());
    while (!atomic_load(&forks_end))
        for (size_t i = 0; i < 512; i++) heap_free(atomic_exchange(&ring[i], NULL), NULL);
    return unused;
}

static void give_back_in_child(void) {
    struct heap *theirs = atomic_load(&forked_heap);
    CHECK(theirs->forsaken);
    CHECK(waiting_in(theirs) <= REMOTE_BLOCKS);
    thread_reap_forsaken(); /* a block that is given back twice ends the process */
    CHECK_EQ(waiting_in(theirs), 0);
    CHECK_EQ(atomic_load(&theirs->remote_bytes), 0);
    drain(thread_heap());
    for (int i = 0; i < 2000; i++) CHECK(heap_alloc(512) != NULL);
}

TEST(a_child_gives_back_what_the_others_kept) {
    pthread_t thread;
    atomic_store(&forks_end, false);
    CHECK_EQ(pthread_create(&thread, NULL, keep_from_ring, NULL), 0);
    while (atomic_load(&forked_heap) == NULL) sched_yield();
    for (size_t i = 0; i < check_count(300); i++) {
        for (size_t k = 0; k < 1500; k++)
            if (atomic_load(&ring[k % 512]) == NULL) atomic_store(&ring[k % 512], heap_alloc(512));
        if (i % 2) rob(atomic_load(&forked_heap));
        IN_CHILD(give_back_in_child);
    }
    atomic_store(&forks_end, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < 512; i++) heap_free(atomic_exchange(&ring[i], NULL), NULL);
}
