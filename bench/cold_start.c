/* cold_start [OPS] [SEED] [PROCESSES] - the first OPS operations (1 unless told otherwise) of each size class, in random
 * order of sizes, and the page faults each class's operations cost. Sizes are those of classes.h.
 *
 * Two numbers for each size: faults inside malloc, and those together with the write to the block's first
 * word. The process's very first allocation, which may set the allocator up, is counted apart.
 *
 * A first operation cannot be repeated in one process, and one process ends too soon to be timed. So with PROCESSES
 * above 1 the process replaces itself by a new one (exec), which draws another order, and leaves it what it has used so
 * far; the last reports seconds, faults and sums of all. The starts between them are not counted; figures for
 * single classes, and latencies, are the last process's.
 *
 * Before each size's calls of malloc stands a getrusage(RUSAGE_THREAD), which nothing else here uses, and after
 * them a getrusage(RUSAGE_SELF): between these two marks first_calls counts the system calls. */
#include "classes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define OPS_LIMIT 4096
#define USED_VARIABLE "COLD_START_USED"

enum { OPS, SEED, PROCESSES };

static const struct workload_argument arguments[] = {
    {"OPS", 1, OPS_LIMIT, true, 1},
    ARGUMENT_SEED_OPTIONAL,
    {"PROCESSES", 1, UINT64_C(1) << 30, true, 1},
};

/* ---- what the processes before this one have used ------------------------------------------------------ */

struct used {
    struct workload_usage usage;
    struct ledger ledger;
    uint64_t processes;
};

#define USED_WORDS 8
#define USED_WORD_BYTES 17

static struct used used_read(void) {
    struct used used = {0};
    struct workload_usage *usage = &used.usage;
    const char *text = getenv(USED_VARIABLE);
    if (text == NULL) return used;
#define WORD "%" SCNx64
    int words = sscanf(text, WORD WORD WORD WORD WORD WORD WORD WORD, &usage->wall_ns, &usage->cpu_ns,
                       &usage->minor_faults, &usage->major_faults, &usage->involuntary_switches,
                       &used.ledger.written, &used.ledger.read, &used.processes);
#undef WORD
    if (words != USED_WORDS) workload_fail(USED_VARIABLE " is not what a process before this one left");
    return used;
}

/* Starts this program anew in the same process, with the same command line. */
static _Noreturn void process_replace(const struct used *used, char **argv) {
    const struct workload_usage *usage = &used->usage;
    char text[USED_WORDS * USED_WORD_BYTES];
#define WORD "%" PRIx64 " "
    snprintf(text, sizeof text, WORD WORD WORD WORD WORD WORD WORD "%" PRIx64, usage->wall_ns, usage->cpu_ns,
             usage->minor_faults, usage->major_faults, usage->involuntary_switches, used->ledger.written,
             used->ledger.read, used->processes);
#undef WORD
    if (setenv(USED_VARIABLE, text, 1) == 0) execv("/proc/self/exe", argv);
    workload_fail("cannot start anew: %s", strerror(errno));
}

/* A minus B. */
static void usage_subtract(struct workload_usage *a, const struct workload_usage *b) {
    a->wall_ns -= b->wall_ns;
    a->cpu_ns -= b->cpu_ns;
    a->minor_faults -= b->minor_faults;
    a->major_faults -= b->major_faults;
    a->involuntary_switches -= b->involuntary_switches;
}

/* ---- the first operations ------------------------------------------------------------------------------ */

struct faults {
    uint64_t first;
    uint64_t most, most_size;
    uint64_t most_in_malloc;
    uint64_t over_one; /* sizes */
    uint64_t total;
};

static uint64_t faults_read(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
}

static void window_mark(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
}

static void first_allocation(struct faults *faults, struct ledger *ledger) {
    /* Binds the calls below and touches the stack, so that their faults are not counted as the allocator's. */
    faults_read();
    uint64_t before = faults_read();
    block_drop(ledger, block_make(ledger, 16, 1));
    faults->first = faults_read() - before;
}

static void class_begin(struct faults *faults, struct ledger *ledger, void **blocks, uint64_t ops,
                        uint64_t bytes, uint64_t tag) {
    uint64_t start = faults_read();
    window_mark();
    for (uint64_t i = 0; i < ops; i++) blocks[i] = malloc(bytes);
    uint64_t in_malloc = faults_read() - start;
    for (uint64_t i = 0; i < ops; i++) {
        if (blocks[i] == NULL) workload_memory_refused(bytes);
        *(uint64_t *)blocks[i] = tag + i;
        ledger->written += tag + i;
    }
    uint64_t all = faults_read() - start;
    faults->total += all;
    faults->over_one += all > 1;
    if (in_malloc > faults->most_in_malloc) faults->most_in_malloc = in_malloc;
    if (all > faults->most) {
        faults->most = all;
        faults->most_size = bytes;
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "cold_start", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    struct used used = used_read();
    uint64_t ops = workload.value[OPS];
    uint64_t random = random_stream(workload.value[SEED] + used.processes, 0);
    uint64_t *sizes = workload_map(CLASSES_MAX * sizeof *sizes);
    unsigned count = classes_list(sizes);
    numbers_shuffle(sizes, count, &random);
    void **blocks = workload_map(count * ops * sizeof *blocks);
    struct ledger ledger = used.ledger;
    struct faults faults = {0};
    bool last = ++used.processes >= workload.value[PROCESSES];
    first_allocation(&faults, &ledger);

    workload_start(&workload);
    usage_subtract(&workload.started, &used.usage);
    for (unsigned n = 0; n < count; n++) {
        class_begin(&faults, &ledger, &blocks[n * ops], ops, sizes[n], random + sizes[n]);
    }
    if (last) workload_stop(&workload, used.processes * count * ops);
    if (!last) workload_usage_read(&used.usage);

    for (uint64_t i = 0; i < count * ops; i++) block_drop(&ledger, blocks[i]);
    if (!last) {
        usage_subtract(&used.usage, &workload.started);
        used.ledger = ledger;
        process_replace(&used, argv);
    }
    workload_figure_add(&workload, "sizes", count);
    workload_figure_add(&workload, "first_allocation_faults", faults.first);
    workload_figure_add(&workload, "most_faults", faults.most);
    workload_figure_add(&workload, "most_faults_size", faults.most_size);
    workload_figure_add(&workload, "most_faults_in_malloc", faults.most_in_malloc);
    workload_figure_add(&workload, "sizes_over_one_fault", faults.over_one);
    workload_figure_add(&workload, "total_faults", faults.total);
    return workload_finish(&workload, &ledger);
}
