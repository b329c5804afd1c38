/* peak_then_idle MIB SEED [SECONDS] - a process that rises to a peak and then has nothing to do: it allocates MIB MiB of
 * blocks of 64 bytes to 32 KiB and writes all of each, frees nine in ten, drawn by the seed, and sleeps SECONDS, 10
 * unless told otherwise. The resident memory before, at the peak, after the frees and after the sleep is in the JSON
 * line beside the bytes that are still live. One operation is one block; seconds are those of the rise and the frees,
 * without the sleep. Sizes are drawn evenly on a logarithmic scale. In give_back another thread frees, and frees more. */
#include "resident.h"
#include "workload.h"

#include <string.h>
#include <time.h>

#define BYTES_MIN 64
#define BYTES_MAX (UINT64_C(32) << 10)
#define BYTES_PER_BLOCK 512 /* room in the table: a tenth of the mean size */
#define MIB_MAX (UINT64_C(64) << 10)
#define KEPT_ONE_IN 10

enum { MIB, SEED, SECONDS };

static const struct workload_argument arguments[] = {
    {"MIB", 1, MIB_MAX, false, 0},
    ARGUMENT_SEED,
    {"SECONDS", 0, 3600, true, 10},
};

struct load {
    void **blocks;
    uint64_t room;
    uint64_t count;
    uint64_t live_bytes;
    uint64_t random;
    struct ledger ledger;
};

/* The size again from the draw that made it, so that the workload's own table stays small. */
static uint64_t block_bytes(uint64_t draw) { return random_log(draw, BYTES_MIN, BYTES_MAX); }

static void load_rise(struct load *load, uint64_t bytes) {
    while (load->live_bytes < bytes && load->count < load->room) {
        uint64_t draw = random_next(&load->random);
        uint64_t size = block_bytes(draw);
        char *block = block_make(&load->ledger, size, draw);
        memset(block + sizeof draw, 0xa5, size - sizeof draw);
        load->blocks[load->count++] = block;
        load->live_bytes += size;
    }
}

static void load_fall(struct load *load) {
    for (uint64_t i = 0; i < load->count; i++) {
        if (random_low(random_next(&load->random), KEPT_ONE_IN) == 0) continue;
        load->live_bytes -= block_bytes(*(uint64_t *)load->blocks[i]);
        block_drop(&load->ledger, load->blocks[i]);
        load->blocks[i] = NULL;
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "peak_then_idle", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    uint64_t bytes = workload.value[MIB] << 20;
    struct load load = {.room = bytes / BYTES_PER_BLOCK, .random = random_stream(workload.value[SEED], 0)};
    load.blocks = workload_map(load.room * sizeof *load.blocks);
    workload_figure_add(&workload, "rss_kib_before", rss_kib_read());

    workload_start(&workload);
    load_rise(&load, bytes);
    workload_figure_add(&workload, "rss_kib_at_peak", rss_kib_read());
    load_fall(&load);
    workload_stop(&workload, load.count);
    workload_figure_add(&workload, "rss_kib_after_free", rss_kib_read());
    struct timespec rest = {.tv_sec = (time_t)workload.value[SECONDS], .tv_nsec = 0};
    while (nanosleep(&rest, &rest) != 0) {
    }
    workload_figure_add(&workload, "idle_rss_kib", rss_kib_read());

    workload_figure_add(&workload, "live_kib", load.live_bytes >> 10);
    for (uint64_t i = 0; i < load.count; i++) {
        if (load.blocks[i] != NULL) block_drop(&load.ledger, load.blocks[i]);
    }
    return workload_finish(&workload, &load.ledger);
}
