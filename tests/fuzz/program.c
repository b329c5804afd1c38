/* program.c - what the bytes of a program mean: see program.h. */
#include "program.h"

#include "../spec/model.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

const char *const operation_names[OPERATION_KINDS] = {
    "malloc",      "calloc",    "realloc", "reallocarray", "aligned_alloc", "memalign",  "posix_memalign", "valloc",
    "free",        "expand",    "malloc_many", "free_many", "sizes",        "check_all", "switch",         "end",
    "fork",        "fail",      "lift",    "interrupt",    "pass_time",     "collect",   "stats",
    "set",
};

/* What is done most stands here most often. */
static const uint8_t alphabet[32] = {
    OP_MALLOC,      OP_MALLOC,   OP_MALLOC,        OP_CALLOC,      OP_CALLOC,      OP_REALLOC,   OP_REALLOC,   OP_REALLOCARRAY,
    OP_ALIGNED_ALLOC, OP_MEMALIGN, OP_POSIX_MEMALIGN, OP_VALLOC,   OP_FREE,        OP_FREE,      OP_FREE,      OP_EXPAND,
    OP_MALLOC_MANY, OP_MALLOC_MANY, OP_FREE_MANY,  OP_FREE_MANY,   OP_SIZES,       OP_CHECK_ALL, OP_SWITCH,    OP_SWITCH,
    OP_END,         OP_FORK,     OP_FAIL,          OP_LIFT,        OP_INTERRUPT,   OP_PASS_TIME, OP_COLLECT,   OP_STATS,
};

/* Without a purge thread a program does the same whenever it is run: that holds for all sets but the last. */
const char *const option_sets[OPTION_SETS] = {
    "purge_thread:off",
    "purge_thread:off,decay:0",
    "purge_thread:off,bin_depth:1",
    "purge_thread:off,window:64MiB",
    "purge_thread:off,thread_cache:64KiB,huge_pages:always",
    "purge_thread:off,populate:on,decay:never",
    "purge_thread:off,profile:small",
    "decay:100ms",
};

size_t program_length(size_t size) { return size <= 1 ? 0 : (size - 1) / OPERATION_BYTES; }

unsigned program_options(const uint8_t *bytes, size_t size) { return size == 0 ? 0 : bytes[0] % OPTION_SETS; }

/* Sizes that nobody has memory for, or that are none. */
static size_t extreme(unsigned number) {
    static const size_t bases[] = {PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, SIZE_MAX, SIZE_MAX / 2 + KIB(64),
                                   (size_t)1 << 47, (size_t)1 << 46, (size_t)1 << 42, (size_t)1 << 40};
    return bases[number % 8] - number / 8;
}

/* 3 bits for the kind of size, 13 for the size. */
static size_t size_of(unsigned number) {
    unsigned n = number & 0x1fff;
    switch (number >> 13) {
    case 0: return n % 256;
    case 1: return n % 1024;
    case 2: return n;
    case 3: return (size_t)n * 8;
    case 4: return ((size_t)1 << n % 21) + n / 21 % 5 - 2; /* wraps for the smallest: more extremes */
    case 5: return n % 32 * KIB(64) + n / 32 % 3 - 1;
    case 6: return n < 8000 ? n % 512 * KIB(4) : n % 16 * MIB(1);
    default: return extreme(n);
    }
}

struct operation program_operation(const uint8_t *bytes, size_t i) {
    const uint8_t *at = bytes + 1 + i * OPERATION_BYTES;
    unsigned number = (unsigned)at[2] << 8 | at[3], variant = at[0] / 32;
    enum operation_kind kind = alphabet[at[0] % 32];
    if (kind == OP_STATS && variant == 0) kind = OP_SET; /* no program had this when that became one */
    return (struct operation){
        .kind = kind,
        .variant = variant,
        .slot = (at[1] * 2u + at[3] % 2u) % MODEL_SLOTS,
        .bytes = size_of(number),
        .number = number,
    };
}
