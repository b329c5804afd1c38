/* give_back.c - what a process of two sleeping threads keeps after 99 % of its blocks were freed.
 *
 *     give_back MIB [SEED] [--thp never|madvise|always] [--sizes uniform|log]
 *               [--idle SECONDS] [--then-operations N]
 *
 * The main thread fills MIB MiB of blocks of 100 bytes to 64 KiB, a second thread frees 99 % of them in
 * random order, and both sleep: ten seconds later, or up to five more where the machine is busy and the
 * purge thread late, no more may be resident than the pages of the live blocks, a share of them and a small
 * sum. With --then-operations the time passes while main does a few operations instead of none. One line of
 * figures; status 0 when they are within the bound.
 *
 * `--thp always` only says that the machine was set so; who starts the program does that. What was given
 * back must stay so: the kernel's khugepaged looks at a part of every process each ten seconds, and where
 * it makes a huge page of one that has holes, the holes are resident again. --idle waits for that, and the
 * larger of the two measurements counts.
 *
 * Planted defects it is to catch: pages given back only in wholly free slabs; memory freed by a thread
 * that sleeps ever after kept in its bins or in the remote buffers; live neighbours given back with
 * the holes (their contents are gone).
 */
#define CHECK_NO_MAIN
#include "footprint.h"

#include <sys/prctl.h>

#define KEPT_ONE_IN 100
#define SLACK_BYTES (MIB(2) + 2 * KIB(512))
#define PORTIONS 10

static struct {
    size_t bytes, operations, idle_seconds;
    uint64_t seed;
    bool logarithmic, without_huge_pages;
} arguments = {.seed = 1};

static struct table table;
static volatile int freed;

static void *free_and_sleep(void *unused) {
    table_free_all_but(&table, table.count / KEPT_ONE_IN);
    __atomic_store_n(&freed, 1, __ATOMIC_RELEASE);
    for (;;) pause();
    return unused;
}

static void start_second_thread(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, KIB(256));
    CHECK_EQ(pthread_create(&thread, &attributes, free_and_sleep, NULL), 0);
    pthread_attr_destroy(&attributes);
    while (!__atomic_load_n(&freed, __ATOMIC_ACQUIRE)) sleep_ms(1);
}

/* Half of the operations are mallocs, half frees. */
static void operate(size_t operations, struct rng *rng) {
    sleep_ms(2000);
    for (size_t portion = 0; portion < PORTIONS; portion++) {
        for (size_t i = 0; i < operations / 2 / PORTIONS; i++) {
            size_t size = rng_log(rng, 16, KIB(256));
            void *block = malloc(size);
            CHECK(block != NULL);
            memset(block, 1, size);
            free(block);
        }
        if (portion + 1 < PORTIONS) sleep_ms(1000);
    }
}

static void read_arguments(int count, char **values) {
    size_t numbers = 0;
    for (int i = 1; i < count; i++) {
        const char *value = values[i], *next = i + 1 < count ? values[i + 1] : "";
        if (strcmp(value, "--thp") == 0) {
            arguments.without_huge_pages = strcmp(next, "never") == 0;
            i++;
        } else if (strcmp(value, "--sizes") == 0) {
            arguments.logarithmic = strcmp(next, "log") == 0;
            i++;
        } else if (strcmp(value, "--then-operations") == 0) {
            arguments.operations = strtoul(next, NULL, 10);
            i++;
        } else if (strcmp(value, "--idle") == 0) {
            arguments.idle_seconds = strtoul(next, NULL, 10);
            i++;
        } else if (numbers++ == 0) {
            arguments.bytes = MIB(strtoul(value, NULL, 10));
        } else {
            arguments.seed = strtoul(value, NULL, 10);
        }
    }
    if (arguments.bytes == 0) {
        check_say("give_back MIB [SEED] [--thp never|madvise|always] [--sizes uniform|log]"
                  " [--idle SECONDS] [--then-operations N]");
        exit(2);
    }
}

/* What was given back serves again, and nothing in it belongs to a live block. */
static void use_again(struct rng *rng) {
    size_t bytes = arguments.bytes < MIB(256) ? arguments.bytes : MIB(256);
    struct table again = table_map(table_room(bytes), arguments.seed + 1);
    table_allocate(&again, bytes, rng, arguments.logarithmic);
    table_verify(&table);
    table_free_all_but(&again, 0);
    table_verify(&table);
    table_free_all_but(&table, 0);
}

int main(int argc, char **argv) {
    check_now.name = "give_back";
    read_arguments(argc, argv);
    if (is_hakmem_expected()) CHECK(is_served_by_hakmem());
    if (arguments.without_huge_pages) CHECK_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    alarm(180 + (unsigned)arguments.idle_seconds);
    struct rng rng = {arguments.seed << 32};
    table = table_map(table_room(arguments.bytes), arguments.seed);
    size_t start = rss_bytes();
    table_allocate(&table, arguments.bytes, &rng, arguments.logarithmic);
    table_shuffle(&table, &rng);
    size_t peak = rss_bytes();
    CHECK(peak >= start + arguments.bytes);
    start_second_thread();
    size_t live = table_live_bytes(&table), bound = live + live * 15 / 100 + SLACK_BYTES;
    if (arguments.operations > 0)
        operate(arguments.operations, &rng);
    else
        sleep_ms(IDLE_MILLISECONDS);
    size_t rss = wait_for_rss(start + bound, LATE_MILLISECONDS);
    if (arguments.idle_seconds * 1000 > IDLE_MILLISECONDS) {
        sleep_ms(arguments.idle_seconds * 1000 - IDLE_MILLISECONDS);
        size_t later = rss_bytes();
        if (later > rss) rss = later;
    }
    size_t after = rss > start ? rss - start : 0;
    check_say("give_back: start %zu KiB, of it tables %zu; peak +%zu, after +%zu, pages of live blocks %zu, "
              "bound %zu, %zu of %zu blocks live",
              start >> 10, table.bytes >> 10, (peak - start) >> 10, after >> 10, live >> 10, bound >> 10,
              table.count / KEPT_ONE_IN, table.count);
    table_verify(&table);
    use_again(&rng);
    CHECK(after <= bound);
    check_say("ok give_back");
    return 0;
}
