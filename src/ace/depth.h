/* depth.h - how many blocks a thread keeps of one size. Pure functions; any thread. */
#ifndef HAK_ACE_DEPTH_H
#define HAK_ACE_DEPTH_H

#include "ace/objective.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Depth of a bin of BLOCK_BYTES blocks before anything is known about the program, and the greatest that it may get. */
uint32_t ace_depth_first(size_t block_bytes, enum ace_objective objective);
uint32_t ace_depth_most(size_t block_bytes, enum ace_objective objective);

/* The depth up to which misses of any kind deepen it; 0 for medium blocks. */
uint32_t ace_depth_batch(size_t block_bytes, enum ace_objective objective);

struct ace_depth_input {
    uint32_t depth;   /* now; 0 only for medium blocks */
    uint32_t most;    /* upper bound */
    uint32_t batch;   /* ace_depth_batch */
    uint32_t refills; /* of late, since the depth last changed, including one under way */
    uint32_t spills;
    uint32_t refilled_blocks; /* by completed refills */
    uint32_t spilled_blocks;
    bool one_by_one; /* a miss moves one block, whatever the depth: medium blocks */
};

enum ace_depth_reason {
    ACE_DEPTH_KEEP,  /* too little is known, or the bound is reached */
    ACE_DEPTH_BATCH, /* misses of any kind: larger batches cost less per block */
    ACE_DEPTH_SWING, /* it took about as many as it gave: what was spilled was wanted back */
};

struct ace_depth_decision {
    uint32_t depth;
    enum ace_depth_reason reason;
};

struct ace_depth_decision ace_depth_next(struct ace_depth_input input);

/* The depth of a bin after it gave some away: half, for medium blocks three quarters, rounded down; at least FIRST, which is not
 * above DEPTH. */
uint32_t ace_depth_given(uint32_t depth, uint32_t first, bool one_by_one);

#endif
