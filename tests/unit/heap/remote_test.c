/* remote_test.c - blocks that go home: queued once, passed on when their slab changed hands.
 * Owners are heaps of the test's own, so that every step can be taken by hand.
 *
 * Planted defects it was seen to catch:
 *   a slab is queued by every freer              blocks_of_many_slabs_go_home: watchdog
 *   the last block of a batch is lost            blocks_of_many_slabs_go_home
 *   a drain keeps slabs of other owners          slabs_are_passed_on, random_owners
 *   dead heaps are not marked                    slabs_are_passed_on, the_dead_are_drained_by_...
 *   a slab is not queued while it has no owner   threads_give_to_one_owner: watchdog
 *   queued stays set                             a_slab_is_queued_once, others
 *   a child believes the marks of its parent     a_child_finds_what_others_were_about_to_drain
 *   a drain of some forgets the others           some_are_drained
 *   a visitor drains all at once                 a_visitor_lets_the_owner_in
 */
#include "heap/alloc.h"
#include "heap/thread.h"
#include "own_heap.h"

#include <sched.h>
#include <sys/wait.h>

/* COUNT blocks of one new slab, which nobody else has. */
static uint32_t make_slab(struct heap *owner, unsigned class, void **blocks, uint32_t count) {
    uint32_t first = add_slab(owner, class);
    CHECK_EQ(slab_take(first, blocks + count, count), count);
    bin_settle(owner, first);
    return first;
}

static uint32_t inbox_of(struct heap *heap) { return atomic_load(&heap->inbox); }
static uint32_t next_in_inbox(uint32_t first) { return atomic_load(&slab_remote_at(first)->inbox_next); }

/* As a thread's exit or adoption does it. */
static void change_owner(uint32_t first, struct heap *from, struct heap *to) {
    bin_unlink(from, first);
    slab_set_owner(first, to, heap_word(to, slab_at(first)->span.class));
    bin_place(to, first);
}

TEST(blocks_of_many_slabs_go_home) {
    enum { SLABS = 3, EACH = 40 };
    struct heap *owner = make_heap(HEAP_LIVE);
    uint32_t first[SLABS];
    void *blocks[SLABS][EACH], *mixed[SLABS * EACH];
    struct rng rng = {check_now.seed};
    for (int s = 0; s < SLABS; s++) first[s] = make_slab(owner, 15 + (unsigned)s, blocks[s], EACH);
    for (size_t i = 0; i < SLABS * EACH; i++) mixed[i] = blocks[i % SLABS][i / SLABS];
    remote_give(NULL, mixed, SLABS * EACH);
    for (size_t i = 0; i < SLABS * EACH; i++) CHECK(mixed[i] == blocks[i % SLABS][i / SLABS]); /* untouched */
    CHECK(inbox_of(owner) != 0);
    CHECK_EQ(drain(owner), SLABS * EACH);
    CHECK_EQ(inbox_of(owner), 0);
    for (int s = 0; s < SLABS; s++) CHECK_EQ(page_word(first[s]), 0); /* all of it came home: released */

    /* Any number, any order, pages whose numbers agree in their low bits too. */
    for (size_t count = 1; count <= REMOTE_BLOCKS; count += 1 + count / 9) {
        void *some[REMOTE_BLOCKS], *block[2];
        for (size_t i = 0; i < count; i += 2) {
            make_slab(owner, (unsigned)rng_below(&rng, SIZE_CLASSES - 16), block, 2);
            memcpy(&some[i], block, (count - i < 2 ? 1 : 2) * sizeof *block);
        }
        for (size_t i = count - 1; i > 0; i--) {
            size_t j = rng_below(&rng, i + 1);
            void *swap = some[i];
            some[i] = some[j];
            some[j] = swap;
        }
        remote_give(NULL, some, count);
        CHECK_EQ(drain(owner), count);
    }
}

