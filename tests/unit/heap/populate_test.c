/* populate_test.c - the option populate: of a class that has slabs the first pages of a new one are brought in at once. In children:
 * what was taken stays in the process.
 *
 * Planted defects it was seen to catch:
 *   nothing is brought in                        new_slabs_of_busy_classes_are_brought_in
 *   the option does not reach the heap           new_slabs_of_busy_classes_are_brought_in
 *   it is done without being asked for           nothing_is_brought_in_by_itself
 */
#include "blocks.h"
#include "child.h"
#include "heap/front.h"
#include "kernel.h"
#include "no_purger.h"
#include "os_counts.h"
#include "slab/slab.h"

enum { BYTES = 1000, SLABS = 20 };

static uint64_t calls_made(void) { return calls_of(OS_CALL_MADVISE_POPULATE); }

/* So many slabs more of a class that has some; none of the blocks is touched. Returns how often memory was brought in. */
static uint64_t calls_for_slabs(void) {
    const uint64_t before = calls_made();
    for (size_t i = 0; i < SLABS * slab_classes[size_class_of(BYTES)].blocks; i++) CHECK(hak_malloc(BYTES) != NULL);
    return calls_made() - before;
}

static void take_with_it(void) {
    CHECK_EQ(hak_option_set("populate", "on"), 0);
    calls_for_slabs();
    CHECK(calls_for_slabs() >= SLABS - 1);
    CHECK_EQ(hak_option_set("populate", "off"), 0);
    calls_for_slabs();
    CHECK(calls_for_slabs() < SLABS / 2);
}

TEST(new_slabs_of_busy_classes_are_brought_in) {
    if (!kernel_populates()) SKIP("the kernel populates nothing"); /* and is asked once */
    IN_CHILD(take_with_it);
}

static void take_without_it(void) {
    calls_for_slabs();
    CHECK(calls_for_slabs() < SLABS / 2); /* books may be */
}

TEST(nothing_is_brought_in_by_itself) { IN_CHILD(take_without_it); }
