/* mappings.c - how many mappings a process has after much churn: the kernel allows 65530, and every
 * page fault and every madvise looks through them.
 *
 *     mappings SECONDS [LIVE_MIB]
 *
 * Holds LIVE_MIB MiB (1024 if not given) in blocks of all sizes, freed, replaced and grown at random for SECONDS
 * and OPERATIONS_LEAST operations, then counts the lines of /proc/self/maps.
 *
 * Planted defect it is to catch: pages given back by mmap or mprotect instead of madvise, or marked huge
 * piece by piece: each splits a mapping, and nothing joins them again.
 */
#define CHECK_NO_MAIN
#include "footprint.h"

#define MOST_MAPPINGS 1000
#define OPERATIONS_LEAST 4000000 /* a machine that is busy does fewer in a second */
#define SLOTS ((size_t)1 << 21)

static struct slot {
    char *block;
    size_t size;
} * slots;

static size_t live_most, live, used, operations;

/* A word in each page, and the ends. */
static void touch(const struct slot *slot) {
    for (size_t at = 0; at < slot->size; at += 4096) slot->block[at] = (char)slot->size;
    slot->block[slot->size - 1] = (char)slot->size;
}

static void verify(const struct slot *slot) {
    CHECK(slot->block[0] == (char)slot->size && slot->block[slot->size - 1] == (char)slot->size);
}

static size_t any_size(struct rng *rng) {
    size_t dice = rng_below(rng, 1000);
    if (dice < 800) return 1 + rng_below(rng, KIB(1));
    if (dice < 970) return rng_log(rng, KIB(1), KIB(64));
    return rng_log(rng, KIB(64), dice < 998 ? MIB(1) : MIB(16));
}

static void drop(size_t index) {
    verify(&slots[index]);
    free(slots[index].block);
    live -= slots[index].size;
    slots[index] = slots[--used];
}

/* Twice to eight times the size, at most 16 MiB, in steps as a growing array takes them. */
static void grow(struct slot *slot, struct rng *rng) {
    for (size_t step = rng_below(rng, 6); step > 0 && slot->size < MIB(16); step--) {
        size_t size = slot->size + slot->size / 2 + 1;
        verify(slot);
        CHECK((slot->block = realloc(slot->block, size)) != NULL);
        CHECK(slot->block[0] == (char)slot->size);
        live += size - slot->size;
        slot->size = size;
        touch(slot);
    }
}

static void churn(struct rng *rng) {
    size_t dice = rng_below(rng, 100);
    operations++;
    while (used > 0 && (live >= live_most || used == SLOTS)) drop(rng_below(rng, used));
    if (used > 1000 && dice < 40) {
        drop(rng_below(rng, used));
    } else if (used > 0 && dice < 45) {
        grow(&slots[rng_below(rng, used)], rng);
    } else {
        struct slot *slot = &slots[used++];
        slot->size = any_size(rng);
        CHECK((slot->block = malloc(slot->size)) != NULL);
        touch(slot);
        live += slot->size;
    }
}

int main(int argc, char **argv) {
    check_now.name = "mappings";
    uint64_t seconds = argc > 1 ? strtoul(argv[1], NULL, 10) : 20;
    live_most = MIB(argc > 2 ? strtoul(argv[2], NULL, 10) : 1024);
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    alarm((unsigned)seconds + 60);
    struct rng rng = {17};
    slots = map_populated(SLOTS * sizeof *slots);
    size_t start = count_mappings(), most = 0;
    for (uint64_t end = now_ms() + seconds * 1000; now_ms() < end || operations < OPERATIONS_LEAST;) {
        for (int i = 0; i < 20000; i++) churn(&rng);
        size_t now = count_mappings();
        if (now > most) most = now;
        /* Most of it goes now and then, and what is left rests long enough to be given back. */
        if (rng_below(&rng, 200) == 0) {
            while (live > live_most / 4) drop(rng_below(&rng, used));
            sleep_ms(1000);
        }
    }
    while (live < live_most * 9 / 10) churn(&rng);
    size_t end = count_mappings();
    check_say(
        "mappings: start %zu, end %zu, most %zu; %zu operations, %zu blocks, live %zu KiB, resident %zu",
        start, end, most, operations, used, live >> 10, rss_bytes() >> 10);
    CHECK(end < MOST_MAPPINGS);
    while (used > 0) drop(used - 1);
    check_say("ok mappings");
    return 0;
}
