/* thread_test.c - heaps come and go with threads: reuse, adoption, and what destructors do. How what waits is
 * retired: retire_test.c.
 *
 * Planted defects it was seen to catch:
 *   a heap is not given back at its thread's end heaps_are_used_again
 *   slabs stay with the dead heap                what_a_thread_leaves_is_adopted
 *   any idle heap will do                        a_thread_takes_the_heap_of_its_processor
 *   what it frees tells a thread nothing         a_thread_takes_the_heap_whose_blocks_it_frees
 *   a parked heap's blocks go the long way home  a_thread_takes_the_heap_whose_blocks_it_frees
 *   a heap is emptied at its thread's end        the_next_thread_begins_with_what_the_last_left
 *   any number of heaps waits                    so_many_wait_and_no_more
 *   the buffer of remote blocks stays too        what_a_thread_leaves_is_adopted
 *   the dead thread's front stays in place       destructors_use_the_commons
 *   deep stacks are all brought in               deep_stacks_cost_what_is_used_of_them
 *   a heap gets no addresses of free memory      a_heap_gets_what_is_free
 */
#include "blocks.h"
#include "child.h"
#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/footprint.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "heaps.h"
#include "leaver.h"
#include "no_purger.h"
#include "reveal.h"
#include "region/books.h"

#include <sys/resource.h>

static struct heap *heap_of_thread;

static void *use_many_classes(void *unused) {
    void *blocks[SIZE_CLASSES];
    for (unsigned class = 0; class < SIZE_CLASSES; class += 7) {
        blocks[class] = heap_alloc(slab_classes[class].block_bytes, NULL);
        CHECK(blocks[class] != NULL);
    }
    heap_of_thread = thread_heap();
    CHECK(heap_of_thread != NULL && atomic_load(&heap_of_thread->state) == HEAP_LIVE);
    for (unsigned class = 0; class < SIZE_CLASSES; class += 7) heap_free(blocks[class], NULL);
    return unused;
}

TEST(heaps_are_used_again) {
    for (int i = 0; i < 100; i++) run_thread(use_many_classes, NULL); /* until its stacks are as deep as they get */
    struct heap *first = heap_of_thread;
    struct sum before = sum_of_heaps();
    uint64_t books = books_bytes();
    for (size_t i = 0; i < check_count(10000); i++) {
        run_thread(use_many_classes, NULL);
        CHECK_AT(heap_of_thread == first, i);
        CHECK_EQ(atomic_load(&first->state), HEAP_DEAD);
    }
    struct sum after = sum_of_heaps();
    CHECK_EQ(books_bytes(), books);
    CHECK_EQ(after.heaps, before.heaps);
    CHECK_EQ(after.slabs, before.slabs);
}

static pthread_barrier_t all_began;

/* Moves the calling thread. */
TEST(a_thread_takes_the_heap_of_its_processor) {
    enum { EACH = 3 };
    cpu_set_t allowed;
    CHECK_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int cpus[2], count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed)) cpus[count++] = cpu;
    if (count < 2) SKIP("one processor");
    struct heap *heaps[2][EACH];
    for (int i = 0; i < count; i++)
        for (int n = 0; n < EACH; n++) CHECK((heaps[i][n] = registry_take(0)) != NULL);
    for (int n = 0; n < EACH; n++) {
        for (int i = 0; i < count; i++) {
            move_to(cpus[i]);
            registry_give(heaps[i][n]);
        }
    }
    /* The last of each first, whatever the others gave meanwhile. */
    for (int n = EACH; n-- > 0;) {
        for (int i = 0; i < count; i++) {
            move_to(cpus[i]);
            CHECK_AT(registry_take(0) == heaps[i][n], n);
        }
    }
    CHECK_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    for (int i = 0; i < count; i++)
        for (int n = 0; n < EACH; n++) registry_give(heaps[i][n]);
}

enum { FREED = 40, FREED_BYTES = 700, BEFORE_A_HEAP = 8 };

struct freed {
    void *blocks[FREED];
    struct heap *heap;
};

