/* outside_test.c - blocks that do not lie in the window.
 *
 * Planted defects it was seen to catch:
 *   a slot that is emptied keeps its address     a_block_and_its_end
 *   find looks at the first table only           more_than_the_first_table_holds
 *   a block that cannot be remembered is kept    refusals_lose_nothing
 *   the alignment is dropped                     every_alignment
 *   a part is searched from end to end           searches_are_short
 *   what was refused is counted                  refusals_lose_nothing
 *   what was freed stays counted                 a_block_and_its_end
 *   what cannot be unmapped stays resident       what_cannot_be_unmapped_is_not_resident
 */
#include "blocks.h"
#include "child.h"
#include "faults/fail_calls.h"
#include "os/os.h"
#include "os_counts.h"
#include "region/outside.h"

#include <sched.h>

enum { THREADS = 4, MANY = 6000 };

static bool totals_are(uint64_t blocks, uint64_t bytes) {
    return counter_read(&outside_totals.blocks) == blocks && counter_read(&outside_totals.bytes) == bytes;
}

TEST(a_block_and_its_end) {
    const uint64_t others = counter_read(&outside_totals.blocks), other_bytes = counter_read(&outside_totals.bytes);
    size_t page = os_page_bytes();
    const size_t sizes[] = {0, 1, 16, page - 1, page, page + 1, MIB(3), MIB(3) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t before = mapped_bytes();
        char *block = outside_map(sizes[i], 16);
        CHECK_AT(block != NULL, sizes[i]);
        size_t usable = outside_bytes(block);
        CHECK_AT(usable >= sizes[i] && usable > 0 && usable < sizes[i] + 2 * page, sizes[i]);
        CHECK(block_is_zero(block, usable));
        memset(block, 'x', usable);
        CHECK_EQ(outside_bytes(block + 1), 0);
        CHECK_EQ(outside_bytes(block + 16), 0);
        CHECK(totals_are(others + 1, other_bytes + usable));
        CHECK(!outside_unmap(block + 16));
        CHECK(outside_unmap(block));
        CHECK_EQ(outside_bytes(block), 0);
        CHECK(!outside_unmap(block));
        CHECK(totals_are(others, other_bytes));
        CHECK_EQ(mapped_bytes(), before);
    }
}

TEST(what_is_no_block) {
    int here;
    CHECK_EQ(outside_bytes(NULL), 0);
    for (uintptr_t mark = 1; mark < 16; mark++) { /* some are marks of slots */
        CHECK_EQ(outside_bytes((void *)mark), 0);
        CHECK(!outside_unmap((void *)mark));
    }
    CHECK_EQ(outside_bytes(&here), 0);
    CHECK(!outside_unmap(NULL) && !outside_unmap(&here));
    CHECK(outside_map(SIZE_MAX, 16) == NULL);
    CHECK(outside_map(PTRDIFF_MAX, 16) == NULL);
    CHECK(outside_map(SIZE_MAX - 4096, 16) == NULL);
}

TEST(every_alignment) {
    for (size_t alignment = 1; alignment <= GIB(1); alignment *= 2) {
        char *block = outside_map(100, alignment);
        if (block == NULL && alignment >= MIB(64)) continue; /* little address space */
        CHECK_AT(block != NULL && is_aligned(block, alignment) && is_aligned(block, 16), alignment);
        CHECK(outside_unmap(block));
    }
}

static char *many[MANY];

/* A part is left before it is full: then it would be searched from end to end, also when it is empty again. */
static void fill_one_part(void) {
    struct outside_table *part = NULL;
    size_t unused = 0, used = 0;
    while (part == NULL || atomic_load(&part->next) == NULL) {
        CHECK(used < MANY && outside_map(1, 16) != NULL);
        used++;
        part = atomic_load(&outside_first.next);
    }
    for (size_t i = 0; i < part->slots; i++) unused += atomic_load(&part->slot[i].address) == 0;
    CHECK_AT(unused > 0 && unused < part->slots / 2, unused);
}

TEST(searches_are_short) { IN_CHILD(fill_one_part); }

TEST(more_than_the_first_table_holds) {
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < MANY; i++) {
            many[i] = outside_map(1 + i % 3 * 5000, 16);
            CHECK_AT(many[i] != NULL, i);
            memcpy(many[i], &i, sizeof i);
        }
        /* Every other one goes first, so that later ones are found behind empty slots. */
        for (size_t step = 0; step < 2; step++) {
            for (size_t i = step; i < MANY; i += 2) {
                size_t found;
                memcpy(&found, many[i], sizeof found);
                CHECK_EQ(found, i);
                CHECK_AT(outside_bytes(many[i]) > i % 3 * 5000, i);
                CHECK_AT(outside_unmap(many[i]), i);
            }
        }
        for (size_t i = 0; i < MANY; i++) CHECK_AT(outside_bytes(many[i]) == 0, i);
    }
}

