/* line_turns LINES ROUNDS REPLY SEED - no allocator: two threads take turns over the same cache lines. One writes a word to
 * each, then the other reads it and, with REPLY 1, writes the same word to it again. The times that the writer and the reader
 * took are figures of their own. One operation is one line written and read. */
#include "turn_clock.h"
#include "workload.h"

#define LINES_MAX 4096 /* 256 KiB: stays in a processor's cache */

enum { LINES, ROUNDS, REPLY, SEED };

static const struct workload_argument arguments[] = {
    {"LINES", 1, LINES_MAX, false, 0},
    {"ROUNDS", 1, WORKLOAD_OPS_MAX / LINES_MAX, false, 0},
    {"REPLY", 0, 1, false, 0},
    ARGUMENT_SEED,
};

struct shared_line {
    _Alignas(64) volatile uint64_t word; /* volatile: a store of what it holds already is not left out */
};

struct table {
    WORKLOAD_APART _Atomic uint64_t turn; /* even: the writer's; release and acquire order the turns */
    WORKLOAD_APART uint64_t line_count;
    uint64_t round_count;
    bool reply;
    WORKLOAD_APART struct shared_line lines[LINES_MAX];
};

struct thread {
    WORKLOAD_APART struct table *table;
    bool writes;
    uint64_t random;
    uint64_t busy_ns;
    struct ledger ledger;
};

static void lines_write(struct thread *thread, struct shared_line *lines, uint64_t count) {
    uint64_t tag = random_next(&thread->random);
    for (uint64_t n = 0; n < count; n++) {
        lines[n].word = tag + n;
        thread->ledger.written += tag + n;
    }
}

static void lines_read(struct thread *thread, struct shared_line *lines, uint64_t count, bool reply) {
    for (uint64_t n = 0; n < count; n++) {
        uint64_t word = lines[n].word;
        if (reply) lines[n].word = word;
        thread->ledger.read += word;
    }
}

static void thread_run(void *context) {
    struct thread *thread = context;
    struct table *table = thread->table;
    for (uint64_t round = 0; round < table->round_count; round++) {
        uint64_t turn = 2 * round + !thread->writes;
        unsigned spins = 0;
        while (atomic_load_explicit(&table->turn, memory_order_acquire) != turn) workload_spin(&spins);
        uint64_t start = turn_clock_ns();
        if (thread->writes) lines_write(thread, table->lines, table->line_count);
        else lines_read(thread, table->lines, table->line_count, table->reply);
        thread->busy_ns += turn_clock_ns() - start;
        atomic_store_explicit(&table->turn, turn + 1, memory_order_release);
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "line_turns", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    const uint64_t *value = workload.value;
    struct table *table = workload_map(sizeof *table);
    table->line_count = value[LINES];
    table->round_count = value[ROUNDS];
    table->reply = value[REPLY];
    struct thread *threads = workload_map(2 * sizeof *threads);
    for (unsigned i = 0; i < 2; i++) threads[i] = (struct thread){.table = table, .writes = i == 0};
    threads[0].random = random_stream(value[SEED], 0);

    workload_start(&workload);
    workload_threads_run(2, thread_run, threads, sizeof *threads);
    workload_stop(&workload, value[LINES] * value[ROUNDS]);
    workload_figure_add(&workload, "writer_ns", threads[0].busy_ns);
    workload_figure_add(&workload, "reader_ns", threads[1].busy_ns);

    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < 2; i++) ledger_add(&ledger, &threads[i].ledger);
    return workload_finish(&workload, &ledger);
}