static void *allocate_for_another(void *argument) {
    struct freed *const freed = argument;
    for (size_t i = 0; i < FREED; i++) CHECK((freed->blocks[i] = heap_alloc(FREED_BYTES, NULL)) != NULL);
    freed->heap = thread_heap();
    return NULL;
}

static void *allocate_beside_others(void *argument) {
    allocate_for_another(argument);
    pthread_barrier_wait(&all_began);
    return NULL;
}

static void *free_of_another(void *argument) {
    const struct freed *const freed = argument;
    const unsigned class = size_class_of(FREED_BYTES);
    const size_t held = stack_held(freed->heap, class);
    for (size_t i = 0; i < BEFORE_A_HEAP; i++) heap_free(freed->blocks[i], NULL);
    CHECK(thread_heap() == NULL);
    CHECK_EQ(stack_held(freed->heap, class), held + BEFORE_A_HEAP);
    for (size_t i = BEFORE_A_HEAP; i < FREED; i++) heap_free(freed->blocks[i], NULL);
    CHECK(thread_heap() == freed->heap);
    CHECK_EQ(buffer_held(freed->heap), 0);
    return NULL;
}

/* Whichever waits in front. */
TEST(a_thread_takes_the_heap_whose_blocks_it_frees) {
    enum { THREADS = 4 };
    struct freed freed[THREADS];
    pthread_t threads[THREADS];
    const uint32_t processors = heap_settings.processors;
    heap_settings.processors = THREADS; /* each has slabs of its own */
    for (size_t from = 0; from < THREADS; from++) {
        CHECK_EQ(pthread_barrier_init(&all_began, NULL, THREADS), 0);
        for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, allocate_beside_others, &freed[i]), 0);
        for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(pthread_barrier_destroy(&all_began), 0);
        const uint64_t in_use = footprint_in_use();
        for (size_t i = 0; i < THREADS; i++) run_thread(free_of_another, &freed[(from + i) % THREADS]);
        CHECK(footprint_in_use() <= in_use - THREADS * FREED * FREED_BYTES);
    }
    heap_settings.processors = processors;
}

enum { LEFT = 900, LEFT_BYTES = 1792 };
static void *left[LEFT], *given_away[100];

static void *leave_blocks(void *unused) {
    for (size_t i = 0; i < LEFT; i++) {
        CHECK((left[i] = heap_alloc(LEFT_BYTES, NULL)) != NULL);
        block_fill(left[i], LEFT_BYTES, i);
    }
    for (size_t i = 0; i < LEFT; i++)
        if (i % 3 != 0) heap_free(left[i], NULL);
    for (size_t i = 0; i < 100; i++) heap_free(given_away[i], NULL);
    leaver = thread_heap();
    CHECK_EQ(buffer_held(leaver), 100);
    return unused;
}

TEST(what_a_thread_leaves_is_adopted) {
    const unsigned class = size_class_of(LEFT_BYTES);
    for (size_t i = 0; i < 100; i++) CHECK((given_away[i] = heap_alloc(2000, NULL)) != NULL);
    struct heap *mine = thread_heap();
    run_thread(leave_blocks, NULL);
    /* The blocks of this thread that the other freed came back at its end. */
    CHECK_EQ(sum_of_heaps().waiting, 0);
    CHECK(atomic_load(&mine->inbox) != 0);
    os_lock_take(&mine->lock);
    CHECK_EQ(remote_drain(mine), 100);
    os_lock_drop(&mine->lock);

    uint32_t slabs = (uint32_t)leaver->bins[class].slab_count;
    CHECK(leaver->parked && slabs >= LEFT / slab_classes[class].blocks);
    struct span_counts before, after;
    span_counts_read(&before);
    static void *blocks[LEFT / 2];
    for (size_t i = 0; i < LEFT / 2; i++) CHECK((blocks[i] = heap_alloc(LEFT_BYTES, NULL)) != NULL);
    span_counts_read(&after);
    CHECK_EQ(after.taken, before.taken); /* no new slab while there are old ones */
    CHECK(mine->bins[class].adopted_slabs >= slabs / 2);
    for (size_t i = 0; i < LEFT; i += 3) CHECK_AT(block_holds(left[i], LEFT_BYTES, i), i);
    for (size_t i = 0; i < LEFT; i += 3) heap_free(left[i], NULL);
    for (size_t i = 0; i < LEFT / 2; i++) heap_free(blocks[i], NULL);
}

