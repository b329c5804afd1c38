/* pace.c - see pace.h. */
#include "ace/pace.h"

enum ace_pace ace_pace(uint64_t idle_ms, enum ace_objective objective) {
    return idle_ms >= ace_choose(objective, 1000, 2000, 4000) ? ACE_PACE_ASLEEP : ACE_PACE_WORK;
}

/* Like free spans, holes stay for some half-lives. An infinite half-life is taken as a very long one. */
uint64_t ace_holes_ripe(struct ace_holes_input input) {
    const uint64_t half_lives = ace_choose(input.objective, 2, 4, 8);
    const uint64_t half_life_ms = input.half_life_ms < UINT32_MAX ? input.half_life_ms : UINT32_MAX;
    const uint64_t looks = half_lives * half_life_ms / input.visit_ms;
    return looks < input.most ? looks : input.most;
}

uint64_t ace_kept_pages(enum ace_objective objective) { return ace_choose(objective, 4, 16, 64); }
