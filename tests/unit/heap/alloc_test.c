/* alloc_test.c - the slow side of malloc: every size and alignment, refills, zeroes, threads without a
 * heap, signal handlers, and no memory.
 *
 * Planted defects it was seen to catch:
 *   a refill takes all that the stack holds      a_refill_fills_half_a_stack
 *   an aligned request is not rounded up         every_size_and_alignment
 *   every refilled block is said to be zero      zero_means_zero
 *   a refused return passes for zeros            zero_where_the_kernel_refuses
 *   calloc clears what is zero                   what_is_zero_is_not_cleared
 *   calloc brings in what nobody touched         what_was_handed_out_and_not_touched_stays_away
 *   whatever is refused empties every stack      what_can_not_be_had_costs_nobody
 *   what others gave back waits                  what_others_gave_back_comes_before_what_nobody_used
 *   a busy thread takes its lock again           a_handler_gets_blocks_outside: watchdog
 *   without memory the lock stays taken          without_memory: watchdog
 */
#include "base/bits.h"
#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "heap/alloc.h"
#include "heap/heap.h"
#include "heap/stack.h"
#include "heap/thread.h"
#include "no_purger.h"
#include "region/outside.h"

TEST(every_size_and_alignment) {
    for (size_t bytes = 0; bytes <= MEDIUM_MAX_BYTES + MIB(1); bytes += bytes < 1200 ? 1 : bytes < KIB(192) ? 331 : 4099) {
        char *block = heap_alloc(bytes, NULL);
        CHECK_AT(block != NULL && is_aligned(block, 16), bytes);
        size_t usable = heap_usable_bytes(block);
        CHECK_AT(usable >= bytes && usable <= bytes + bytes / 4 + 64 + (bytes > SMALL_MAX_BYTES) * PAGE_BYTES, bytes);
        const size_t before = bytes > SMALL_MAX_BYTES ? (uintptr_t)block % PAGE_BYTES : 0; /* see colour.h */
        if (bytes <= MEDIUM_MAX_BYTES) CHECK_EQ(usable + before, slab_classes[size_class_of(bytes)].block_bytes);
        memset(block, 'x', usable);
        heap_free(block, NULL);
    }
    for (size_t alignment = 1; alignment <= GIB(1); alignment *= 2) {
        for (size_t bytes = 0; bytes <= 2 * MEDIUM_MAX_BYTES; bytes = bytes * 3 / 2 + 1) {
            char *blocks[3];
            for (size_t i = 0; i < 3; i++) {
                blocks[i] = heap_alloc_aligned(bytes, alignment);
                if (blocks[i] == NULL && alignment >= MIB(64)) continue; /* little address space */
                CHECK_AT(blocks[i] != NULL && is_aligned(blocks[i], alignment), alignment);
                CHECK_AT(heap_usable_bytes(blocks[i]) >= bytes, bytes);
                blocks[i][0] = 'x';
                if (bytes > 0) blocks[i][bytes - 1] = 'x';
            }
            for (size_t i = 0; i < 3; i++) heap_free(blocks[i], NULL);
        }
    }
    CHECK(heap_alloc(SIZE_MAX, NULL) == NULL && heap_alloc((size_t)PTRDIFF_MAX + 1, NULL) == NULL);
    CHECK(heap_alloc_aligned(SIZE_MAX, 16) == NULL && heap_alloc_aligned(SIZE_MAX - 15, 4096) == NULL);
}

/* A thread that has done nothing yet; malloc of other parts of libc may have used any class before. */
static void *refill_in_a_fresh_heap(void *unused) {
    for (unsigned class = 3; class < ALIGNED_CLASS; class += 4) {
        size_t bytes = slab_classes[class].block_bytes;
        void *block = heap_alloc(bytes, NULL);
        struct heap *heap = thread_heap();
        CHECK(block != NULL && heap != NULL);
        const struct bin *bin = &heap->bins[class];
        CHECK_EQ(page_word(page_index(block)), heap_word(heap, class));
        uint32_t half = bin->depth / 2;
        CHECK_EQ(stack_held(heap, class), half - 1);
        uint64_t refills = bin->refills;
        void *blocks[8192];
        for (uint32_t i = 0; i + 1 < half; i++) CHECK((blocks[i] = heap_alloc(bytes, NULL)) != NULL);
        CHECK_EQ(bin->refills, refills); /* they were there */
        for (uint32_t i = 1; i + 1 < half; i++) CHECK_AT(blocks[i] > blocks[i - 1], class); /* lowest first */
        for (uint32_t i = 0; i + 1 < half; i++) heap_free(blocks[i], NULL);
        heap_free(block, NULL);
        CHECK_EQ(stack_held(heap, class), half);
    }
    return unused;
}

