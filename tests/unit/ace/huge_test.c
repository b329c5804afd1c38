/* huge_test.c - when huge pages are asked for.
 *
 * Planted defects it was seen to catch:
 *   what will not be filled is admitted   admission
 */
#include "ace/huge.h"
#include "blocks.h"

TEST(admission) {
    static const struct {
        struct ace_huge_input input;
        bool admitted;
    } table[] = {
        {{0, 511, 512, true}, false},     {{0, 512, 512, true}, true},   {{500, 12, 512, true}, true},
        {{500, 11, 512, true}, false},    {{500, 12, 512, false}, false}, {{1 << 20, 1, 512, false}, false},
        {{0, 1, 0, true}, true},          {{0, 1, 0, false}, false},
        {{1 << 30, 1 << 20, UINT64_MAX, true}, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        CHECK_AT(ace_huge_admits(table[i].input) == table[i].admitted, i);
    CHECK_EQ(ace_huge_from_bytes(ACE_BALANCED), MIB(32));
    CHECK_EQ(ace_huge_from_bytes(ACE_SPEED), MIB(16));
    CHECK_EQ(ace_huge_from_bytes(ACE_SMALL), MIB(128));
}

TEST(what_is_touched) {
    CHECK_EQ(ace_huge_touched_least(800, ACE_BALANCED), 300);
    CHECK_EQ(ace_huge_touched_least(100, ACE_SMALL), 75);
    CHECK_EQ(ace_huge_touched_least(100, ACE_SPEED), 25);
    CHECK_EQ(ace_huge_touched_least(0, ACE_SMALL), 0);
}
