/* model.c - what is due, and whether an answer is it: see model.h. */
#include "model.h"

#include "contents.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NATURAL_ALIGNMENT = 16 };

/* So many bytes and such alignments are to be had on any machine that runs the tests. */
#define MUCH_BYTES ((size_t)256 << 20)
#define PAGE_BYTES ((size_t)64 << 10)
#define KERNEL_PAGE_BYTES ((size_t)4 << 10)

const char *const spec_call_names[SPEC_CALLS] = {
    "malloc",   "calloc",         "realloc", "reallocarray", "aligned_alloc",
    "memalign", "posix_memalign", "valloc",  "pvalloc",
};

static bool is_power_of_two(size_t n) { return n != 0 && (n & (n - 1)) == 0; }

/* ---- what is due ------------------------------------------------------------------------------------ */

static struct due refusal(enum spec_rule cause, int error) { return (struct due){.cause = cause, .error = error}; }

/* The smallest power of two that is not less than N; 0 when there is none. */
static size_t power_from(size_t n) {
    size_t power = 1;
    while (power != 0 && power < n) power *= 2;
    return power;
}

/* The alignment that a request may count on; 0 when it is refused for it. */
static size_t due_alignment(struct request request) {
    switch (request.call) {
    case CALL_ALIGNED_ALLOC: return is_power_of_two(request.alignment) ? request.alignment : 0;
    case CALL_MEMALIGN: return power_from(request.alignment);
    case CALL_POSIX_MEMALIGN:
        return is_power_of_two(request.alignment) && request.alignment % sizeof(void *) == 0 ? request.alignment : 0;
    case CALL_VALLOC:
    case CALL_PVALLOC: return (size_t)sysconf(_SC_PAGESIZE);
    default: return NATURAL_ALIGNMENT;
    }
}

struct due spec_due(struct request request) {
    size_t bytes, alignment = due_alignment(request);
    if (alignment == 0) return refusal(RULE_bad_alignment, EINVAL);
    if (__builtin_mul_overflow(request.count, request.bytes, &bytes) || bytes > PTRDIFF_MAX)
        return refusal(RULE_too_large, ENOMEM);
    return (struct due){
        .bytes = bytes,
        .alignment = alignment < NATURAL_ALIGNMENT ? NATURAL_ALIGNMENT : alignment,
        .zero = request.call == CALL_CALLOC,
        .whole_pages = request.call == CALL_PVALLOC,
        .much = bytes > MUCH_BYTES || alignment > MUCH_BYTES,
    };
}

/* ---- judging answers -------------------------------------------------------------------------------- */

static void check_refusal(const struct model *model, struct request request, struct due due, struct answer answer) {
    const char *name = spec_call_names[request.call];
    if (due.error == 0)
        SPEC(reason, model->may_refuse || due.much, "%s of %zu bytes aligned to %zu was refused with error %d", name,
             due.bytes, due.alignment, answer.error);
    int error = due.error != 0 ? due.error : ENOMEM;
    SPEC(says_why, answer.error == error, "%s(%zu, %zu, %zu) says error %d instead of %d", name, request.alignment,
         request.count, request.bytes, answer.error, error);
}

static void check_apart(const struct model *model, unsigned slot) {
    const struct model_block *block = &model->blocks[slot];
    for (unsigned i = 0; i < MODEL_SLOTS; i++) {
        const struct model_block *other = &model->blocks[i];
        if (i == slot || other->start == NULL) continue;
        SPEC(apart, block->start + block->usable <= other->start || other->start + other->usable <= block->start,
             "%zu bytes at %p (slot %u) and %zu bytes at %p (slot %u)", block->usable, (void *)block->start, slot,
             other->usable, (void *)other->start, i);
    }
}

/* Its place, its length and its neighbours; then it is written to. */
static void take_in(struct model *model, unsigned slot, struct due due, struct answer answer) {
    struct model_block *block = &model->blocks[slot];
    *block = (struct model_block){answer.block, answer.usable, due.bytes, due.alignment, ++model->last_key << 32};
    model->asked_bytes += due.bytes;
    SPEC(aligned, (uintptr_t)block->start % due.alignment == 0, "%p (slot %u) is not aligned to %zu", answer.block, slot,
         due.alignment);
    SPEC(enough, block->usable >= due.bytes, "%zu of %zu bytes (slot %u)", block->usable, due.bytes, slot);
    SPEC(enough, block->usable != 0 && block->usable % sizeof(uint64_t) == 0, "%zu usable bytes (slot %u)", block->usable,
         slot);
    SPEC(enough, !due.whole_pages || block->usable % due.alignment == 0, "%zu bytes are no whole pages (slot %u)",
         block->usable, slot);
    check_apart(model, slot);
    contents_write(block->start, block->usable, block->key);
}

static void leave_out(struct model *model, unsigned slot) {
    model->asked_bytes -= model->blocks[slot].asked;
    model->blocks[slot].start = NULL;
}

