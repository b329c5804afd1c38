/* free_test.c - the slow side of free: spills, the buffer of other heaps' blocks, pointers that are none of
 * ours, and resizing in place. The other heap is one of the test's own.
 *
 * Planted defects it was seen to catch:
 *   all of other heaps' blocks are kept, or none others_blocks_are_used_again
 *   few of them are kept, or a stream for ever   a_stream_of_others_blocks_is_kept
 *   a spill takes them for the heap's own        others_blocks_go_home_with_a_spill
 *   the buffer is bounded by count only          other_heaps_blocks_go_home_together
 *   a full buffer loses its last block           other_heaps_blocks_go_home_together
 *   a full stack is not spilled                  a_full_stack_spills
 *   interior pointers of large blocks are taken  pointers_that_are_none_of_ours
 *   half-empty blocks are kept by resize         resizing_in_place
 *   what libc frees starts a heap                what_libc_frees_starts_no_heap
 *   blocks of no thread's heap are on their way  the_first_blocks_that_a_thread_frees_start_no_heap
 *   free buffers medium blocks, one of a stream, what is none, or in a handler what its thread is just buffering; it keeps
 *   a stream for ever, or more of it than it may
 *                                                what_free_buffers_by_itself
 */
#include <hakmem/hakmem.h>

#include "heap/alloc.h"
#include "heap/buffer.h"
#include "heap/thread.h"
#include "own_heap.h"
#include "region/outside.h"
#include "threads.h"

#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/wait.h>

/* COUNT blocks of OTHER's, in as many slabs as they need. */
static void take_of(struct heap *other, unsigned class, void **blocks, uint32_t count) {
    for (uint32_t got = 0; got < count;) {
        bool zero;
        add_slab(other, class);
        got += bin_fill(other, class, blocks + count - got, count - got, &zero);
    }
}

static size_t waiting_in(struct heap *heap) { return buffer_held(heap); }

/* As if many of others' blocks had been freed already. */
static void begin_stream(struct heap *heap, unsigned class) {
    heap->bins[class].streams = true;
    heap->front.stream_left[class] = STREAM_TRUST;
    stack_set_keeping(heap, class, true);
}

static void give_stack_back(struct heap *heap, unsigned class) {
    os_lock_take(&heap->lock);
    stack_empty(heap, class);
    os_lock_drop(&heap->lock);
}

static void give_buffer_back(struct heap *heap) {
    os_lock_take(&heap->lock);
    buffer_give_all(heap, NULL);
    os_lock_drop(&heap->lock);
}

TEST(others_blocks_are_used_again) {
    enum { BYTES = 1000, TAKEN = 64 };
    static void *blocks[TAKEN];
    const unsigned class = size_class_of(BYTES);
    struct heap *other = make_heap(HEAP_LIVE), *mine;
    heap_free(heap_alloc(100, NULL), NULL);
    mine = thread_heap();
    give_stack_back(mine, class);
    begin_stream(mine, class);
    uint32_t most = ace_kept(mine->bins[class].depth);
    size_t waiting = waiting_in(mine);
    CHECK(most >= 2 && most < TAKEN);
    take_of(other, class, blocks, TAKEN);
    for (uint32_t i = 0; i < most; i++) heap_free(blocks[i], NULL);
    CHECK_EQ(stack_held(mine, class), most);
    CHECK_EQ(waiting_in(mine), waiting);
    heap_free(blocks[most], NULL); /* it only frees, perhaps: that much is enough */
    CHECK_EQ(stack_held(mine, class), most);
    CHECK_EQ(waiting_in(mine), waiting + 1);
    for (uint32_t i = most; i > 0; i--) CHECK(heap_alloc(BYTES, NULL) == blocks[i - 1]);
    for (uint32_t i = 0; i < TAKEN; i++)
        if (i != most) heap_free(blocks[i], NULL);
    give_stack_back(mine, class);
    give_buffer_back(mine);
    CHECK_EQ(drain(other), TAKEN);
    CHECK_EQ(other->bins[class].slab_count, 0);
}

/* A few are sent home: what is allocated instead is the thread's own, whose way is the fast one. Those that were are counted as
 * they go. Of a stream every now and then as many are, to see whether it is one still. */
