/* collect_test.c - giving back on request: hak_collect and hak_malloc_trim, in every state of the program.
 *
 * Planted defects it was seen to catch:
 *   the caller's stacks keep their blocks        all_that_was_freed_goes_back
 *   holes are left as they are                   holes_go_back_and_the_rest_stays
 *   nothing is reported                          all_that_was_freed_goes_back
 */
#include "blocks.h"
#include "child.h"
#include "hakmem/hakmem.h"

#include <sched.h>
#include <stdatomic.h>

enum { BLOCKS = 40000, BYTES = 1000 };
static void *blocks[BLOCKS];

static void fill_all(void) {
    for (size_t i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = hak_malloc(BYTES)) != NULL);
        block_fill(blocks[i], BYTES, i);
    }
}

static void free_all(void) {
    for (size_t i = 0; i < BLOCKS; i++) hak_free(blocks[i]);
}

static void collect_all(void) {
    hak_collect();
    size_t before = resident_bytes();
    fill_all();
    free_all();
    void *large = hak_malloc(MIB(30));
    memset(large, 'x', MIB(30));
    hak_free(large);
    errno = 4711;
    size_t given = hak_collect();
    CHECK_EQ(errno, 4711);
    CHECK(CHECK_SHADOWED || given >= MIB(30)); /* what is over goes by itself meanwhile */
    CHECK_RESIDENT(before, MIB(4));
    fill_all(); /* and all works as before */
    for (size_t i = 0; i < BLOCKS; i++) CHECK_AT(block_holds(blocks[i], BYTES, i), i);
    free_all();
}

TEST(all_that_was_freed_goes_back) { IN_CHILD(collect_all); }

static void collect_holes(void) {
    hak_collect();
    fill_all();
    size_t before = resident_bytes();
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % 32 != 0) hak_free(blocks[i]);
    hak_collect();
    if (!CHECK_SHADOWED) CHECK(resident_bytes() + MIB(20) <= before);
    for (size_t i = 0; i < BLOCKS; i += 32) CHECK_AT(block_holds(blocks[i], BYTES, i), i);
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % 32 != 0) CHECK((blocks[i] = hak_calloc(1, BYTES)) != NULL && block_is_zero(blocks[i], BYTES));
    free_all();
}

TEST(holes_go_back_and_the_rest_stays) { IN_CHILD(collect_holes); }

/* As glibc says: 1 when something was given back, 0 when there was nothing. */
static void trim(void) {
    fill_all();
    free_all();
    CHECK_EQ(hak_malloc_trim(0), 1);
    for (int i = 0; i < 3; i++) hak_malloc_trim(MIB(1));
    CHECK_EQ(hak_malloc_trim(SIZE_MAX), 0);
    CHECK_EQ(hak_collect(), 0);
}

TEST(trim_says_whether_there_was_something) { IN_CHILD(trim); }

static void collect_first(void) { hak_collect(); }

HELPER(collect_before_anything) {
    hak_collect();
    void *block = hak_malloc(100);
    CHECK(block != NULL);
    hak_free(block);
}

static void execute_helper(void) { become_helper("collect_before_anything"); }

TEST(in_a_program_that_did_nothing) {
    IN_CHILD(collect_first);
    IN_CHILD(execute_helper);
}

/* ---- while others work ------------------------------------------------------------------------------------- */

enum { WORKERS = 3 };
static atomic_bool workers_end;
static void *_Atomic passed_on[64];

static void *work(void *argument) {
    struct rng rng = {check_now.seed + (uintptr_t)argument};
    struct {
        void *block;
        size_t bytes;
        uint64_t key; /* no other block's */
    } slots[100] = {{0}};
    while (!atomic_load(&workers_end)) {
        size_t at = rng_below(&rng, 100);
        if (slots[at].block != NULL) {
            CHECK(block_holds(slots[at].block, slots[at].bytes, slots[at].key));
            /* Freed by another one, mostly. */
            hak_free(atomic_exchange(&passed_on[rng_below(&rng, 64)], slots[at].block));
            slots[at].block = NULL;
        } else {
            slots[at].bytes = rng_size(&rng, 200);
            CHECK((slots[at].block = hak_malloc(slots[at].bytes)) != NULL);
            block_fill(slots[at].block, slots[at].bytes, slots[at].key = rng_next(&rng));
        }
    }
    for (size_t at = 0; at < 100; at++) hak_free(slots[at].block);
    return NULL;
}

TEST(while_others_work) {
    pthread_t threads[WORKERS];
    for (uintptr_t i = 0; i < WORKERS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    for (size_t i = 0; i < check_count(300); i++) {
        hak_collect();
        sched_yield();
    }
    atomic_store(&workers_end, true);
    for (int i = 0; i < WORKERS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < 64; i++) hak_free(atomic_exchange(&passed_on[i], NULL));
    hak_collect();
}
