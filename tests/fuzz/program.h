/* program.h - bytes as a program for an allocator. The first byte names the options that the process is started with; then
 * each operation takes four:
 *
 *     which operation (its low 5 bits) and in which variant (its high 3); which slot; and two for a size, a time,
 *     a number: whatever the operation needs
 *
 * Every string of bytes is a program, and a byte changed in one changes one operation. */
#ifndef HAK_TESTS_PROGRAM_H
#define HAK_TESTS_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { OPERATION_BYTES = 4, PROGRAM_MOST_BYTES = 1 + 1000 * OPERATION_BYTES, VARIANTS = 8 };

enum operation_kind {
    OP_MALLOC,
    OP_CALLOC,
    OP_REALLOC,
    OP_REALLOCARRAY,
    OP_ALIGNED_ALLOC,
    OP_MEMALIGN,
    OP_POSIX_MEMALIGN,
    OP_VALLOC,
    OP_FREE,
    OP_EXPAND,
    OP_MALLOC_MANY, /* in slots one after the other */
    OP_FREE_MANY,
    OP_SIZES,     /* good_size, and what is true of NULL and of addresses */
    OP_CHECK_ALL,
    OP_SWITCH,    /* another thread goes on; it is started if need be */
    OP_END,       /* a thread ends, and frees and allocates while it does */
    OP_FORK,      /* a child verifies everything, goes on for a while, and exits */
    OP_FAIL,      /* the k-th call to the kernel from here fails, or all do from there on */
    OP_LIFT,      /* none fails any more */
    OP_INTERRUPT, /* a signal arrives in the middle of the k-th call from here, and its handler allocates */
    OP_PASS_TIME,
    OP_COLLECT,
    OP_STATS,     /* in one of three forms */
    OP_SET,       /* an option to some value, until it is set again or the program ends; a hard limit until OP_LIFT, too */
    OPERATION_KINDS
};

extern const char *const operation_names[OPERATION_KINDS];

struct operation {
    enum operation_kind kind;
    unsigned variant; /* below VARIANTS */
    unsigned slot;    /* of the model */
    size_t bytes;     /* the two bytes as a size: small, at boundaries, of pages, impossible */
    unsigned number;  /* and as a number */
};

/* How many operations SIZE bytes hold. */
size_t program_length(size_t size);

/* Operation I of the program at BYTES. */
struct operation program_operation(const uint8_t *bytes, size_t i);

/* The options of a program, as HAKMEM_CONF has them. */
enum { OPTION_SETS = 8 };
extern const char *const option_sets[OPTION_SETS];
unsigned program_options(const uint8_t *bytes, size_t size);

#endif