TEST(a_stream_of_others_blocks_is_kept) {
    enum { BYTES = 200, SMALL_BYTES = 16 };
    struct heap *other = make_heap(HEAP_LIVE), *mine;
    heap_free(heap_alloc(BYTES, NULL), NULL);
    mine = thread_heap();
    const unsigned classes[] = {size_class_of(BYTES), size_class_of(SMALL_BYTES)};
    _Static_assert(STREAM_PROOF % REMOTE_BLOCKS == 0, "a proof is so many full buffers");
    for (int k = 0; k < 2; k++) {
        void *block;
        give_stack_back(mine, classes[k]);
        uint64_t kept = 0;
        const uint32_t count = 2 * STREAM_PROOF + STREAM_TRUST - 1;
        for (uint32_t i = 0; i < count; i++) {
            take_of(other, classes[k], &block, 1);
            if (!front_push(block)) heap_free(block, NULL);
            bool is_kept = stack_held(mine, classes[k]) == 1;
            bool is_proven = i >= STREAM_PROOF && i < STREAM_PROOF + STREAM_TRUST;
            CHECK_AT(is_kept == is_proven, i);
            kept += is_kept;
            if (!is_kept) continue;
            give_stack_back(mine, classes[k]);
            stack_set_keeping(mine, classes[k], true);
        }
        CHECK_EQ(kept, STREAM_TRUST);
        give_buffer_back(mine);
    }
}

TEST(others_blocks_go_home_with_a_spill) {
    enum { BYTES = 3000 };
    static void *blocks[256], *own[4096];
    const unsigned class = size_class_of(BYTES);
    struct heap *other = make_heap(HEAP_LIVE), *mine;
    heap_free(heap_alloc(BYTES, NULL), NULL);
    mine = thread_heap();
    for (size_t i = 0; i < 4096; i++) CHECK((own[i] = heap_alloc(BYTES, NULL)) != NULL);
    give_stack_back(mine, class);
    begin_stream(mine, class);
    uint32_t kept = ace_kept(mine->bins[class].depth);
    CHECK(kept <= 256);
    take_of(other, class, blocks, kept);
    for (uint32_t i = 0; i < kept; i++) heap_free(blocks[i], NULL);
    CHECK_EQ(stack_held(mine, class), kept);
    for (size_t i = 0; i < 4096; i++) heap_free(own[i], NULL);
    CHECK_EQ(drain(other), kept);
    CHECK_EQ(other->bins[class].slab_count, 0);
}

TEST(what_free_buffers_by_itself) {
    enum { CLASS = 5, MEDIUM = SMALL_CLASSES + 1 };
    struct heap *other = make_heap(HEAP_LIVE);
    void *blocks[4], *medium;
    heap_free(heap_alloc(100, NULL), NULL);
    struct heap *mine = thread_heap();
    give_buffer_back(mine);
    take_of(other, CLASS, blocks, 4);
    take_of(other, MEDIUM, &medium, 1);
    CHECK(front_push(blocks[0]));
    CHECK_EQ(waiting_in(mine), 1);
    CHECK_EQ(buffer_held_bytes(mine), slab_classes[CLASS].block_bytes);

    give_stack_back(mine, CLASS);
    begin_stream(mine, CLASS);
    CHECK(front_push(blocks[1])); /* into the stack */
    CHECK(waiting_in(mine) == 1 && stack_held(mine, CLASS) == 1);
    CHECK_EQ(mine->front.stream_left[CLASS], STREAM_TRUST - 1);
    CHECK(heap_alloc(slab_classes[CLASS].block_bytes, NULL) == blocks[1]);
    mine->front.keep[CLASS] = mine->bins[CLASS].stack; /* which holds enough of them */
    CHECK(!front_push(blocks[1]) && stack_held(mine, CLASS) == 0);
    begin_stream(mine, CLASS);
    mine->front.stream_left[CLASS] = 1; /* the last is counted elsewhere */
    CHECK(!front_push(blocks[1]) && mine->bins[CLASS].streams);
    hak_free(blocks[1]);
    CHECK(stack_held(mine, CLASS) == 1 && !mine->bins[CLASS].streams && mine->front.stream_left[CLASS] == STREAM_PROOF);
    CHECK(heap_alloc(slab_classes[CLASS].block_bytes, NULL) == blocks[1]);
    CHECK(front_push(blocks[1])); /* into the buffer */
    CHECK_EQ(waiting_in(mine), 2);

    thread_state.busy = true; /* as a handler that came meanwhile */
    CHECK(!front_push(blocks[2]));
    CHECK(thread_state.busy);
    thread_state.busy = false;
    CHECK(front_push(blocks[2]));
    CHECK(!thread_state.busy);

    CHECK(!front_push(medium));
    void *large = heap_alloc(MIB(3), NULL);
    CHECK(!front_push(large));
    heap_free(large, NULL);
    CHECK(!front_push(large)); /* no block any more */
    CHECK_EQ(waiting_in(mine), 3);
    heap_free(blocks[3], NULL);
    give_buffer_back(mine);
    CHECK_EQ(drain(other), 4);
    CHECK_EQ(other->bins[CLASS].slab_count, 0);
}

