/* footprint_test.c - how much is in use, and how much could be given back: two estimates that never run away.
 *
 * Planted defects it was seen to catch:
 *   the peak is not raised                       what_goes_out_of_use_can_be_returned
 *   giving back lowers the peak below the use    more_than_there_is_may_be_returned
 *   settled forgets nothing                      what_goes_out_of_use_can_be_returned
 */
#include "blocks.h"
#include "heap/footprint.h"
#include "no_purger.h"

/* What libc uses counts, too. */
static int64_t base;

static int64_t in_use(void) { return (int64_t)footprint_in_use() - base; }

static void start(void) {
    base = (int64_t)footprint_in_use();
    footprint_settled(footprint_in_use());
}

TEST(what_goes_out_of_use_can_be_returned) {
    start();
    footprint_add((int64_t)MIB(100));
    CHECK_EQ(in_use(), MIB(100));
    CHECK_EQ(footprint_returnable(), 0);
    footprint_add(-(int64_t)MIB(70));
    CHECK_EQ(in_use(), MIB(30));
    CHECK_EQ(footprint_returnable(), MIB(70));
    footprint_add((int64_t)MIB(20)); /* used again */
    CHECK_EQ(footprint_returnable(), MIB(50));
    footprint_returned(MIB(10));
    CHECK_EQ(footprint_returnable(), MIB(40));
    CHECK_EQ(in_use(), MIB(50));
    footprint_settled(footprint_in_use());
    CHECK_EQ(footprint_returnable(), 0);
    footprint_add((int64_t)MIB(10)); /* a new peak */
    footprint_add(-(int64_t)MIB(60));
    CHECK_EQ(footprint_returnable(), MIB(60));
    CHECK_EQ(in_use(), 0);
    footprint_settled(footprint_in_use());
}

TEST(more_than_there_is_may_be_returned) {
    start();
    footprint_add((int64_t)MIB(100));
    footprint_add(-(int64_t)MIB(20));
    footprint_returned(GIB(5)); /* what was never counted */
    CHECK_EQ(footprint_returnable(), 0);
    CHECK_EQ(in_use(), MIB(80));
    footprint_add(-(int64_t)MIB(30));
    CHECK_EQ(footprint_returnable(), MIB(30));
    footprint_add(-(int64_t)MIB(50));
    footprint_settled(footprint_in_use());
}

TEST(less_than_nothing_is_nothing) {
    start();
    footprint_add(-(int64_t)GIB(1) - base);
    CHECK_EQ(footprint_in_use(), 0);
    CHECK_EQ(footprint_returnable(), GIB(1) + (uint64_t)base);
    footprint_add((int64_t)GIB(1) + base);
    CHECK_EQ(in_use(), 0);
    CHECK_EQ(footprint_returnable(), 0);
}

enum { THREADS = 4 };

static void *add_and_take(void *argument) {
    struct rng rng = {check_now.seed + (uintptr_t)argument};
    int64_t own = 0;
    for (size_t i = 0; i < check_count(100000); i++) {
        int64_t change = (int64_t)rng_below(&rng, 200000) - 100000;
        own += change;
        footprint_add(change);
        if (i % 100 == 0) footprint_returned(rng_below(&rng, 50000));
    }
    footprint_add(-own);
    return NULL;
}

TEST(threads_add_up) {
    pthread_t threads[THREADS];
    footprint_add((int64_t)GIB(100));
    start();
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, add_and_take, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(in_use() < (int64_t)MIB(1) && in_use() > -(int64_t)MIB(1)); /* but for what libc keeps */
    footprint_add(-(int64_t)GIB(100));
}