TEST(a_slab_is_queued_once) {
    struct heap *owner = make_heap(HEAP_LIVE);
    void *blocks[10], *other[10];
    uint32_t first = make_slab(owner, 20, blocks, 10), second = make_slab(owner, 20, other, 10);
    remote_give(NULL, blocks, 1);
    CHECK_EQ(inbox_of(owner), first);
    CHECK_EQ(next_in_inbox(first), 0);
    remote_give(NULL, other, 4);
    remote_give(NULL, blocks + 1, 3);
    remote_give(NULL, &other[4], 1);
    CHECK_EQ(inbox_of(owner), second);
    CHECK_EQ(next_in_inbox(second), first);
    CHECK_EQ(next_in_inbox(first), 0);
    CHECK_EQ(drain(owner), 9);
    CHECK_EQ(owner->bins[20].remote_blocks, 9);
    remote_give(NULL, &blocks[4], 1);
    CHECK_EQ(inbox_of(owner), first);
    CHECK_EQ(drain(owner), 1);
    CHECK_EQ(drain(owner), 0);
    CHECK_EQ(slab_at(first)->free, slab_classes[20].blocks - 5);
    CHECK_EQ(slab_at(second)->free, slab_classes[20].blocks - 5);
}

TEST(slabs_are_passed_on) {
    struct heap *from = make_heap(HEAP_LIVE), *to = make_heap(HEAP_LIVE);
    void *blocks[10];
    uint32_t first = make_slab(from, 20, blocks, 10);
    remote_give(NULL, blocks, 2);
    change_owner(first, from, to);
    CHECK_EQ(drain(from), 0);
    CHECK_EQ(inbox_of(to), first);
    CHECK_EQ(drain(to), 2);

    /* To the commons, for which nobody waits: whoever passes by takes it in. */
    remote_give(NULL, blocks + 2, 2);
    change_owner(first, to, &commons);
    CHECK_EQ(drain(to), 0);
    CHECK_EQ(inbox_of(&commons), first);
    remote_settle();
    CHECK_EQ(inbox_of(&commons), 0);
    CHECK_EQ(slab_at(first)->free, slab_classes[20].blocks - 6);
    remote_give(NULL, blocks + 4, 6);
    remote_settle();
    CHECK_EQ(page_word(first), 0);
}

/* What was taken out of the inbox and not looked at waits; what comes meanwhile comes after it, and once. */
TEST(some_are_drained) {
    enum { SLABS = 5 };
    struct heap *owner = make_heap(HEAP_LIVE);
    void *blocks[SLABS][4];
    uint32_t first[SLABS];
    for (int s = 0; s < SLABS; s++) first[s] = make_slab(owner, 20, blocks[s], 4);
    CHECK(!remote_has_some(owner));
    for (int s = 0; s < SLABS; s++) remote_give(NULL, blocks[s], (size_t)(s == 0 ? 1 : 2));
    CHECK(remote_has_some(owner));
    CHECK_EQ(remote_drain_some(owner, 2), 4); /* the last to come are the first */
    CHECK(remote_has_some(owner));
    CHECK_EQ(inbox_of(owner), 0);
    remote_give(NULL, &blocks[4][2], 1);
    CHECK_EQ(inbox_of(owner), first[4]);
    remote_give(NULL, &blocks[0][1], 1); /* waits still */
    CHECK_EQ(inbox_of(owner), first[4]);
    CHECK_EQ(remote_drain_some(owner, 1), 2);
    CHECK_EQ(remote_drain_some(owner, 1), 2);
    CHECK_EQ(remote_drain_some(owner, 9), 2); /* and no more: the inbox is for the next time */
    CHECK_EQ(inbox_of(owner), first[4]);
    CHECK_EQ(remote_drain_some(owner, 9), 1);
    CHECK(!remote_has_some(owner));
    CHECK_EQ(remote_drain_some(owner, 9), 0);

    /* All means both. */
    remote_give(NULL, &blocks[1][2], 1);
    remote_give(NULL, &blocks[2][2], 1);
    CHECK_EQ(remote_drain_some(owner, 1), 1);
    remote_give(NULL, &blocks[2][3], 1);
    remote_give(NULL, &blocks[3][2], 2);
    CHECK_EQ(drain(owner), 4);
    CHECK(!remote_has_some(owner));
}

