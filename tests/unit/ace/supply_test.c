/* supply_test.c - what comes with a new slab.
 *
 * Planted defects it was seen to catch:
 *   the first slab of a class is populated, too   by_the_table
 *   population grows without end                  by_the_table
 *   long blocks fill like short ones              short_blocks_fill
 */
#include "ace/supply.h"
#include "blocks.h"

TEST(by_the_table) {
    static const struct {
        struct ace_supply_input input;
        struct ace_supply_decision supply;
    } table[] = {
#define ROW(slabs, objective, pages, why) {{slabs, 8192, 4096, ACE_##objective}, {pages, ACE_##why}}
        ROW(0, BALANCED, 0, SPARSE),  ROW(1, BALANCED, 2, SPARSE),   ROW(2, BALANCED, 4, SPARSE),
        ROW(3, BALANCED, 8, DENSE),  ROW(4, BALANCED, 16, DENSE),  ROW(8, BALANCED, 256, DENSE),
        ROW(9, BALANCED, 256, DENSE), ROW(UINT32_MAX, BALANCED, 256, DENSE),
        ROW(0, SPEED, 0, SPARSE),     ROW(1, SPEED, 4, DENSE),      ROW(8, SPEED, 512, DENSE),
        ROW(0, SMALL, 0, SPARSE),     ROW(3, SMALL, 4, SPARSE),      ROW(6, SMALL, 32, DENSE),
        ROW(UINT32_MAX, SMALL, 128, DENSE),
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ace_supply_decision supply = ace_supply(table[i].input);
        CHECK_AT(supply.populate_pages == table[i].supply.populate_pages, i);
        CHECK_AT(supply.fill == table[i].supply.fill, i);
    }
}

/* Blocks so short that what is written first, their beginning, is on nearly every page. */
TEST(short_blocks_fill) {
    struct ace_supply_input input = {.slabs = 3, .block_bytes = 16, .page_bytes = 4096, .objective = ACE_BALANCED};
    CHECK_EQ(ace_supply(input).fill, ACE_FULL);
    input.block_bytes = 4681;
    CHECK_EQ(ace_supply(input).fill, ACE_FULL);
    input.block_bytes = 4682;
    CHECK_EQ(ace_supply(input).fill, ACE_DENSE);
    input.page_bytes = 16384;
    CHECK_EQ(ace_supply(input).fill, ACE_FULL);
    input.slabs = 2;
    CHECK_EQ(ace_supply(input).fill, ACE_SPARSE);
}