void model_allocated(struct model *model, unsigned slot, struct request request, struct answer answer) {
    struct due due = spec_due(request);
    if (answer.block == NULL) {
        check_refusal(model, request, due, answer);
        return;
    }
    if (due.error != 0)
        spec_breach(due.cause, "%s(%zu, %zu, %zu) gives %p", spec_call_names[request.call], request.alignment,
                    request.count, request.bytes, answer.block);
    if (due.zero)
        SPEC(zero, contents_are_zero(answer.block, due.bytes), "%zu bytes at %p (slot %u) are not", due.bytes, answer.block,
             slot);
    take_in(model, slot, due, answer);
}

static void check_contents(const struct model_block *block, const void *start, size_t limit, unsigned slot) {
    SPEC(kept, contents_hold(start, block->usable, limit, block->key),
         "the first %zu of %zu bytes, asked for as %zu, now at %p, before at %p (slot %u), have changed", limit, block->usable,
         block->asked, start, (void *)block->start, slot);
}

void model_check(const struct model *model, unsigned slot, size_t usable) {
    const struct model_block *block = &model->blocks[slot];
    SPEC(stable, usable == block->usable, "%zu bytes, and before %zu (slot %u)", usable, block->usable, slot);
    check_contents(block, block->start, block->usable, slot);
}

void model_resized(struct model *model, unsigned slot, struct request request, struct answer answer) {
    struct due due = spec_due(request);
    struct model_block before = model->blocks[slot];
    if (answer.block == NULL) {
        if (due.error == 0)
            SPEC(shrinks, due.bytes > before.usable, "%zu to %zu bytes was refused (slot %u)", before.usable, due.bytes,
                 slot);
        check_refusal(model, request, due, answer);
        SPEC(stays, answer.usable == before.usable, "%zu bytes, and before %zu (slot %u)", answer.usable, before.usable, slot);
        SPEC(stays, contents_hold(before.start, before.usable, before.usable, before.key), "slot %u has changed", slot);
        return;
    }
    if (due.error != 0) spec_breach(due.cause, "realloc to %zu * %zu bytes (slot %u)", request.count, request.bytes, slot);
    size_t kept = due.bytes < before.usable ? due.bytes : before.usable;
    check_contents(&before, answer.block, kept, slot);
    leave_out(model, slot);
    take_in(model, slot, due, answer);
}

void model_resized_to_nothing(struct model *model, unsigned slot, struct answer answer) {
    SPEC(resized, answer.block == NULL, "realloc to 0 gives %p (slot %u)", answer.block, slot);
    leave_out(model, slot);
}

void model_expanded(struct model *model, unsigned slot, size_t bytes, size_t got, size_t usable) {
    struct model_block *block = &model->blocks[slot];
    if (got == 0) {
        SPEC(expands, bytes > block->usable, "%zu of %zu bytes were refused (slot %u)", bytes, block->usable, slot);
        SPEC(stays, usable == block->usable, "%zu bytes, and before %zu (slot %u)", usable, block->usable, slot);
    } else {
        SPEC(expands, got >= bytes && got >= block->usable && got == usable,
             "try_expand to %zu says %zu; usable are %zu, and were %zu (slot %u)", bytes, got, usable, block->usable, slot);
        SPEC(expands, bytes <= PTRDIFF_MAX, "to %zu bytes (slot %u)", bytes, slot);
    }
    check_contents(block, block->start, block->usable, slot);
    if (usable > block->usable) {
        block->usable = usable;
        check_apart(model, slot);
        contents_write(block->start, block->usable, block->key);
    }
}

void model_freed(struct model *model, unsigned slot, size_t usable) {
    model_check(model, slot, usable);
    leave_out(model, slot);
}

void model_good_size(size_t bytes, size_t good, size_t good_of_good) {
    if (bytes > PTRDIFF_MAX)
        SPEC(too_large, good == 0, "good_size of %zu is %zu", bytes, good);
    else if (bytes <= MUCH_BYTES || good != 0) /* otherwise there may be no such block */
        SPEC(good, good >= bytes && good_of_good == good, "good_size of %zu is %zu, and of that %zu", bytes, good,
             good_of_good);
}

void model_good_enough(size_t bytes, size_t good, size_t usable) {
    /* More is had by blocks of whole pages, which begin somewhere in the first; a small one may be such a block, or a mapping of its own,
     * when there is no room elsewhere. */
    const bool of_pages = usable > PAGE_BYTES - KERNEL_PAGE_BYTES || usable % (size_t)sysconf(_SC_PAGESIZE) == 0;
    SPEC(good, usable == good || (usable > good && of_pages), "malloc(%zu) has %zu bytes, good_size is %zu", bytes, usable, good);
}

/* ---- breaches --------------------------------------------------------------------------------------- */

static const char *const names[] = {
#define RULE(name, sentence) #name,
    SPEC_RULES(RULE)
#undef RULE
};

static const char *const sentences[] = {
#define RULE(name, sentence) sentence,
    SPEC_RULES(RULE)
#undef RULE
};

void (*spec_on_breach)(enum spec_rule rule);

void spec_breach(enum spec_rule rule, const char *format, ...) {
    char line[600];
    va_list values;
    if (spec_on_breach != NULL) spec_on_breach(rule);
    va_start(values, format);
    vsnprintf(line, sizeof line, format, values);
    va_end(values);
    dprintf(STDERR_FILENO, "FAIL %s: %s\n     the rule: %s\n", names[rule], line, sentences[rule]);
    abort();
}