/* ---- parked heaps -------------------------------------------------------------------------------- */

static void *begin_with_it(void *unused) {
    const unsigned class = size_class_of(FEW_BYTES);
    move_to(cpu_of_leaver);
    heap_free(heap_alloc(16, NULL), NULL);
    CHECK(thread_heap() == leaver && !leaver->parked);
    uint64_t refills = counter_read(&leaver->bins[class].refills);
    size_t held = stack_held(leaver, class);
    CHECK(held >= FEW / 2);
    for (size_t i = 0; i < held; i++) CHECK((left[i] = heap_alloc(FEW_BYTES, NULL)) != NULL);
    CHECK_EQ(stack_held(leaver, class), 0);
    CHECK_EQ(counter_read(&leaver->bins[class].refills), refills);
    for (size_t i = 0; i < held; i++) heap_free(left[i], NULL);
    return unused;
}

TEST(the_next_thread_begins_with_what_the_last_left) {
    uint64_t in_use = footprint_in_use();
    run_thread(leave_few, NULL);
    CHECK(leaver->parked);
    CHECK(footprint_in_use() <= in_use + 2 * FEW_BYTES); /* what lies in its stacks counts as free */
    run_thread(begin_with_it, NULL);
    CHECK(leaver->parked);
    CHECK(footprint_in_use() <= in_use + 2 * FEW_BYTES);
}

/* Blocks of the class are found, and whatever else it holds stays with it. */
TEST(others_take_what_they_lack_from_a_parked_heap) {
    const unsigned class = size_class_of(FEW_BYTES);
    run_thread(leave_few, NULL);
    uint32_t total = atomic_load(&leaver->slab_total), slabs = (uint32_t)leaver->bins[class].slab_count;
    CHECK(slabs != 0 && total > slabs);
    CHECK(!salvage_slab(size_class_of(60000))); /* of which it holds none */
    CHECK(salvage_slab(class));
    CHECK(leaver->parked);
    CHECK_EQ(leaver->bins[class].slab_count, slabs - 1);
    CHECK_EQ(stack_held(leaver, class), 0);
    CHECK_EQ(atomic_load(&leaver->slab_total), total - 1);
    CHECK_EQ(commons.bins[class].slab_count, 1);
    heap_free(heap_alloc(FEW_BYTES, NULL), NULL);
    CHECK_EQ(commons.bins[class].slab_count, 0);
}

static void *leave_one_beside_others(void *block) {
    CHECK((*(void **)block = heap_alloc(FEW_BYTES, NULL)) != NULL);
    pthread_barrier_wait(&all_began);
    return NULL;
}

