/* comprehensive [CYCLES] [SEED] - one thread takes every size class through four patterns, CYCLES times (1 unless told
 * otherwise). In each pattern a class allocates and frees 1024 blocks:
 *
 *   lifo    64 at a time, freed in reverse order
 *   fifo    64 at a time, freed in the order they were allocated
 *   random  64 at a time, freed in an order drawn by the seed
 *   burst   all at once (up to 16 MiB at a time), then all freed: more than a thread caches
 *
 * Classes come in an order drawn anew for each cycle. One operation is one block; each pattern's speed over all classes
 * is a figure of its own. */
#include "classes.h"
#include "turn_clock.h"

#define BLOCKS 1024
#define BATCH 64
#define BURST_BYTES (UINT64_C(16) << 20)

enum { CYCLES, SEED };

static const struct workload_argument arguments[] = {
    {"CYCLES", 1, UINT64_C(1) << 30, true, 1},
    ARGUMENT_SEED_OPTIONAL,
};

enum { LIFO, FIFO, RANDOM, BURST, PATTERNS };

static const char *const speed_names[PATTERNS] = {
    "lifo_blocks_per_second",
    "fifo_blocks_per_second",
    "random_blocks_per_second",
    "burst_blocks_per_second",
};

struct survey {
    uint64_t *sizes;
    unsigned size_count;
    void **blocks;
    uint64_t *order; /* of BATCH places */
    uint64_t random;
    struct ledger ledger;
    uint64_t ns[PATTERNS];
};

static void blocks_make(struct survey *survey, uint64_t bytes, uint64_t count, uint64_t tag) {
    for (uint64_t i = 0; i < count; i++) survey->blocks[i] = block_make(&survey->ledger, bytes, tag + i);
}

static void class_lifo(struct survey *survey, uint64_t bytes, uint64_t tag) {
    for (unsigned done = 0; done < BLOCKS; done += BATCH) {
        blocks_make(survey, bytes, BATCH, tag + done);
        for (unsigned i = BATCH; i-- > 0;) block_drop(&survey->ledger, survey->blocks[i]);
    }
}

static void class_fifo(struct survey *survey, uint64_t bytes, uint64_t tag) {
    for (unsigned done = 0; done < BLOCKS; done += BATCH) {
        blocks_make(survey, bytes, BATCH, tag + done);
        for (unsigned i = 0; i < BATCH; i++) block_drop(&survey->ledger, survey->blocks[i]);
    }
}

static void class_random(struct survey *survey, uint64_t bytes, uint64_t tag) {
    for (unsigned done = 0; done < BLOCKS; done += BATCH) {
        blocks_make(survey, bytes, BATCH, tag + done);
        for (unsigned i = 0; i < BATCH; i++) block_drop(&survey->ledger, survey->blocks[survey->order[i]]);
    }
}

static void class_burst(struct survey *survey, uint64_t bytes, uint64_t tag) {
    uint64_t room = BURST_BYTES / bytes;
    for (uint64_t done = 0; done < BLOCKS;) {
        uint64_t count = BLOCKS - done < room ? BLOCKS - done : room;
        blocks_make(survey, bytes, count, tag + done);
        for (uint64_t i = 0; i < count; i++) block_drop(&survey->ledger, survey->blocks[i]);
        done += count;
    }
}

static void (*const class_run[PATTERNS])(struct survey *, uint64_t, uint64_t) = {
    class_lifo,
    class_fifo,
    class_random,
    class_burst,
};

static void cycle_run(struct survey *survey) {
    numbers_shuffle(survey->sizes, survey->size_count, &survey->random);
    numbers_shuffle(survey->order, BATCH, &survey->random);
    for (unsigned pattern = 0; pattern < PATTERNS; pattern++) {
        uint64_t start = turn_clock_ns();
        for (unsigned n = 0; n < survey->size_count; n++) {
            class_run[pattern](survey, survey->sizes[n], random_next(&survey->random));
        }
        survey->ns[pattern] += turn_clock_ns() - start;
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "comprehensive", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct survey survey = {
        .sizes = workload_map(CLASSES_MAX * sizeof(uint64_t)),
        .blocks = workload_map(BLOCKS * sizeof(void *)),
        .order = workload_map(BATCH * sizeof(uint64_t)),
        .random = random_stream(value[SEED], 0),
    };
    survey.size_count = classes_list(survey.sizes);
    for (unsigned i = 0; i < BATCH; i++) survey.order[i] = i;
    uint64_t pattern_blocks = value[CYCLES] * survey.size_count * BLOCKS;

    workload_start(&workload);
    for (uint64_t cycle = 0; cycle < value[CYCLES]; cycle++) cycle_run(&survey);
    workload_stop(&workload, PATTERNS * pattern_blocks);

    workload_figure_add(&workload, "classes", survey.size_count);
    for (unsigned i = 0; i < PATTERNS; i++) {
        double speed = (double)pattern_blocks * 1e9 / (double)survey.ns[i];
        workload_figure_add(&workload, speed_names[i], (uint64_t)speed);
    }
    return workload_finish(&workload, &survey.ledger);
}