TEST(refusals_lose_nothing) {
    const uint64_t others = counter_read(&outside_totals.blocks), other_bytes = counter_read(&outside_totals.bytes);
    errno = 4711;
    fail_arm(FAIL_MMAP, 1, false, 0);
    CHECK(outside_map(100, 16) == NULL);
    fail_disarm();
    /* Every table full: the mapping after a block's own is that of a table. */
    static char *filler[16384];
    size_t count = 0;
    for (bool full = false; !full; count++) {
        CHECK(count < 16384);
        uint64_t before = mapped_bytes();
        fail_arm(FAIL_MMAP, 2, true, 0);
        filler[count] = outside_map(100, 16);
        full = filler[count] == NULL;
        fail_disarm();
        if (full) CHECK_EQ(mapped_bytes(), before);
    }
    CHECK_EQ(errno, 4711);
    filler[count] = outside_map(100, 16);
    CHECK(filler[count] != NULL && outside_unmap(filler[count]));
    for (size_t i = 0; i + 1 < count; i++) CHECK_AT(outside_unmap(filler[i]), i);
    CHECK(totals_are(others, other_bytes));
}

/* As where a process has as many mappings as it may have. */
TEST(what_cannot_be_unmapped_is_not_resident) {
    const size_t bytes = MIB(32), before = resident_bytes();
    char *block = outside_map(bytes, 16);
    CHECK(block != NULL);
    memset(block, 'x', bytes);
    fail_arm(FAIL_MUNMAP, 1, false, ENOMEM);
    CHECK(outside_unmap(block));
    CHECK_EQ(fail_failed(), 1);
    fail_disarm();
    CHECK_RESIDENT(before, MIB(8));
    CHECK_EQ(outside_bytes(block), 0);
}

/* Addresses come back at once here: one thread's fresh block is often what another just unmapped. */
static void *churn(void *argument) {
    struct rng rng = {(uint64_t)(uintptr_t)argument + check_now.seed * 1000};
    char *mine[32] = {NULL};
    size_t bytes[32] = {0};
    for (size_t i = 0; i < check_count(20000); i++) {
        size_t at = rng_below(&rng, 32);
        if (mine[at] != NULL) {
            CHECK(outside_bytes(mine[at]) >= bytes[at]);
            CHECK_EQ(mine[at][0], (char)(uintptr_t)argument);
            CHECK(outside_unmap(mine[at]));
            mine[at] = NULL;
            continue;
        }
        bytes[at] = 1 + rng_below(&rng, KIB(20));
        mine[at] = outside_map(bytes[at], 16);
        CHECK(mine[at] != NULL);
        CHECK_EQ(mine[at][0], 0);
        mine[at][0] = (char)(uintptr_t)argument;
    }
    for (size_t at = 0; at < 32; at++) CHECK(mine[at] == NULL || outside_unmap(mine[at]));
    return NULL;
}

TEST(threads_keep_theirs_apart) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* Whether the two meet between finding and claiming is luck, on a machine with time for both at once likely.
 * They leave a barrier of atomics within nanoseconds of each other; one of pthread wakes them in turn. */
static _Atomic size_t arrived, wins;
static void *_Atomic contested;

static void meet(size_t round) {
    atomic_fetch_add(&arrived, 1);
    for (size_t spins = 1; atomic_load(&arrived) < 2 * round; spins++)
        if (spins % 4096 == 0) sched_yield();
}

/* Each is late by a little of its own, since whoever comes last to a meeting leaves it first. False when there is no block any more. */
static bool unmap_contested(size_t round, uint64_t who) {
    meet(2 * round - 1);
    for (volatile uint64_t late = mix64(2 * round + who) % 64; late != 0; late--) {}
    void *block = atomic_load(&contested);
    atomic_fetch_add(&wins, outside_unmap(block));
    meet(2 * round);
    return block != NULL;
}

static void *unmap_all_rounds(void *unused) {
    for (size_t round = 1; unmap_contested(round, 1);) round++;
    return unused;
}

TEST(of_two_that_unmap_one_wins) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, unmap_all_rounds, NULL), 0);
    size_t round = 1;
    for (; round <= check_count(5000) && check_has_time(); round++) {
        atomic_store(&contested, outside_map(100, 16)); /* the other waits in the next meet */
        CHECK(unmap_contested(round, 0));
        CHECK_EQ(atomic_load(&wins), round);
    }
    atomic_store(&contested, NULL);
    unmap_contested(round, 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}
