/* supply_test.c - what comes with a new slab.
 *
 * Planted defects it was seen to catch:
 *   the first slab of a class is populated, too   by_the_table
 *   population grows without end                  by_the_table
 */
#include "ace/supply.h"
#include "blocks.h"

TEST(by_the_table) {
    static const struct {
        struct ace_supply_input input;
        struct ace_supply_decision supply;
    } table[] = {
#define ROW(slabs, objective, pages, why) {{slabs, ACE_##objective}, {pages, ACE_SUPPLY_##why}}
        ROW(0, BALANCED, 0, FIRST),  ROW(1, BALANCED, 2, FIRST),   ROW(2, BALANCED, 4, FIRST),
        ROW(3, BALANCED, 8, DENSE),  ROW(4, BALANCED, 16, DENSE),  ROW(8, BALANCED, 256, DENSE),
        ROW(9, BALANCED, 256, DENSE), ROW(UINT32_MAX, BALANCED, 256, DENSE),
        ROW(0, SPEED, 0, FIRST),     ROW(1, SPEED, 4, DENSE),      ROW(8, SPEED, 512, DENSE),
        ROW(0, SMALL, 0, FIRST),     ROW(3, SMALL, 4, FIRST),      ROW(6, SMALL, 32, DENSE),
        ROW(UINT32_MAX, SMALL, 128, DENSE),
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ace_supply_decision supply = ace_supply(table[i].input);
        CHECK_AT(supply.populate_pages == table[i].supply.populate_pages, i);
        CHECK_AT(supply.reason == table[i].supply.reason, i);
    }
}
