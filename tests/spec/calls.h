/* calls.h - every function of the interface, called and judged: the model is told what was asked and answered, errno is
 * looked at, and what the answer says of itself is asked for. A slot stands for a block: see model.h.
 *
 * Whoever interrupts a call, as a signal handler does, must leave the slot alone that it is about: spec_busy_slot. */
#ifndef HAK_TESTS_CALLS_H
#define HAK_TESTS_CALLS_H

#include "model.h"

/* A new block in SLOT, which is empty, by any function that allocates. */
void spec_allocate(struct model *model, unsigned slot, struct request request);

/* realloc or reallocarray of what is in SLOT: of NULL when it is empty. */
void spec_resize(struct model *model, unsigned slot, struct request request);

enum spec_free { FREE_PLAIN, FREE_SIZED, FREE_ALIGNED_SIZED, SPEC_FREES };

/* The block in SLOT is verified and freed; nothing happens when it is empty. */
void spec_free(struct model *model, unsigned slot, enum spec_free how);

/* try_expand of the block in SLOT; of NULL when it is empty. */
void spec_expand(struct model *model, unsigned slot, size_t bytes);

/* Every block in use is as it was. */
void spec_check(const struct model *model, unsigned slot);
void spec_check_all(const struct model *model);

/* What needs no block. */
void spec_good_size(size_t bytes);
void spec_null(void);
void spec_memalignment(const void *address);
void spec_collect(void);
void spec_trim(void);

/* The slot that a call is about just now; MODEL_SLOTS when there is none. */
extern unsigned spec_busy_slot;

#endif
