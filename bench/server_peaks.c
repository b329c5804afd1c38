/* server_peaks SECONDS SEED - a server with a steady load and peaks: two threads keep about 32 MiB of blocks of 64
 * bytes to 32 KiB and replace random ones at a fixed rate; every two seconds a peak takes 256 MiB more, in blocks of
 * 64 bytes to 1 MiB, and frees them, all within 0.3 s. What counts is the processor time for the same
 * requests: what it costs to get memory from the kernel and return it when demand comes and goes.
 *
 * Every 5 ms each thread serves what is due and sleeps; one that is late catches up. So the number of requests
 * depends on SECONDS alone, and `cpu_seconds` over `ops` is the figure, also given as `cpu_ns_per_request`. One
 * operation is one request: one block allocated and written, a word in every 4 KiB, and one freed. Sizes are
 * drawn evenly on a logarithmic scale. A thread frees its own blocks. */
#include "workload.h"

#include <time.h>

#define THREAD_COUNT 2
#define TICK_NS UINT64_C(5000000)
#define TICKS_PER_SECOND 200
#define REQUESTS_PER_TICK 100

#define BASE_SLOTS 3200 /* a thread's; with a mean of 5.2 KiB, 16 MiB */
#define BASE_MIN 64
#define BASE_MAX (UINT64_C(32) << 10)

#define PEAK_PERIOD_TICKS (2 * TICKS_PER_SECOND)
#define PEAK_FIRST_TICK (TICKS_PER_SECOND / 2)
#define PEAK_GROW_TICKS 40
#define PEAK_FREE_TICKS 20
#define PEAK_BYTES (UINT64_C(128) << 20) /* a thread's */
#define PEAK_MIN 64
#define PEAK_MAX (UINT64_C(1) << 20)
#define PEAK_SLOTS 8192 /* with a mean of 105 KiB about 1250 are used */

#define TOUCH_BYTES 4096

enum { SECONDS, SEED };

static const struct workload_argument arguments[] = {{"SECONDS", 1, 86400, false, 0}, ARGUMENT_SEED};

/* Belongs to its thread. */
struct service {
    WORKLOAD_APART void **base;
    void **peak;
    uint64_t peak_count;
    uint64_t peak_bytes;
    uint64_t ticks;
    uint64_t random;
    uint64_t ops;
    struct ledger ledger;
};

static void *block_write(struct service *service, uint64_t draw, uint64_t minimum, uint64_t maximum,
                         size_t *bytes) {
    *bytes = random_log(draw, minimum, maximum);
    volatile char *block = block_make(&service->ledger, *bytes, draw);
    for (size_t at = TOUCH_BYTES; at < *bytes; at += TOUCH_BYTES) block[at] = (char)draw;
    service->ops++;
    return (void *)(uintptr_t)block;
}

static void base_serve(struct service *service, unsigned requests) {
    for (unsigned i = 0; i < requests; i++) {
        uint64_t draw = random_next(&service->random);
        size_t bytes;
        void **slot = &service->base[random_low(draw, BASE_SLOTS)];
        if (*slot != NULL) block_drop(&service->ledger, *slot);
        *slot = block_write(service, draw, BASE_MIN, BASE_MAX, &bytes);
    }
}

static void peak_grow(struct service *service, uint64_t until_bytes) {
    while (service->peak_bytes < until_bytes && service->peak_count < PEAK_SLOTS) {
        size_t bytes;
        uint64_t draw = random_next(&service->random);
        service->peak[service->peak_count++] = block_write(service, draw, PEAK_MIN, PEAK_MAX, &bytes);
        service->peak_bytes += bytes;
    }
}

/* Frees in the order of allocation, as requests end. */
static void peak_shrink(struct service *service, unsigned tick) {
    uint64_t first = service->peak_count * tick / PEAK_FREE_TICKS;
    uint64_t end = service->peak_count * (tick + 1) / PEAK_FREE_TICKS;
    for (uint64_t i = first; i < end; i++) block_drop(&service->ledger, service->peak[i]);
    if (tick + 1 == PEAK_FREE_TICKS) service->peak_count = service->peak_bytes = 0;
}

static void tick_serve(struct service *service, uint64_t tick) {
    base_serve(service, REQUESTS_PER_TICK);
    uint64_t phase = (tick + PEAK_PERIOD_TICKS - PEAK_FIRST_TICK) % PEAK_PERIOD_TICKS;
    if (tick < PEAK_FIRST_TICK) return;
    if (phase < PEAK_GROW_TICKS) {
        peak_grow(service, PEAK_BYTES * (phase + 1) / PEAK_GROW_TICKS);
    } else if (phase < PEAK_GROW_TICKS + PEAK_FREE_TICKS) {
        peak_shrink(service, (unsigned)(phase - PEAK_GROW_TICKS));
    }
}

static void service_run(void *context) {
    struct service *service = context;
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (uint64_t tick = 0; tick < service->ticks; tick++) {
        tick_serve(service, tick);
        uint64_t ns = (uint64_t)start.tv_nsec + (tick + 1) * TICK_NS;
        struct timespec due = {start.tv_sec + (time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0) {}
    }
}

static void service_open(struct service *service, unsigned thread, const uint64_t *value) {
    *service = (struct service){
        .base = workload_map(BASE_SLOTS * sizeof(void *)),
        .peak = workload_map(PEAK_SLOTS * sizeof(void *)),
        .ticks = value[SECONDS] * TICKS_PER_SECOND,
        .random = random_stream(value[SEED], thread),
    };
}

static void service_close(struct service *service) {
    for (unsigned i = 0; i < BASE_SLOTS; i++) {
        if (service->base[i] != NULL) block_drop(&service->ledger, service->base[i]);
    }
}

int main(int argc, char **argv) {
    struct workload workload;
    workload_open(&workload, "server_peaks", arguments, WORKLOAD_COUNT(arguments), argc, argv);
    workload.paced = true;
    struct service *services = workload_map(THREAD_COUNT * sizeof *services);
    for (unsigned i = 0; i < THREAD_COUNT; i++) service_open(&services[i], i, workload.value);

    workload_start(&workload);
    workload_threads_run(THREAD_COUNT, service_run, services, sizeof *services);
    uint64_t ops = 0;
    for (unsigned i = 0; i < THREAD_COUNT; i++) ops += services[i].ops;
    workload_stop(&workload, ops);

    uint64_t cpu_ns = workload.stopped.cpu_ns - workload.started.cpu_ns;
    workload_figure_add(&workload, "cpu_ns_per_request", cpu_ns / ops);
    struct ledger ledger = {0, 0};
    for (unsigned i = 0; i < THREAD_COUNT; i++) {
        service_close(&services[i]);
        ledger_add(&ledger, &services[i].ledger);
    }
    return workload_finish(&workload, &ledger);
}
