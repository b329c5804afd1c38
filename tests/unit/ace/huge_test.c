/* huge_test.c - when huge pages are asked for.
 *
 * Planted defects it was seen to catch:
 *   what will not be filled is admitted   admission
 *   so is a block of any size             admission
 *   what fills waits for as much as the rest   admission
 *   what lacks much is mended             what_is_mended
 *   a chunk of which little is resident is collapsed, or much is brought in, or none after a peak   what_is_collapsed
 */
#include "ace/huge.h"
#include "blocks.h"

TEST(admission) {
    static const struct {
        struct ace_huge_input input;
        bool admitted;
    } table[] = {
        {{500, 11, 512, ACE_DENSE}, false},
        {{500, 12, 512, ACE_DENSE}, true},
        {{500, 12, 512, ACE_SPARSE}, false},
        {{1 << 20, 1, 512, ACE_SPARSE}, false},
        {{1 << 30, 1 << 20, UINT64_MAX, ACE_DENSE}, false},
        /* much larger than what is in use */
        {{0, 512, 512, ACE_DENSE}, false},
        {{170, 341, 512, ACE_DENSE}, false},
        {{171, 342, 512, ACE_DENSE}, true},
        {{171, 343, 512, ACE_DENSE}, false},
        {{1000, 2000, 512, ACE_DENSE}, true},
        {{1000, 2001, 512, ACE_DENSE}, false},
        /* but a block that grows */
        {{0, 511, 512, ACE_GROWN}, false},
        {{0, 512, 512, ACE_GROWN}, true},
        {{1000, 8000, 512, ACE_GROWN}, true},
        {{1 << 30, 1 << 20, UINT64_MAX, ACE_GROWN}, false},
        /* slabs that fill, from half of it on */
        {{255, 1, 512, ACE_FULL}, true},
        {{254, 1, 512, ACE_FULL}, false},
        {{255, 1, 512, ACE_DENSE}, false},
        {{1 << 30, 1, UINT64_MAX, ACE_FULL}, false},
        {{0, 1, 0, ACE_FULL}, true},
        /* from the first byte */
        {{0, 1, 0, ACE_DENSE}, true},
        {{0, 1 << 20, 0, ACE_DENSE}, true},
        {{0, 1, 0, ACE_SPARSE}, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        CHECK_AT(ace_huge_admits(table[i].input) == table[i].admitted, i);
    CHECK_EQ(ace_huge_full_from(512), 256);
    CHECK_EQ(ace_huge_from_bytes(ACE_BALANCED), MIB(8));
    CHECK_EQ(ace_huge_from_bytes(ACE_SPEED), MIB(4));
    CHECK_EQ(ace_huge_from_bytes(ACE_SMALL), MIB(64));
}

TEST(what_is_touched) {
    CHECK_EQ(ace_huge_touched_least(800, ACE_BALANCED), 300);
    CHECK_EQ(ace_huge_touched_least(100, ACE_SMALL), 75);
    CHECK_EQ(ace_huge_touched_least(100, ACE_SPEED), 25);
    CHECK_EQ(ace_huge_touched_least(0, ACE_SMALL), 0);
}

TEST(how_much_more_before_it_is_looked_again) {
    CHECK_EQ(ace_huge_most(800, 300, ACE_BALANCED), 75);
    CHECK_EQ(ace_huge_most(800, 699, ACE_BALANCED), 174);
    CHECK_EQ(ace_huge_most(800, 700, ACE_BALANCED), UINT64_MAX);
    CHECK_EQ(ace_huge_most(800, 600, ACE_SMALL), 150);
    CHECK_EQ(ace_huge_most(800, 200, ACE_SPEED), UINT64_MAX);
}

TEST(what_is_collapsed) {
    static const struct {
        struct ace_collapse_input input;
        bool collapses;
    } table[] = {
        {{0, 0, 1600, 0, ACE_BALANCED}, true}, /* nothing is brought in */
        {{1600, 900, 1600, 0, ACE_SMALL}, true}, /* after a peak at which much was */
        {{799, 0, 1600, 100, ACE_BALANCED}, false},
        {{800, 0, 1600, 100, ACE_BALANCED}, true},
        {{1599, 100, 1600, 100, ACE_BALANCED}, false},
        {{1600, 100, 1600, 100, ACE_BALANCED}, true},
        {{400, 0, 1600, 100, ACE_SPEED}, true},
        {{399, 0, 1600, 100, ACE_SPEED}, false},
        {{25600, 0, 1600, 100, ACE_SMALL}, true},
        {{25599, 0, 1600, 100, ACE_SMALL}, false},
        {{UINT64_MAX, 0, 1600, 800, ACE_SPEED}, true}, /* half is there */
        {{UINT64_MAX, 0, 1600, 801, ACE_SPEED}, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        CHECK_AT(ace_huge_collapses(table[i].input) == table[i].collapses, i);
}

TEST(what_is_mended) {
    CHECK(!ace_huge_mends(0, 160) && !ace_huge_mends(149, 160) && ace_huge_mends(150, 160) && ace_huge_mends(160, 160));
}