/* As many as a thread that begins would look at. */
TEST(so_many_wait_and_no_more) {
    enum { THREADS = REGISTRY_WAITING + 9 };
    pthread_t threads[THREADS];
    void *blocks[THREADS];
    const uint32_t processors = heap_settings.processors;
    heap_settings.processors = THREADS; /* each has a slab of its own */
    CHECK_EQ(pthread_barrier_init(&all_began, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, leave_one_beside_others, &blocks[i]), 0);
    for (size_t i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    unsigned waiting = 0;
    for (struct heap *heap = registry_first(); heap != NULL; heap = heap->next) waiting += heap->parked;
    CHECK_EQ(waiting, REGISTRY_WAITING);
    CHECK(commons.bins[size_class_of(FEW_BYTES)].slab_count != 0); /* what the others had is there for all */
    for (size_t i = 0; i < THREADS; i++) heap_free(blocks[i], NULL);
    CHECK_EQ(pthread_barrier_destroy(&all_began), 0);
    reveal_all(); /* nobody waits with something in the next test */
    heap_settings.processors = processors;
}

/* ---- destructors ------------------------------------------------------------------------ */

static pthread_key_t key;
static int rounds_of_destructor, rounds_without_heap;

/* Libc calls it again as long as it sets its value; the heap goes after the first round at the latest. */
static void use_in_destructor(void *value) {
    heap_free(value, NULL);
    void *block = heap_alloc(700, NULL), *large = heap_alloc(MIB(3), NULL);
    CHECK(block != NULL && large != NULL);
    heap_free(large, NULL);
    if (thread_heap() == NULL) {
        rounds_without_heap++;
        CHECK(thread_front() == &front_constants.gone);
        CHECK_EQ(page_word(page_index(block)), heap_word(&commons, size_class_of(700)));
    }
    if (++rounds_of_destructor < 3) CHECK_EQ(pthread_setspecific(key, block), 0);
    else heap_free(block, NULL);
}

static void *end_with_destructor(void *unused) {
    CHECK_EQ(pthread_setspecific(key, heap_alloc(700, NULL)), 0);
    return unused;
}

TEST(destructors_use_the_commons) {
    CHECK_EQ(pthread_key_create(&key, use_in_destructor), 0);
    for (int i = 0; i < 50; i++) {
        struct sum before = sum_of_heaps();
        rounds_of_destructor = rounds_without_heap = 0;
        run_thread(end_with_destructor, NULL);
        CHECK_EQ(rounds_of_destructor, 3);
        CHECK(rounds_without_heap >= 2);
        if (i > 0) CHECK_EQ(sum_of_heaps().slabs, before.slabs);
    }
    pthread_key_delete(key);
}

/* Stacks that an option made deep, of threads that use little of them. */
static void begin_with_deep_stacks(void) {
    enum { HEAPS = 16, POPULATED_SLOTS = 4096 };
    uint16_t depths[SIZE_CLASSES];
    heap_settings.objective = ACE_SPEED;
    stack_set_depths(NULL, false);
    CHECK_AT(stack_first_slots() <= POPULATED_SLOTS, stack_first_slots()); /* the depths that are not set are all brought in */
    heap_settings.objective = ACE_BALANCED;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) depths[class] = 8192;
    stack_set_depths(depths, false);
    CHECK(stack_first_slots() * sizeof(void *) > MIB(1));
    struct heap *waiting;
    while (registry_idle(&waiting, 1) != 0) registry_take(0); /* those begun before have their stacks */
    const size_t before = resident_bytes();
    for (int i = 0; i < HEAPS; i++) CHECK(registry_take(0) != NULL);
    CHECK_RESIDENT(before, HEAPS * (sizeof(struct heap) + KIB(96)));
}

TEST(deep_stacks_cost_what_is_used_of_them) { IN_CHILD(begin_with_deep_stacks); }

static void *begin_after_all(void *unused) {
    pthread_barrier_wait(&all_began);
    void *block = heap_alloc(100, NULL);
    CHECK(block != NULL && thread_heap() != NULL);
    heap_free(block, NULL);
    return unused;
}

/* A thread begins where a limit leaves nothing more, and much is free. */
static void begin_under_a_limit(void) {
    enum { BLOCKS = 64 };
    void *blocks[BLOCKS];
    pthread_t thread;
    CHECK_EQ(pthread_barrier_init(&all_began, NULL, 2), 0);
    CHECK_EQ(pthread_create(&thread, NULL, begin_after_all, NULL), 0);
    for (size_t i = 0; i < BLOCKS; i++) CHECK((blocks[i] = heap_alloc(MIB(3), NULL)) != NULL);
    struct heap *waiting;
    while (registry_idle(&waiting, 1) != 0) CHECK(registry_take(0) != NULL);
    CHECK_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){MIB(1), RLIM_INFINITY}), 0);
    if (os_map(MIB(1), os_page_bytes()) != NULL) SKIP("limits do not hold here"); /* in an emulator */
    while (books_take(KIB(1)) != NULL) {}
    for (size_t i = 0; i < BLOCKS; i++) heap_free(blocks[i], NULL);
    CHECK_EQ(setrlimit(RLIMIT_AS, &(struct rlimit){address_space_bytes(), RLIM_INFINITY}), 0);
    pthread_barrier_wait(&all_began);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

TEST(a_heap_gets_what_is_free) {
    if (CHECK_SHADOWED) OMIT("shadow memory is beyond any limit");
    IN_CHILD(begin_under_a_limit);
}
