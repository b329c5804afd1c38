/* aligned_mix OPS SLOTS SEED - one thread replaces the block in a random slot; of four new blocks two are plain, one comes
 * from posix_memalign and one from aligned_alloc. Alignments are the powers of two from 16 bytes to 64 KiB, each as
 * likely; sizes are 16 to 2048 bytes, and for aligned_alloc the next multiple of the alignment, as C has it. Each
 * alignment is checked. One operation is one block replaced. */
#include "workload.h"

#include <string.h>

#define SIZE_MIN 16
#define SIZE_MAX_BYTES 2048
#define ALIGNMENT_MIN 16
#define ALIGNMENTS 13 /* 16 bytes to 64 KiB */

enum { OPS, SLOTS, SEED };

static const struct workload_argument arguments[] = {ARGUMENT_OPS, ARGUMENT_SLOTS, ARGUMENT_SEED};

static uint64_t *aligned_make(uint64_t draw, size_t bytes, bool standard) {
    size_t alignment = (size_t)ALIGNMENT_MIN << random_low(draw << 2, ALIGNMENTS);
    void *block = NULL;
    if (standard) {
        bytes = (bytes + alignment - 1) / alignment * alignment;
        block = aligned_alloc(alignment, bytes);
    } else {
        int error = posix_memalign(&block, alignment, bytes);
        if (error != 0) workload_fail("posix_memalign(%zu, %zu): %s", alignment, bytes, strerror(error));
    }
    if (block == NULL) workload_fail("aligned_alloc(%zu, %zu) returned NULL", alignment, bytes);
    if ((uintptr_t)block % alignment != 0)
        workload_fail("a block at %p is not aligned to %zu", block, alignment);
    return block;
}

static void *mixed_make(struct ledger *ledger, uint64_t draw) {
    size_t bytes = SIZE_MIN + random_high(draw, SIZE_MAX_BYTES - SIZE_MIN + 1);
    unsigned kind = draw >> 30 & 3; /* the two bits above those of the alignment */
    if (kind < 2) return block_make(ledger, bytes, draw);
    uint64_t *block = aligned_make(draw, bytes, kind == 3);
    *block = draw;
    ledger->written += draw;
    return block;
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "aligned_mix", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    void **slots = workload_map(value[SLOTS] * sizeof *slots);
    uint64_t random = random_stream(value[SEED], 0);
    struct ledger ledger = {0, 0};

    workload_start(&workload);
    for (uint64_t i = 0; i < value[OPS]; i++) {
        void **slot = &slots[random_low(random_next(&random), value[SLOTS])];
        if (*slot != NULL) block_drop(&ledger, *slot);
        *slot = mixed_make(&ledger, random_next(&random));
    }
    workload_stop(&workload, value[OPS]);

    for (uint64_t i = 0; i < value[SLOTS]; i++) {
        if (slots[i] != NULL) block_drop(&ledger, slots[i]);
    }
    return workload_finish(&workload, &ledger);
}
