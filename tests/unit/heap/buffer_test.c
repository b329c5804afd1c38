/* buffer_test.c - the buffer of blocks of other heaps: kept by its owner without a lock, emptied by others while the owner
 * sleeps, and while it does not.
 *
 * Planted defects it was seen to catch:
 *   the bottom stays where it is                 a_sleeper_is_robbed: aborts
 *   the owner does not begin at the bottom       it_is_given_back_when_it_is_full
 *   the bytes are not reset, or not told         it_is_given_back_when_it_is_full
 *   a full buffer loses its last block           it_is_given_back_when_it_is_full
 *   what others took is counted as held          a_sleeper_is_robbed
 */
#include "child.h"
#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/footprint.h"
#include "heap/thread.h"
#include "own_heap.h"

#include <sched.h>

static size_t waiting_in(struct heap *heap) { return buffer_held(heap); }

/* COUNT new blocks of OWNER's. */
static void take_of(struct heap *owner, unsigned class, void **blocks, uint32_t count) {
    bool zero;
    os_lock_take(&owner->lock);
    remote_drain(owner);
    for (uint32_t got = 0; got < count;) {
        const uint32_t more = bin_fill(owner, class, blocks + count - got, count - got, &zero);
        got += more;
        if (more != 0) continue; /* perhaps of those alone that came back */
        os_lock_drop(&owner->lock);
        uint32_t fresh = slab_create(class, ACE_SPARSE);
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

/* As free.c does it. */
static void keep(struct heap *heap, void *block, unsigned class) {
    if (front_buffer(&heap->front, block, class)) return;
    os_lock_take(&heap->lock);
    buffer_give_all(heap, block);
    os_lock_drop(&heap->lock);
}

/* As purge.c does it. */
static void rob(struct heap *heap) {
    os_lock_take(&heap->lock);
    buffer_take(heap);
    os_lock_drop(&heap->lock);
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
            keep(mine, blocks[i], class);
            CHECK_EQ(waiting_in(mine), (i + 1) % most);
            CHECK_EQ(buffer_held_bytes(mine), (i + 1) % most * bytes);
            CHECK_EQ(in_use - footprint_in_use(), (i + 1) % most == 0 ? (uint64_t)most * bytes : 0);
        }
        CHECK_EQ(drain(other), 2 * most);
        CHECK_EQ(blocks_out(other), 0);
    }
    footprint_add(-(int64_t)GIB(1));
}

TEST(a_sleeper_is_robbed) {
    enum { CLASS = 20 };
    static void *blocks[2 * REMOTE_BLOCKS];
    const uint32_t bytes = slab_classes[CLASS].block_bytes;
    struct heap *other = make_heap(HEAP_LIVE), *mine = make_heap(HEAP_LIVE);
    take_of(other, CLASS, blocks, 2 * REMOTE_BLOCKS);
    for (int i = 0; i < 7; i++) keep(mine, blocks[i], CLASS);
    rob(mine);
    CHECK_EQ(waiting_in(mine), 0);
    CHECK_EQ(buffer_held_bytes(mine), 0);
    CHECK_EQ(drain(other), 7);
    rob(mine); /* there is nothing */
    CHECK_EQ(drain(other), 0);
    for (int i = 7; i < 10; i++) keep(mine, blocks[i], CLASS);
    CHECK_EQ(waiting_in(mine), 3);
    CHECK_EQ(buffer_held_bytes(mine), 3 * bytes);
    /* It goes on behind what was taken, to its end, and then begins anew. */
    for (int i = 10; i < REMOTE_BLOCKS - 1; i++) keep(mine, blocks[i], CLASS);
    CHECK_EQ(waiting_in(mine), REMOTE_BLOCKS - 1 - 7);
    keep(mine, blocks[REMOTE_BLOCKS - 1], CLASS);
    CHECK_EQ(waiting_in(mine), 0);
    CHECK_EQ(drain(other), REMOTE_BLOCKS - 7);
    for (int i = REMOTE_BLOCKS; i < 2 * REMOTE_BLOCKS - 1; i++) keep(mine, blocks[i], CLASS);
    CHECK_EQ(waiting_in(mine), REMOTE_BLOCKS - 1);
    os_lock_take(&mine->lock);
    buffer_give_all(mine, NULL);
    os_lock_drop(&mine->lock);
    CHECK_EQ(waiting_in(mine), 0);
    CHECK_EQ(drain(other), REMOTE_BLOCKS - 1);
}