static void *free_only(void *block) {
    hak_free(block);
    return thread_has_heap() ? block : NULL;
}

/* And they are where they belong: in the child of a fork beside it a slab on its way home would never arrive. */
TEST(the_first_blocks_that_a_thread_frees_start_no_heap) {
    pthread_t thread;
    void *block = hak_malloc(100), *heap_of_thread;
    const uint64_t taken = thread_heap()->bins[size_class_of(100)].taken_blocks;
    CHECK_EQ(pthread_create(&thread, NULL, free_only, block), 0);
    CHECK_EQ(pthread_join(thread, &heap_of_thread), 0);
    CHECK(heap_of_thread == NULL);
    CHECK(!remote_has_some(thread_heap()));
    CHECK_EQ(thread_heap()->bins[size_class_of(100)].taken_blocks, taken - 1);
}

/* So many as a dying thread may free of others' that died before it. */
static void *free_for_libc(void *place) {
    enum { FREED = 40 };
    void **const blocks = place;
    const void *libc = dlsym(RTLD_DEFAULT, "qsort");
    for (int i = 0; i < FREED; i++) heap_free(blocks[i], libc);
    CHECK(!thread_has_heap());
    for (int i = FREED; i < 2 * FREED; i++) heap_free(blocks[i], (const void *)(uintptr_t)&free_only);
    CHECK(thread_has_heap());
    return NULL;
}

TEST(what_libc_frees_starts_no_heap) {
    static void *blocks[80];
    if (getauxval(AT_BASE) == 0) OMIT("linked statically");
    if (CHECK_SHADOWED) OMIT("the sanitizer's functions stand before libc's");
    for (int i = 0; i < 80; i++) CHECK((blocks[i] = hak_malloc(100)) != NULL);
    run_thread(free_for_libc, blocks);
}

TEST(other_heaps_blocks_go_home_together) {
    static void *blocks[3 * REMOTE_BLOCKS];
    struct heap *other = make_heap(HEAP_LIVE), *mine;
    heap_free(heap_alloc(100, NULL), NULL);
    mine = thread_heap();
    CHECK(mine != NULL);
    CHECK_EQ(waiting_in(mine), 0);
    take_of(other, 2, blocks, 3 * REMOTE_BLOCKS); /* small ones: by count */
    for (uint32_t i = 0; i < 3 * REMOTE_BLOCKS; i++) {
        heap_free(blocks[i], NULL);
        CHECK_EQ(waiting_in(mine), (i + 1) % REMOTE_BLOCKS);
        CHECK_EQ(atomic_load(&other->inbox) != 0, i + 1 >= REMOTE_BLOCKS);
    }
    CHECK_EQ(drain(other), 3 * REMOTE_BLOCKS);
    CHECK_EQ(other->bins[2].slab_count, 0);

    const unsigned class = size_class_of(8000); /* large ones: by bytes */
    uint32_t bytes = slab_classes[class].block_bytes, most = (REMOTE_BYTES + bytes - 1) / bytes;
    take_of(other, class, blocks, 3 * most);
    for (uint32_t i = 0; i < 3 * most; i++) {
        heap_free(blocks[i], NULL);
        CHECK_EQ(waiting_in(mine), (i + 1) % most);
    }
    CHECK_EQ(drain(other), 3 * most);
}

TEST(a_full_stack_spills) {
    const unsigned class = size_class_of(6000);
    static void *blocks[4000];
    heap_free(heap_alloc(6000, NULL), NULL);
    struct heap *heap = thread_heap();
    struct bin *bin = &heap->bins[class];
    for (size_t i = 0; i < 4000; i++) CHECK((blocks[i] = heap_alloc(6000, NULL)) != NULL);
    uint64_t spills = bin->spills, slabs = bin->slab_count;
    for (size_t i = 0; i < 4000; i++) {
        heap_free(blocks[i], NULL);
        CHECK_AT(stack_held(heap, class) <= bin->depth, i);
        CHECK_AT(stack_top(heap, class)[-1] == blocks[i], i); /* the newest is on top */
    }
    CHECK(bin->spills > spills);
    CHECK(bin->slab_count < slabs / 4); /* slabs that emptied went back */
    CHECK(heap_alloc(6000, NULL) == blocks[3999]);
    heap_free(blocks[3999], NULL);
}

TEST(errno_is_kept) {
    void *small = heap_alloc(100, NULL), *medium = heap_alloc(KIB(300), NULL), *large = heap_alloc(MIB(3), NULL), *outside = outside_map(100, 16);
    errno = 4711;
    heap_free(small, NULL);
    heap_free(medium, NULL);
    heap_free(large, NULL);
    heap_free(outside, NULL);
    heap_free(NULL, NULL);
    CHECK_EQ(errno, 4711);
    CHECK_EQ(heap_usable_bytes(NULL), 0);
}

