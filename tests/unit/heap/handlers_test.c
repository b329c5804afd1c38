/* handlers_test.c - signal handlers that allocate and free while their thread gives back what its stacks hold.
 *
 * Planted defects it was seen to catch:
 *   what a handler frees meanwhile is written over       a_block_that_a_handler_frees_is_not_lost
 *   a handler pops a block that is being given back      a_handler_has_its_blocks_alone
 */
#include "interrupted.h"

#include "medium.h"
#include "no_purger.h"
#include "watch/stats.h"

enum { SMALL = 64, KEPT = 8, FILLED = 500, OWN = 200 };

/* ---- pushed meanwhile ------------------------------------------------------------------------------------ */

static void *volatile prepared;

static void free_prepared(void) {
    void *block = prepared;
    prepared = NULL;
    heap_free(block, NULL);
}

static void keep_and_collect(void) {
    if (prepared == NULL) prepared = heap_alloc(KIB(128));
    take_and_give(KIB(128), KEPT);
    heap_collect();
}

static void pushed(void) {
    struct stats_class class;
    settle(KIB(128), KEPT);
    CHECK_EQ(kept_of(KIB(128)), KEPT);
    interrupted(keep_and_collect, free_prepared);
    free_prepared();
    heap_collect();
    stats_read_class(size_class_of(KIB(128)), &class);
    CHECK(class.slabs == 0 && class.live_blocks == 0);
}
TEST(a_block_that_a_handler_frees_is_not_lost) { IN_CHILD(pushed); }

/* ---- popped meanwhile ------------------------------------------------------------------------------------ */

static unsigned char *of_handler[OWN];
static volatile size_t had;

static void take_some(void) {
    for (int i = 0; i < 2 && had < OWN; i++) {
        unsigned char *block = heap_alloc(SMALL);
        memset(block, 0x11, SMALL);
        of_handler[had] = block;
        had = had + 1;
    }
}

static void fill_and_collect(void) {
    unsigned char *blocks[FILLED];
    for (size_t i = 0; i < FILLED; i++) {
        CHECK((blocks[i] = heap_alloc(SMALL)) != NULL);
        memset(blocks[i], 0x22, SMALL);
    }
    for (size_t i = 0; i < FILLED; i++) heap_free(blocks[i], NULL);
    heap_collect();
}

static void popped(void) {
    interrupted(fill_and_collect, take_some);
    fill_and_collect();
    for (size_t i = 0; i < had; i++)
        for (size_t at = 0; at < SMALL; at++) CHECK_AT(of_handler[i][at] == 0x11, i);
}
TEST(a_handler_has_its_blocks_alone) { IN_CHILD(popped); }