TEST(a_refill_fills_half_a_stack) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, refill_in_a_fresh_heap, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* There is no memory for a slab, and what other heaps had of the size is taken. */
static void refuse_refills(void) {
    enum { BYTES = 1300, TRIES = 40 };
    hak_free(hak_malloc(16));
    const struct bin *bin = &thread_heap()->bins[size_class_of(BYTES)];
    span_configure(&(struct span_settings){.decay_half_life_ms = ACE_NEVER, .huge_from_pages = UINT64_MAX, .hard_pages = 1});
    while (heap_alloc(BYTES, NULL) != NULL) {
    }
    const uint64_t refills = counter_read(&bin->refills);
    const uint32_t depth = bin->depth, recent = bin->recent_refills;
    for (int i = 0; i < TRIES; i++) CHECK(heap_alloc(BYTES, NULL) == NULL);
    CHECK(bin->depth == depth && bin->recent_refills == recent && counter_read(&bin->refills) == refills);
}

TEST(what_is_refused_deepens_no_stack) { IN_CHILD(refuse_refills); }

TEST(zero_means_zero) {
    struct rng rng = {check_now.seed};
    static char *blocks[200];
    for (size_t i = 0; i < check_count(4000); i++) {
        size_t at = rng_below(&rng, 200), bytes = rng_size(&rng, 8);
        if (i % 100 == 0) bytes = MIB(8) - 1 + rng_below(&rng, MIB(8)); /* some of it cleared by the kernel */
        heap_free(blocks[at], NULL);
        blocks[at] = heap_alloc_zero(bytes, NULL);
        CHECK(blocks[at] != NULL);
        CHECK_AT(block_is_zero(blocks[at], bytes), bytes);
        memset(blocks[at], 0xee, heap_usable_bytes(blocks[at]));
    }
    for (size_t at = 0; at < 200; at++) heap_free(blocks[at], NULL);
}

/* How many bytes of the whole pages inside a block are there. */
static size_t resident_inside(const char *block, size_t bytes) {
    const size_t page = os_page_bytes();
    char *from = (char *)round_up((uintptr_t)block, page), *to = (char *)round_down((uintptr_t)block + bytes, page);
    return os_resident_bytes(from, (size_t)(to - from));
}

static void zero_but_untouched(void) {
    enum { COUNT = 60, BYTES = KIB(12) };
    static char *blocks[COUNT];
    size_t resident = 0;
    heap_collect();
    for (size_t i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = heap_alloc_zero(BYTES, NULL)) != NULL);
        blocks[i][0] = 'x'; /* as a program would that uses little of each */
        resident += resident_inside(blocks[i] + os_page_bytes(), BYTES - os_page_bytes());
    }
    CHECK_EQ(resident, 0);
    const struct bin *bin = &thread_heap()->bins[size_class_of(BYTES)];
    for (size_t i = 0; i < COUNT; i++) memset(blocks[i], 'x', BYTES);
    for (size_t i = 0; i < COUNT; i++) heap_free(blocks[i], NULL);
    const uint64_t refills = counter_read(&bin->refills);
    for (size_t i = 0; i < COUNT; i++) { /* what is dirty comes by half a stack, as it does to malloc */
        CHECK((blocks[i] = heap_alloc_zero(BYTES, NULL)) != NULL);
        CHECK_AT(block_is_zero(blocks[i], BYTES), i);
    }
    CHECK(counter_read(&bin->refills) - refills < COUNT / 2);
    for (size_t i = 0; i < COUNT; i++) heap_free(blocks[i], NULL);
}

TEST(what_is_zero_is_not_cleared) {
    if (os_page_bytes() > KIB(4)) OMIT("a block of this size has no page of its own");
    IN_CHILD(zero_but_untouched);
}

static void clear_what_nobody_touched(void) {
    enum { BYTES = MIB(24) }; /* too little for huge pages */
    heap_collect();           /* what earlier tests left may have some */
    for (int i = 0; i < 3; i++) { /* the first is fresh, the others were handed out before */
        char *block = heap_alloc_zero(BYTES, NULL);
        CHECK(block != NULL && block[BYTES / 2] == 0);
        block[BYTES / 2] = 'x';
        CHECK_AT(resident_inside(block, BYTES) < MIB(1), i);
        heap_free(block, NULL);
    }
}