TEST(resizing_in_place) {
    for (size_t bytes = 1; bytes <= SMALL_MAX_BYTES; bytes += bytes / 5 + 1) {
        void *block = heap_alloc(bytes, NULL);
        size_t usable = heap_usable_bytes(block);
        CHECK(heap_resize(block, usable) == block);
        CHECK(!heap_resize(block, usable + 1));
        CHECK(heap_resize(block, usable / 2) == block);
        /* Less than half: a smaller block is worth the copy, if there is one. */
        void *smaller = heap_resize(block, usable / 2 - 1);
        CHECK_AT(smaller == (usable == SMALLEST_BLOCK_BYTES ? block : NULL), usable);
        heap_free(block, NULL);
    }
    void *large = heap_alloc(MIB(4), NULL), *outside = outside_map(MIB(1), 16);
    CHECK(heap_resize(large, MIB(3)) == large);
    CHECK_EQ(heap_usable_bytes(large), MIB(3));
    CHECK(!heap_resize(large, 100));
    CHECK(heap_resize(outside, MIB(1) / 2) == outside && !heap_resize(outside, MIB(1) / 2 - 1));
    CHECK(!heap_resize(outside, MIB(1) + 1));
    heap_free(large, NULL);
    heap_free(outside, NULL);
}

/* ---- in children --------------------------------------------------------------------------------- */

static int status_of(void (*body)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY);
        alarm(60);
        dup2(quiet, STDERR_FILENO); /* what is said is tested elsewhere */
        body();
        _exit(0);
    }
    int status = -1;
    while (waitpid(child, &status, 0) < 0) CHECK_EQ(errno, EINTR);
    return status;
}

static const void *seen;
static size_t seen_count;

static size_t see(void *block, enum heap_foreign_use use) {
    seen = block;
    seen_count++;
    return use == HEAP_FOREIGN_SIZE ? 77 : 0;
}

static void free_foreign(void) {
    static char of_program[64];
    char local[64], *large = heap_alloc(MIB(3), NULL), *outside = outside_map(KIB(64), 16);
    void *const foreign[] = {local,
                             of_program,
                             large + 16,
                             large + PAGE_BYTES,
                             large + MIB(3) - 16,
                             outside + 16,
                             outside + 4096,
                             page_address(0),
                             page_address(CHUNK_PAGES - 1),
                             page_address(window.pages - 1),
                             page_address(window.pages),
                             (void *)(uintptr_t)16,
                             (void *)(uintptr_t)-16};
    heap_start(&(struct heap_options){.thread_cache_bytes = MIB(2), .decay = ACE_NEVER, .foreign = see});
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        heap_free(foreign[i], NULL);
        CHECK_AT(seen == foreign[i] && seen_count == 2 * i + 1, i);
        CHECK_EQ(heap_usable_bytes(foreign[i]), 77);
        CHECK_AT(seen_count == 2 * i + 2, i);
    }
    seen_count = 0;
    heap_free(large, NULL);
    heap_free(outside, NULL);
    CHECK_EQ(seen_count, 0);
    heap_free(large, NULL);
    heap_free(outside, NULL);
    CHECK_EQ(seen_count, 2);
}

TEST(pointers_that_are_none_of_ours) { CHECK_EQ(status_of(free_foreign), 0); }

/* Found when the stack spills, at the latest at the thread's end. */
static void free_and_spill(char *first, char *second) {
    static void *blocks[400];
    for (size_t i = 0; i < 400; i++) blocks[i] = heap_alloc(10000, NULL);
    heap_free(first, NULL);
    heap_free(second, NULL);
    for (size_t i = 0; i < 400; i++) heap_free(blocks[i], NULL);
}

static void free_twice(void) {
    char *block = heap_alloc(10000, NULL);
    free_and_spill(block, block);
}

static void free_misaligned(void) {
    char *block = heap_alloc(10000, NULL);
    free_and_spill(block, block + 16);
}

static void free_twice_what_is_anothers(void) {
    struct heap *other = make_heap(HEAP_LIVE);
    void *blocks[REMOTE_BLOCKS];
    heap_free(heap_alloc(100, NULL), NULL);
    take_of(other, 2, blocks, REMOTE_BLOCKS);
    blocks[7] = blocks[200];
    for (size_t i = 0; i < REMOTE_BLOCKS; i++) heap_free(blocks[i], NULL);
}

TEST(misuse_ends_the_process) {
    void (*const misuses[])(void) = {free_twice, free_misaligned, free_twice_what_is_anothers};
    for (size_t i = 0; i < 3; i++) {
        int status = status_of(misuses[i]);
        CHECK_AT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, i);
    }
}
