/* model.h - an allocator as the specification has it: which blocks are in use, where they lie, and what they hold. It knows
 * no allocator: it is told what was asked and what was answered, and says which rule of rules.h the answer breaks.
 *
 * A block in use has a slot. The model writes to it and reads from it, through the pointer that it was told. One thread at a
 * time. */
#ifndef HAK_TESTS_MODEL_H
#define HAK_TESTS_MODEL_H

#include "rules.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MODEL_SLOTS = 512 };

struct model_block {
    unsigned char *start; /* NULL: the slot is empty */
    size_t usable, asked, alignment;
    uint64_t key; /* of its contents */
};

struct model {
    struct model_block blocks[MODEL_SLOTS];
    size_t asked_bytes; /* of all blocks in use */
    uint64_t last_key;
    bool may_refuse; /* there may be no memory */
};

/* ---- what is due ------------------------------------------------------------------------------------ */

enum spec_call {
    CALL_MALLOC,
    CALL_CALLOC,
    CALL_REALLOC,
    CALL_REALLOCARRAY,
    CALL_ALIGNED_ALLOC,
    CALL_MEMALIGN,
    CALL_POSIX_MEMALIGN,
    CALL_VALLOC,
    CALL_PVALLOC,
    SPEC_CALLS
};

extern const char *const spec_call_names[SPEC_CALLS];

/* What a call asks for. COUNT is 1 where the function has none. */
struct request {
    enum spec_call call;
    size_t alignment, count, bytes;
};

/* What the specification answers: a block with these properties, or a refusal. */
struct due {
    size_t bytes, alignment;
    bool zero, whole_pages;
    bool much;            /* so much that there may be no memory for it */
    int error;            /* 0, or what the refusal says */
    enum spec_rule cause; /* of the refusal */
};

struct due spec_due(struct request request);

/* ---- judging answers -------------------------------------------------------------------------------- */

/* An answer, with what errno (or posix_memalign) said of a refusal and the block's usable size. */
struct answer {
    void *block;
    int error;
    size_t usable;
};

/* A new block goes into SLOT, which is empty. */
void model_allocated(struct model *model, unsigned slot, struct request request, struct answer answer);

/* realloc or reallocarray of the block in SLOT, which is not empty, to other than 0 bytes. */
void model_resized(struct model *model, unsigned slot, struct request request, struct answer answer);

/* realloc of the block in SLOT to 0 bytes. */
void model_resized_to_nothing(struct model *model, unsigned slot, struct answer answer);

/* try_expand of the block in SLOT to BYTES returned GOT, and after it its usable size is USABLE. */
void model_expanded(struct model *model, unsigned slot, size_t bytes, size_t got, size_t usable);

/* The block in SLOT is about to be freed; its usable size is USABLE. */
void model_freed(struct model *model, unsigned slot, size_t usable);

/* The block in SLOT is as it was, and as long as it was. */
void model_check(const struct model *model, unsigned slot, size_t usable);

/* The answers of good_size to BYTES and to its own answer. */
void model_good_size(size_t bytes, size_t good, size_t good_of_good);

/* What malloc(BYTES) gave has USABLE bytes where good_size(BYTES) is GOOD. */
void model_good_enough(size_t bytes, size_t good, size_t usable);

/* ---- breaches --------------------------------------------------------------------------------------- */

/* Says which rule is broken and how, and ends the process; or calls spec_on_breach, which does not return. */
_Noreturn void spec_breach(enum spec_rule rule, const char *format, ...) __attribute__((format(printf, 2, 3)));
extern void (*spec_on_breach)(enum spec_rule rule);

#define SPEC(rule, condition, ...) ((condition) ? (void)0 : spec_breach(RULE_##rule, __VA_ARGS__))

#endif