static struct heap *visited;
static atomic_bool was_between; /* its owner had the lock while some of its slabs were drained and others not */
static atomic_bool owner_is_there, is_drained;

static void *take_it_all_the_time(void *unused) {
    while (!atomic_load(&is_drained)) {
        os_lock_take(&visited->lock);
        if (atomic_load(&visited->undrained_slabs) != 0) atomic_store(&was_between, true);
        os_lock_drop(&visited->lock);
        atomic_store(&owner_is_there, true);
    }
    return unused;
}

/* Whoever drains another's heap lets its owner in between: a visit looks at each heap. */
TEST(a_visitor_lets_the_owner_in) {
    enum { SLABS = 40 * DRAIN_SLABS, ROUNDS = 2000 };
    visited = make_heap(HEAP_LIVE);
    for (int round = 0; round < ROUNDS && !atomic_load(&was_between); round++) {
        void *block;
        for (int s = 0; s < SLABS; s++) {
            make_slab(visited, SIZE_CLASSES - 1, &block, 1);
            remote_give(NULL, &block, 1);
        }
        pthread_t owner;
        atomic_store(&is_drained, false);
        atomic_store(&owner_is_there, false);
        CHECK_EQ(pthread_create(&owner, NULL, take_it_all_the_time, NULL), 0);
        while (!atomic_load(&owner_is_there)) sched_yield();
        CHECK(remote_drain_unlocked(visited));
        atomic_store(&is_drained, true);
        CHECK_EQ(pthread_join(owner, NULL), 0);
        CHECK(!remote_has_some(visited));
    }
    CHECK(atomic_load(&was_between));
    CHECK(!remote_drain_unlocked(visited));
}

/* A freer that set its bits, and queues the slab when it is already released. */
TEST(a_late_queue_finds_a_released_slab) {
    struct heap *owner = make_heap(HEAP_LIVE);
    void *blocks[4];
    uint32_t first = make_slab(owner, 20, blocks, 1);
    remote_give(NULL, blocks, 1); /* queued now; the slab goes before its inbox is looked at */
    bin_unlink(owner, first);
    CHECK_EQ(slab_drain(first), 1);
    slab_release(first);
    CHECK_EQ(drain(owner), 0);
    CHECK_EQ(inbox_of(owner), 0);
    /* Its page becomes a slab again, and can be queued. */
    uint32_t again = make_slab(owner, 20, blocks, 4);
    CHECK_EQ(again, first);
    remote_give(NULL, blocks, 4);
    CHECK_EQ(drain(owner), 4);
}

static struct heap *heap_of_thread;

static void *start_and_end(void *unused) {
    heap_free(heap_alloc(100, NULL), NULL);
    heap_of_thread = thread_heap();
    return unused;
}

/* The heap of a thread that ended: known to the library, and nobody's. */
static struct heap *dead_heap(void) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, start_and_end, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(atomic_load(&heap_of_thread->state), HEAP_DEAD);
    return heap_of_thread;
}

TEST(the_dead_are_drained_by_who_passes_by) {
    struct heap *const owners[] = {dead_heap(), &commons};
    void *blocks[2][10], *all[20];
    uint32_t first[2];
    for (int i = 0; i < 2; i++) {
        first[i] = make_slab(owners[i], 20, blocks[i], 10);
        memcpy(&all[i * 9], blocks[i], 9 * sizeof *all);
    }
    remote_give(NULL, all, 18);
    for (int i = 0; i < 2; i++) CHECK_EQ(inbox_of(owners[i]), first[i]); /* giving takes no lock */
    remote_settle();
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(inbox_of(owners[i]), 0);
        CHECK_EQ(slab_at(first[i])->free, slab_classes[20].blocks - 1);
        remote_give(NULL, &blocks[i][9], 1);
    }
    remote_settle();
    for (int i = 0; i < 2; i++) CHECK_EQ(page_word(first[i]), 0);
    remote_settle(); /* and there is nothing to do */
}

