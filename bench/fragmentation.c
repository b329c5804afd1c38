/* fragmentation OPS SEED - one thread that runs long, with sizes and lifetimes that are mostly small and sometimes very
 * large: both follow Zipf's law with exponent 1. A size is 16 bytes times a rank from 1 to 256; a lifetime in operations is a
 * rank below 2^19. So after half a million operations some 38 000 blocks with about 35 MiB are live at any time, and many
 * short lives pass between few long ones. For every sixteenth of the run a factor of 1 to 2 on all sizes is drawn anew:
 * the holes that one era leaves do not fit the next.
 *
 * One operation allocates one block and frees those whose time is over. Footprint over time: after each sixteenth,
 * resident KiB above that before the first block, and live KiB; from these, for the second half of the run, the mean and
 * the largest footprint in per cent of the live bytes. */
#include "resident.h"
#include "workload.h"

#define SIZE_STEP 16
#define SIZE_RANKS 256
#define LIFETIME_RANKS (UINT64_C(1) << 19)
#define HELD_MAX (UINT32_C(1) << 17) /* more than three times the blocks that are live on average */
#define ERAS 16
#define TOUCH_BYTES 4096
#define NONE UINT32_MAX

enum { OPS, SEED };

static const struct workload_argument arguments[] = {
    {"OPS", ERAS, WORKLOAD_OPS_MAX, false, 0},
    ARGUMENT_SEED,
};

/* ---- Zipf's law ---------------------------------------------------------------------------------------- */

/* Ranks by their probability: a draw picks one of evenly spaced quantiles. */
#define QUANTILES (1 << 14)

static void zipf_fill(uint32_t *quantiles, uint64_t ranks) {
    double sum = 0, reached = 0;
    for (uint64_t rank = 1; rank <= ranks; rank++) sum += 1.0 / (double)rank;
    unsigned next = 0;
    for (uint64_t rank = 1; rank <= ranks; rank++) {
        reached += 1.0 / (double)rank;
        while (next < QUANTILES && ((double)next + 0.5) / QUANTILES * sum <= reached) {
            quantiles[next++] = (uint32_t)rank;
        }
    }
    while (next < QUANTILES) quantiles[next++] = (uint32_t)ranks; /* rounding */
}

/* ---- blocks and when they end -------------------------------------------------------------------------- */

/* A block in the list of those that end at the same operation. */
struct held {
    void *block;
    uint32_t bytes;
    uint32_t next;
};

struct heap {
    uint32_t *sizes;     /* quantiles */
    uint32_t *lifetimes; /* quantiles */
    struct held *held;
    uint32_t *ends;  /* by operation modulo LIFETIME_RANKS: the first of a list in HELD */
    uint32_t unused; /* the list of free places in HELD */
    uint64_t live_bytes;
    uint64_t random;
    struct ledger ledger;
};

static void heap_open(struct heap *heap, uint64_t seed) {
    *heap = (struct heap){
        .sizes = workload_map(QUANTILES * sizeof *heap->sizes),
        .lifetimes = workload_map(QUANTILES * sizeof *heap->lifetimes),
        .held = workload_map(HELD_MAX * sizeof *heap->held),
        .ends = workload_map(LIFETIME_RANKS * sizeof *heap->ends),
        .random = random_stream(seed, 0),
    };
    zipf_fill(heap->sizes, SIZE_RANKS);
    zipf_fill(heap->lifetimes, LIFETIME_RANKS - 1);
    for (uint32_t i = 0; i < LIFETIME_RANKS; i++) heap->ends[i] = NONE;
    for (uint32_t i = 0; i < HELD_MAX; i++) heap->held[i].next = i + 1 < HELD_MAX ? i + 1 : NONE;
}

static void blocks_end(struct heap *heap, uint32_t *end) {
    uint32_t at = *end;
    *end = NONE;
    while (at != NONE) {
        struct held *held = &heap->held[at];
        uint32_t next = held->next;
        block_drop(&heap->ledger, held->block);
        heap->live_bytes -= held->bytes;
        held->next = heap->unused;
        heap->unused = at;
        at = next;
    }
}

static void block_begin(struct heap *heap, uint64_t now, uint64_t era_percent) {
    uint64_t draw = random_next(&heap->random);
    uint64_t bytes = SIZE_STEP * (uint64_t)heap->sizes[random_low(draw, QUANTILES)] * era_percent / 100;
    uint64_t lifetime = heap->lifetimes[random_high(draw, QUANTILES)];
    uint32_t at = heap->unused;
    if (at == NONE) workload_fail("more than %u blocks live at once", HELD_MAX);
    struct held *held = &heap->held[at];
    heap->unused = held->next;
    uint32_t *end = &heap->ends[(now + lifetime) % LIFETIME_RANKS];
    *held = (struct held){block_make(&heap->ledger, bytes, draw), (uint32_t)bytes, *end};
    *end = at;
    volatile char *block = held->block;
    for (size_t touch = TOUCH_BYTES; touch < bytes; touch += TOUCH_BYTES) block[touch] = (char)draw;
    block[bytes - 1] = (char)draw;
    heap->live_bytes += bytes;
}

/* ---- footprint over time ------------------------------------------------------------------------------- */

struct footprint {
    uint64_t rss_kib_before;
    uint64_t rss_kib[ERAS];
    uint64_t live_kib[ERAS];
};

static void footprint_read(struct footprint *footprint, unsigned era, const struct heap *heap) {
    uint64_t rss_kib = rss_kib_read();
    footprint->rss_kib[era] = rss_kib > footprint->rss_kib_before ? rss_kib - footprint->rss_kib_before : 0;
    footprint->live_kib[era] = heap->live_bytes >> 10;
}

static void footprint_report(struct workload *workload, const struct footprint *footprint) {
    uint64_t sum = 0, most = 0;
    for (unsigned era = ERAS / 2; era < ERAS; era++) {
        uint64_t live_kib = footprint->live_kib[era] != 0 ? footprint->live_kib[era] : 1;
        uint64_t percent = footprint->rss_kib[era] * 100 / live_kib;
        sum += percent;
        if (percent > most) most = percent;
    }
    workload_figure_add(workload, "footprint_percent_mean", sum / (ERAS - ERAS / 2));
    workload_figure_add(workload, "footprint_percent_most", most);
    workload_series_add(workload, "rss_kib", footprint->rss_kib, ERAS);
    workload_series_add(workload, "live_kib", footprint->live_kib, ERAS);
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "fragmentation", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    uint64_t ops = workload.value[OPS];
    struct heap heap;
    heap_open(&heap, workload.value[SEED]);
    struct footprint footprint = {.rss_kib_before = rss_kib_read()};

    workload_start(&workload);
    uint64_t now = 0;
    for (unsigned era = 0; era < ERAS; era++) {
        uint64_t era_percent = 100 + random_low(random_next(&heap.random), 101);
        for (; now < ops * (era + 1) / ERAS; now++) {
            blocks_end(&heap, &heap.ends[now % LIFETIME_RANKS]);
            block_begin(&heap, now, era_percent);
        }
        footprint_read(&footprint, era, &heap);
    }
    workload_stop(&workload, ops);

    footprint_report(&workload, &footprint);
    for (uint32_t i = 0; i < LIFETIME_RANKS; i++) blocks_end(&heap, &heap.ends[i]);
    return workload_finish(&workload, &heap.ledger);
}