/* ---- the owner does not sleep -------------------------------------------------------------------------- */

enum { OWNERS = 2, CLASSES = 4 };
static const unsigned classes[CLASSES] = {0, 15, 31, 47};
static struct heap *source, *keepers[OWNERS];
static atomic_uint ended;
static atomic_bool met; /* the robber found something often enough */
enum { MEETINGS = 20 };

/* Takes blocks of the one heap and keeps them in its own buffer: what is given back twice, or not at all, is missed. */
static void *keep_blocks(void *argument) {
    size_t which = (size_t)(uintptr_t)argument;
    struct rng rng = {check_now.seed + which};
    void *blocks[64];
    for (size_t i = 0; i < check_count(6000) || !atomic_load(&met); i++) {
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
            keep(keepers[which], blocks[k], class);
        }
        if (i % 64 == 0) sched_yield();
    }
    atomic_fetch_add(&ended, 1);
    return NULL;
}

TEST(every_block_is_given_back_once) {
    pthread_t threads[OWNERS];
    uint64_t robbed = 0, rounds = 0;
    source = make_heap(HEAP_LIVE);
    atomic_store(&ended, 0);
    atomic_store(&met, false);
    for (uintptr_t i = 0; i < OWNERS; i++) {
        keepers[i] = make_heap(HEAP_LIVE);
        CHECK_EQ(pthread_create(&threads[i], NULL, keep_blocks, (void *)i), 0);
    }
    while (atomic_load(&ended) < OWNERS) {
        for (int i = 0; i < OWNERS; i++) {
            robbed += waiting_in(keepers[i]) != 0;
            rob(keepers[i]);
        }
        if (robbed > (CHECK_SLOW ? 0 : MEETINGS)) atomic_store(&met, true);
        if (++rounds % 8 == 0) sched_yield();
    }
    for (int i = 0; i < OWNERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < OWNERS; i++) rob(keepers[i]);
    remote_settle(); /* a slab that went and came again may hang in the inbox of the commons */
    drain(source);
    CHECK_EQ(blocks_out(source), 0);
    /* A slab that one made while the other's blocks came back may never have been used. */
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        CHECK_EQ(source->bins[class].taken_blocks, 0);
        CHECK(source->bins[class].slab_count <= OWNERS);
    }
}

/* ---- fork ----------------------------------------------------------------------------------------------- */

/* The child finds in the buffers of the others what their counts promise, and gives it back: nothing of it is on its way
 * already, and little is lost. */
static atomic_bool forks_end;
static struct heap *_Atomic forked_heap;
static void *_Atomic ring[512];

static void *keep_from_ring(void *unused) {
    heap_free(heap_alloc(64, NULL), NULL);
    atomic_store(&forked_heap, thread_heap());
    while (!atomic_load(&forks_end))
        for (size_t i = 0; i < 512; i++) heap_free(atomic_exchange(&ring[i], NULL), NULL);
    return unused;
}

static void give_back_in_child(void) {
    struct heap *theirs = atomic_load(&forked_heap);
    CHECK(theirs->forsaken);
    CHECK(waiting_in(theirs) <= REMOTE_BLOCKS);
    while (thread_reap_forsaken()) {} /* a block that is given back twice ends the process */
    CHECK_EQ(waiting_in(theirs), 0);
    CHECK_EQ(buffer_held_bytes(theirs), 0);
    drain(thread_heap());
    for (int i = 0; i < 2000; i++) CHECK(heap_alloc(512, NULL) != NULL);
}

TEST(a_child_gives_back_what_the_others_kept) {
    pthread_t thread;
    atomic_store(&forks_end, false);
    CHECK_EQ(pthread_create(&thread, NULL, keep_from_ring, NULL), 0);
    while (atomic_load(&forked_heap) == NULL) sched_yield();
    for (size_t i = 0; i < check_count(300); i++) {
        for (size_t k = 0; k < 1500; k++)
            if (atomic_load(&ring[k % 512]) == NULL) atomic_store(&ring[k % 512], heap_alloc(512, NULL));
        if (i % 2) rob(atomic_load(&forked_heap));
        IN_CHILD(give_back_in_child);
    }
    atomic_store(&forks_end, true);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < 512; i++) heap_free(atomic_exchange(&ring[i], NULL), NULL);
}