/* A slab that hangs in a dead heap's inbox, and meanwhile belongs to another one. */
TEST(the_dead_pass_on_too) {
    struct heap *dead = dead_heap(), *live = make_heap(HEAP_LIVE);
    void *blocks[10];
    uint32_t first = make_slab(dead, 20, blocks, 10);
    remote_give(NULL, blocks, 3);
    change_owner(first, dead, &commons);
    remote_settle();
    CHECK_EQ(inbox_of(dead), 0);
    CHECK_EQ(inbox_of(&commons), 0);
    CHECK_EQ(slab_at(first)->free, slab_classes[20].blocks - 7);
    remote_give(NULL, blocks + 3, 3);
    change_owner(first, &commons, live);
    remote_settle();
    CHECK_EQ(inbox_of(&commons), 0);
    CHECK_EQ(inbox_of(live), first);
    CHECK_EQ(drain(live), 3);
    remote_give(NULL, blocks + 6, 4);
    CHECK_EQ(drain(live), 4);
    CHECK_EQ(page_word(first), 0);
}

/* ---- fork --------------------------------------------------------------------------------------- */

enum { CHILD_SECONDS = CHECK_SHADOWED ? 60 : 10 };

static void *settle(void *unused) {
    remote_settle();
    return unused;
}

static void *outlive_another(void *inner) {
    heap_free(heap_alloc(100, NULL), NULL);
    *(struct heap **)inner = dead_heap();
    heap_of_thread = thread_heap();
    return NULL;
}

/* Of two threads that lived at the same time: or the second would begin with the heap of the first. */
static void make_two_dead(struct heap *dead[2]) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, outlive_another, &dead[0]), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    dead[1] = heap_of_thread;
    CHECK(dead[0] != dead[1]);
}

static void settle_in_child(struct heap *const owners[3], void *blocks[3][10]) {
    alarm(CHILD_SECONDS);
    remote_settle();
    for (int i = 0; i < 3; i++) CHECK_AT(inbox_of(owners[i]) == 0, i);
    for (int i = 0; i < 3; i++) remote_give(NULL, &blocks[i][1], 1);
    remote_settle();
    for (int i = 0; i < 3; i++) CHECK_AT(inbox_of(owners[i]) == 0, i);
    for (int i = 0; i < 3; i++) CHECK_AT(!atomic_load(&owners[i]->undrained), i);
}

/* A thread has taken all that is marked, and waits for the lock of the first, which no fork takes, when its process forks. */
TEST(a_child_finds_what_others_were_about_to_drain) {
    struct heap *owners[3] = {&commons}, *first = make_heap(HEAP_DEAD);
    make_two_dead(owners + 1);
    void *blocks[3][10], *of_first[10];
    for (int i = 0; i < 3; i++) {
        make_slab(owners[i], 20, blocks[i], 10);
        remote_give(NULL, blocks[i], 1);
    }
    CHECK_EQ(drain(owners[2]), 1); /* it stays marked, with nothing to drain */
    make_slab(first, 20, of_first, 10);
    remote_give(NULL, of_first, 1); /* the last that is pushed is the first that is drained */
    os_lock_take(&first->lock);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, settle, NULL), 0);
    while (atomic_load(&first->undrained)) sched_yield();
    for (int i = 0; i < 3; i++) CHECK_AT(atomic_load(&owners[i]->undrained), i);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        settle_in_child(owners, blocks);
        _exit(0);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
    os_lock_drop(&first->lock);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 3; i++) CHECK_AT(inbox_of(owners[i]) == 0, i);
}