TEST(what_was_handed_out_and_not_touched_stays_away) {
    if (os_page_bytes() > KIB(4)) OMIT("an emulator that plays such a kernel counts other pages");
    IN_CHILD(clear_what_nobody_touched);
}

static void hopeless(void) {
    enum { COUNT = 100 };
    const unsigned class = size_class_of(100);
    void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) CHECK((blocks[i] = heap_alloc(100, NULL)) != NULL);
    for (size_t i = 0; i < COUNT; i++) heap_free(blocks[i], NULL);
    const size_t held = stack_held(thread_heap(), class);
    CHECK(held != 0);
    CHECK(heap_alloc((size_t)1 << 62, NULL) == NULL);
    CHECK(heap_alloc_aligned(100, (size_t)1 << 62) == NULL);
    CHECK_EQ(stack_held(thread_heap(), class), held);
}

/* What threads keep is not given back for what there can never be. */
TEST(what_can_not_be_had_costs_nobody) { IN_CHILD(hopeless); }

/* So often that it is seen among the counts of coverage, which do not add up where threads went on while they were written. */
TEST(zero_where_the_kernel_refuses) {
    enum { TIMES = 40 };
    for (int i = 0; i < TIMES; i++) {
        char *block = heap_alloc(MIB(8), NULL);
        CHECK(block != NULL);
        memset(block, 0xee, MIB(8));
        heap_free(block, NULL);
        fail_arm(FAIL_MADVISE, 1, true, 0);
        block = heap_alloc_zero(MIB(8), NULL);
        CHECK(fail_failed() != 0); /* it was asked to clear */
        fail_disarm();
        CHECK(block != NULL && block_is_zero(block, MIB(8)));
        heap_free(block, NULL);
    }
}

/* As after the thread's last destructor: everything comes from the commons and goes there. */
TEST(a_thread_without_a_heap) {
    struct thread_state state = thread_state;
    thread_forgo_heap();
    void *blocks[300], *large = heap_alloc(MIB(3), NULL);
    for (size_t i = 0; i < 300; i++) {
        blocks[i] = heap_alloc(208, NULL);
        CHECK(blocks[i] != NULL);
        CHECK_EQ(page_word(page_index(blocks[i])), heap_word(&commons, size_class_of(208)));
        block_fill(blocks[i], 208, i);
    }
    CHECK(large != NULL);
    heap_free(large, NULL);
    for (size_t i = 0; i < 300; i++) {
        CHECK(block_holds(blocks[i], 208, i));
        heap_free(blocks[i], NULL);
    }
    CHECK_EQ(commons.bins[size_class_of(208)].slab_count, 0); /* given back as they came */
    CHECK_EQ(atomic_load(&commons.inbox), 0);
    thread_state = state;
}

static char *of_handler[3];
static void *for_handler[3];

static void allocate_in_handler(int number) {
    (void)number;
    of_handler[0] = heap_alloc(3000, NULL);
    of_handler[1] = heap_alloc_aligned(100, 4096);
    of_handler[2] = heap_alloc_zero(MIB(3), NULL);
    for (size_t i = 0; i < 3; i++) heap_free(for_handler[i], NULL);
}

/* The handler runs while this thread is in a slow path and holds its heap's lock. */
TEST(a_handler_gets_blocks_outside) {
    struct span_counts before, after;
    unsigned class = size_class_of(24000);
    void *stay = heap_alloc(24000, NULL); /* so that its slab stays */
    for_handler[0] = heap_alloc(24000, NULL);
    for_handler[1] = heap_alloc(MIB(3), NULL);
    for_handler[2] = NULL;
    struct heap *heap = thread_heap();
    CHECK(heap != NULL && stay != NULL && for_handler[0] != NULL && for_handler[1] != NULL);
    signal(SIGUSR1, allocate_in_handler);
    span_counts_read(&before);
    CHECK(slow_enter());
    os_lock_take(&heap->lock);
    /* As a full stack would: the front must not serve the handler. */
    atomic_store_explicit(&heap->front.hi[class], stack_top(heap, class), memory_order_relaxed);
    unsigned asked = size_class_of(3000), aligned = size_class_of(4096);
    atomic_store_explicit(&heap->front.lo[asked], stack_top(heap, asked), memory_order_relaxed);
    atomic_store_explicit(&heap->front.lo[aligned], stack_top(heap, aligned), memory_order_relaxed);
    raise(SIGUSR1);
    atomic_store_explicit(&heap->front.hi[class], heap->bins[class].stack + heap->bins[class].depth,
                          memory_order_relaxed);
    os_lock_drop(&heap->lock);
    slow_leave();
    for (size_t i = 0; i < 3; i++) {
        CHECK_AT(of_handler[i] != NULL && !window_holds(of_handler[i]), i);
        CHECK_AT(outside_bytes(of_handler[i]) == heap_usable_bytes(of_handler[i]), i);
    }
    CHECK(is_aligned(of_handler[1], 4096) && outside_bytes(of_handler[2]) >= MIB(3));
    for (size_t i = 0; i < 3; i++) heap_free(of_handler[i], NULL);
    CHECK_EQ(outside_bytes(of_handler[0]), 0);
    /* What it freed is taken in by the next slow paths: the large block, and the small one by a drain. */
    heap_free(heap_alloc(MIB(3), NULL), NULL);
    span_counts_read(&after);
    CHECK(after.given >= before.given + 2);
    CHECK_EQ(atomic_load(&heap->inbox), slab_head(page_index(for_handler[0])));
    heap_free(stay, NULL);
}

