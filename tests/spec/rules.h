/* rules.h - the specification of hakmem's interface: what must be true of every answer, whatever was called before, by
 * whichever thread, in whichever process, and whichever call to the kernel was refused.
 *
 * A *block* is in use from the call that returned it to the call that frees it. It has *usable* bytes, from its
 * address on, and at least as many as were *asked* for. Every function judged here is one of hakmem/hakmem.h; the names below
 * leave its prefix out.
 *
 * Each rule has a name, by which a failure calls it, and a sentence. They are written once, here: model.c judges by them in
 * C, for the fuzzers, and state_machine.py in Python, for Hypothesis. */
#ifndef HAK_TESTS_RULES_H
#define HAK_TESTS_RULES_H

#define SPEC_RULES(RULE)                                                                                                \
    /* Where a block is, and how long. */                                                                               \
    RULE(apart, "no byte belongs to two blocks that are in use")                                                        \
    RULE(aligned, "a block is aligned to 16, and to what was asked for; valloc's and pvalloc's to the kernel's page")   \
    RULE(enough, "a block has at least as many usable bytes as were asked for; pvalloc's has whole pages")              \
    RULE(stable, "the usable size of a block stays the same until it is freed or resized")                              \
    RULE(good, "malloc(n) has good_size(n) usable bytes, or more; good_size(good_size(n)) is good_size(n)")             \
                                                                                                                        \
    /* What is in it. */                                                                                                \
    RULE(kept, "what was written to a block stays there until it is freed; resizing keeps what the smaller size holds") \
    RULE(zero, "all that was asked of calloc reads as zero")                                                            \
                                                                                                                        \
    /* Resizing. */                                                                                                     \
    RULE(resized, "realloc of NULL allocates; realloc to 0 frees and returns NULL")                                     \
    RULE(stays, "a block that could not be resized stays as it was")                                                    \
    RULE(shrinks, "making a block smaller does not fail")                                                               \
    RULE(expands, "try_expand gives 0, or the usable size, which is enough and not less than before")                   \
                                                                                                                        \
    /* What is refused, and how. */                                                                                     \
    RULE(reason, "a request is refused only if there is no memory, or if it cannot be met at all")                      \
    RULE(too_large, "more than PTRDIFF_MAX bytes, or a product that overflows, are refused")                            \
    RULE(bad_alignment, "an alignment that is no power of two is refused; memalign rounds it up; posix_memalign "       \
                        "also refuses those that are no multiple of sizeof(void *)")                                    \
    RULE(says_why, "a refusal sets errno: EINVAL for an alignment, otherwise ENOMEM; posix_memalign returns it "        \
                   "instead, and leaves its result alone")                                                              \
    RULE(errno_kept, "success leaves errno as it was; what cannot fail always does")                                    \
                                                                                                                        \
    /* What is no block, and the rest. */                                                                               \
    RULE(null, "NULL is freed without effect and has no usable size, no room to expand, and no alignment")              \
    RULE(power, "memalignment is the largest power of two that divides an address")                                     \
    RULE(trims, "malloc_trim returns 0 or 1")                                                                           \
    RULE(conserved, "once every block is freed and every other thread has ended, nothing is in use")                    \
    RULE(child, "a forked child finds every block as it was, and can go on")

enum spec_rule {
#define RULE(name, sentence) RULE_##name,
    SPEC_RULES(RULE)
#undef RULE
        SPEC_RULE_COUNT
};

#endif
