/* objective.h - what the user prefers, little memory or speed. Every function of this layer that trades one for the other takes it.
 * With the same counters a greater objective never keeps less, and never returns memory sooner. */
#ifndef HAK_ACE_OBJECTIVE_H
#define HAK_ACE_OBJECTIVE_H

#include <stdint.h>

enum ace_objective {
    ACE_SMALL = -1, /* little memory: half of balanced's, or less */
    ACE_BALANCED,
    ACE_SPEED       /* few faults and slow paths: twice as much, or more */
};

static inline uint64_t ace_choose(enum ace_objective objective, uint64_t small, uint64_t balanced, uint64_t speed) {
    return objective == ACE_BALANCED ? balanced : objective == ACE_SMALL ? small : speed;
}

#endif