/* A handler in the middle of a slow path that has just been refused memory. */
TEST(a_handler_leaves_what_was_refused) {
    CHECK(slow_enter());
    os_refusal.error = ENOMEM;
    heap_free(heap_alloc(MIB(3), NULL), NULL);
    const int error = os_refusal.error;
    os_refusal_forget();
    slow_leave();
    CHECK_EQ(error, ENOMEM);
}

TEST(without_memory) {
    enum { MOST = 200000 };
    static void *blocks[MOST];
    size_t count = 0;
    /* Earlier tests left some GiB of free pages; none is touched here. */
    fail_arm(FAIL_ANY, 1, true, 0);
    while (count < MOST && (blocks[count] = heap_alloc(65536, NULL)) != NULL) count++;
    CHECK(count < MOST);
    CHECK(heap_alloc(GIB(1), NULL) == NULL && heap_alloc_aligned(100, MIB(64)) == NULL);
    for (int i = 0; i < 100; i++) CHECK(heap_alloc(65536, NULL) == NULL);
    CHECK(count > 0);
    heap_free(blocks[--count], NULL);
    CHECK(heap_alloc(65536, NULL) == blocks[count]); /* what is there can be had */
    fail_disarm();
    void *block = heap_alloc(65536, NULL);
    CHECK(block != NULL);
    heap_free(block, NULL);
    for (size_t i = 0; i <= count; i++) heap_free(blocks[i], NULL);
}

/* ---- what others gave back ------------------------------------------------------------------------------- */

enum { GIVEN_MOST = 200, GIVEN_BYTES = 3000 }; /* of which no other test has any */

static void *given_away[GIVEN_MOST];
static size_t given_count;

static void *give_back(void *unused) {
    heap_free(heap_alloc(16, NULL), NULL); /* so that it has a heap, and a buffer */
    for (size_t i = 0; i < given_count; i++) heap_free(given_away[i], NULL);
    return unused;
}

static bool is_given(const void *block) {
    for (size_t i = 0; i < given_count; i++)
        if (given_away[i] == block) return true;
    return false;
}

TEST(what_others_gave_back_comes_before_what_nobody_used) {
    const unsigned class = size_class_of(GIVEN_BYTES);
    pthread_t thread;
    void *kept_here = heap_alloc(GIVEN_BYTES, NULL); /* so that its slab is not free as a whole */
    CHECK(kept_here != NULL);
    bin_note_returned(&thread_heap()->bins[class], 1); /* some came back before */
    given_count = 0;
    do { /* until its stack is empty, with a few that go away */
        CHECK((given_away[given_count++] = heap_alloc(GIVEN_BYTES, NULL)) != NULL);
    } while (given_count < 3 || stack_held(thread_heap(), class) != 0);
    const uint32_t carved = slab_at(slab_head(page_index(given_away[0])))->carved;
    CHECK(carved < slab_classes[class].blocks); /* there are some that nobody used */
    CHECK_EQ(pthread_create(&thread, NULL, give_back, NULL), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    void *again[GIVEN_MOST];
    for (size_t i = 0; i < given_count; i++) {
        CHECK((again[i] = heap_alloc(GIVEN_BYTES, NULL)) != NULL);
        CHECK_AT(is_given(again[i]), i);
    }
    CHECK_EQ(slab_at(slab_head(page_index(again[0])))->carved, carved);
    for (size_t i = 0; i < given_count; i++) heap_free(again[i], NULL);
    heap_free(kept_here, NULL);
}
