/* span_cache_test.c - how many large blocks of a length are kept, and how much of all: tables, and what must hold for all.
 *
 * Planted defects it was seen to catch:
 *   a length that is only freed is kept       by_the_table
 *   a limit grows without end                 it_ends
 *   the option does not bound it              the_budget_by_the_table
 */
#include "ace/span_cache.h"
#include "blocks.h"

TEST(by_the_table) {
    static const struct {
        struct ace_span_cache_input input;
        struct ace_span_cache_decision next;
    } table[] = {
#define ROW(limit, missed, given, next, why) {{limit, missed, given}, {next, ACE_SPAN_CACHE_##why}}
        ROW(0, 0, 0, 0, KEEP), ROW(0, 1000, 0, 0, KEEP), ROW(0, 0, 1000, 0, KEEP), ROW(0, 1, 1000, 0, KEEP),
        ROW(0, 1000, 1, 0, KEEP), ROW(0, 2, 2, 1, TURNS), ROW(1, 2, 2, 2, TURNS), ROW(1, 1, 2, 1, KEEP),
        ROW(16, 2, 9, 32, TURNS), ROW(512, 2, 2, 1024, TURNS), ROW(1024, 9, 9, 1024, KEEP),
#undef ROW
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct ace_span_cache_decision next = ace_span_cache_next(table[i].input);
        CHECK_AT(next.limit == table[i].next.limit, i);
        CHECK_AT(next.reason == table[i].next.reason, i);
    }
}

TEST(it_ends) {
    struct rng rng = {check_now.seed};
    for (size_t i = 0; i < check_count(10000); i++) {
        struct ace_span_cache_input input = {(uint32_t)rng_below(&rng, 1025), (uint32_t)rng_next(&rng), (uint32_t)rng_next(&rng)};
        unsigned steps = 0;
        for (struct ace_span_cache_decision next; (next = ace_span_cache_next(input)).reason != ACE_SPAN_CACHE_KEEP; steps++) {
            CHECK_AT(steps < 12 && next.limit > input.limit, i);
            input.limit = next.limit;
        }
        CHECK_AT(ace_span_cache_next(input).limit == input.limit && input.limit < 2048, i);
    }
}

TEST(the_budget_by_the_table) {
    static const struct {
        struct ace_budget_input input;
        uint64_t bytes;
    } table[] = {
#define ROW(in_use, most, threads, objective, bytes) {{in_use, most, threads, ACE_##objective}, bytes}
        /* Of 1 MiB, or a sixteenth of what is in use. */
        ROW(0, MIB(16), 1, BALANCED, MIB(1)), ROW(0, MIB(16), 0, BALANCED, MIB(1)), ROW(MIB(64), MIB(16), 1, BALANCED, MIB(4)),
        ROW(MIB(64), MIB(16), 8, BALANCED, KIB(512)), ROW(0, MIB(16), 1000000, BALANCED, 1),
        /* At most half of what the option says. */
        ROW(GIB(1), MIB(16), 1, BALANCED, MIB(8)), ROW(GIB(1), 0, 1, BALANCED, 0), ROW(0, MIB(1), 1, BALANCED, KIB(512)),
        ROW(0, MIB(16), 1, SMALL, KIB(256)), ROW(MIB(64), MIB(16), 1, SMALL, MIB(2)),
        ROW(0, MIB(32), 1, SPEED, MIB(4)), ROW(MIB(80), MIB(32), 1, SPEED, MIB(10)),
#undef ROW
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) CHECK_AT(ace_span_cache_budget(table[i].input) == table[i].bytes, i);
}