TEST(random_owners) {
    enum { HEAPS = 3, SLABS = 12, EACH = 60 };
    struct heap *heaps[HEAPS], *owner[SLABS];
    static void *blocks[SLABS][EACH];
    uint32_t first[SLABS], left[SLABS], waiting = 0;
    struct rng rng = {check_now.seed};
    for (int i = 0; i < HEAPS; i++) heaps[i] = make_heap(HEAP_LIVE);
    for (int s = 0; s < SLABS; s++) {
        owner[s] = heaps[0];
        first[s] = make_slab(heaps[0], 10, blocks[s], left[s] = EACH);
    }
    for (size_t i = 0; i < 3000; i++) {
        size_t s = rng_below(&rng, SLABS);
        if (rng_below(&rng, 2) && left[s] > 1) { /* the last block stays, and with it the slab */
            remote_give(NULL, &blocks[s][--left[s]], 1);
            waiting++;
        } else if (rng_below(&rng, 2)) {
            struct heap *to = heaps[rng_below(&rng, HEAPS)];
            change_owner(first[s], owner[s], to);
            owner[s] = to;
        } else {
            waiting -= drain(heaps[rng_below(&rng, HEAPS)]);
        }
    }
    /* A slab is passed on until its owner finds it. */
    for (int round = 0; round < HEAPS; round++)
        for (int i = 0; i < HEAPS; i++) waiting -= drain(heaps[i]);
    CHECK_EQ(waiting, 0);
    for (int s = 0; s < SLABS; s++) CHECK_EQ(slab_at(first[s])->free, slab_classes[10].blocks - left[s]);
}

/* ---- threads ------------------------------------------------------------------------------------ */

enum { GIVERS = 3, SHARE = 60, ROUNDS = 300 };
static struct {
    void *blocks[SHARE];
    _Atomic size_t count; /* set by the owner, cleared by the giver */
} share[GIVERS];

static void *give_all_rounds(void *argument) {
    size_t which = (size_t)(uintptr_t)argument;
    for (size_t round = 0; round < check_count(ROUNDS); round++) {
        size_t count;
        while ((count = atomic_load_explicit(&share[which].count, memory_order_acquire)) == 0) sched_yield();
        for (size_t at = 0; at < count; at += 6) {
            remote_give(NULL, &share[which].blocks[at], count - at < 6 ? count - at : 6);
            remote_settle();
        }
        atomic_store_explicit(&share[which].count, 0, memory_order_release);
    }
    return NULL;
}

TEST(threads_give_to_one_owner) {
    struct heap *owner = make_heap(HEAP_LIVE);
    pthread_t threads[GIVERS];
    for (size_t i = 0; i < GIVERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, give_all_rounds, (void *)(uintptr_t)i), 0);
    for (size_t round = 0; round < check_count(ROUNDS); round++) {
        uint32_t out = 0;
        for (unsigned slab = 0; slab < 3; slab++) {
            void *blocks[GIVERS * SHARE / 3];
            make_slab(owner, 8 + slab * 4, blocks, GIVERS * SHARE / 3);
            for (size_t i = 0; i < GIVERS * SHARE / 3; i++, out++)
                share[out % GIVERS].blocks[out / GIVERS] = blocks[i];
        }
        for (size_t i = 0; i < GIVERS; i++) atomic_store_explicit(&share[i].count, SHARE, memory_order_release);
        while (out != 0) out -= drain(owner); /* none is lost, or this never ends */
        for (size_t i = 0; i < GIVERS; i++)
            while (atomic_load_explicit(&share[i].count, memory_order_acquire) != 0) sched_yield();
    }
    for (size_t i = 0; i < GIVERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    drain(owner);
    CHECK_EQ(inbox_of(owner), 0);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) CHECK_EQ(owner->bins[class].slab_count, 0);
}
