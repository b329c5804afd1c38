/* workload.c - the shared part of the workloads: see workload.h. Nothing here allocates between
 * workload_start and workload_finish's last reading, so that what is counted is the workload's. */
#include "workload.h"

#include "latency.h"
#include "line.h"
#include "resident.h"
#include "turn_clock.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Whether the twin of latency.h runs; set before there are other threads. */
static bool in_latency_twin;

/* ---- failures ------------------------------------------------------------------------------------- */

void workload_fail(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "%s: %s\n", program_invocation_short_name, text);
    _exit(1);
}

void workload_memory_refused(size_t bytes) {
    workload_fail("malloc(%zu) returned NULL", bytes);
}

/* ---- the command line ----------------------------------------------------------------------------- */

/* Whether the environment variable NAME is 1; it may also be 0, or not set. */
static bool variable_asks(const char *name) {
    const char *text = getenv(name);
    if (text == NULL || strcmp(text, "0") == 0) return false;
    if (strcmp(text, "1") != 0) workload_fail("%s is 0 or 1, not '%s'", name, text);
    return true;
}

static void usage_print(const struct workload *workload, int fd) {
    dprintf(fd, "usage: %s", workload->name);
    for (unsigned i = 0; i < workload->argument_count; i++) {
        const struct workload_argument *argument = &workload->arguments[i];
        dprintf(fd, argument->optional ? " [%s]" : " %s", argument->name);
    }
    dprintf(fd, "\n");
}

static void argument_read(struct workload *workload, unsigned index, const char *text) {
    const struct workload_argument *argument = &workload->arguments[index];
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || number < argument->minimum ||
        number > argument->maximum) {
        dprintf(STDERR_FILENO, "%s: %s is a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'\n",
                workload->name, argument->name, argument->minimum, argument->maximum, text);
        _exit(2);
    }
    workload->value[index] = number;
}

/* Killed with the process that started it, which alone limits its time. */
static void end_with_parent(void) {
    pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
}

void workload_open(struct workload *workload, const char *name, const struct workload_argument *arguments,
                   unsigned argument_count, int argc, char **argv) {
    if (!in_latency_twin && variable_asks("WORKLOAD_LATENCY")) {
        if (workload_latency_main == NULL) workload_fail("was built without the latency of single calls");
        in_latency_twin = true;
        exit(workload_latency_main(argc, argv));
    }
    end_with_parent();
    memset(workload, 0, sizeof *workload);
    workload->name = name;
    workload->arguments = arguments;
    workload->argument_count = argument_count;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        usage_print(workload, STDOUT_FILENO);
        _exit(0);
    }
    unsigned given = argc > 0 ? (unsigned)argc - 1 : 0;
    if (given > argument_count) {
        dprintf(STDERR_FILENO, "%s: %u arguments are too many\n", name, given);
        usage_print(workload, STDERR_FILENO);
        _exit(2);
    }
    for (unsigned i = 0; i < argument_count; i++) {
        if (i < given) {
            argument_read(workload, i, argv[i + 1]);
        } else if (arguments[i].optional) {
            workload->value[i] = arguments[i].fallback;
        } else {
            dprintf(STDERR_FILENO, "%s: %s is missing\n", name, arguments[i].name);
            usage_print(workload, STDERR_FILENO);
            _exit(2);
        }
    }
}

void workload_size_check(const struct workload *workload, unsigned argument) {
    uint64_t size = workload->value[argument];
    if (size != 0 && size < BLOCK_BYTES_MIN) {
        dprintf(STDERR_FILENO, "%s: %s is 0 (mixed, 16 to 256 bytes) or at least %d bytes\n", workload->name,
                workload->arguments[argument].name, BLOCK_BYTES_MIN);
        _exit(2);
    }
}

/* ---- memory and threads of the workload's own ------------------------------------------------------ */

void *workload_map(size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    void *memory = mmap(NULL, bytes == 0 ? 1 : bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) workload_fail("no %zu bytes for the workload's own tables: %s", bytes, strerror(errno));
    return memory;
}

/* More threads than processors: a thread that waits yields immediately. Set before the threads start. */
static bool crowded;

struct thread_start {
    void (*body)(void *context);
    void *context;
    int cpu; /* -1: wherever the kernel likes */
};

static void *thread_enter(void *argument) {
    const struct thread_start *start = argument;
    if (start->cpu >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((unsigned)start->cpu, &one);
        sched_setaffinity(0, sizeof one, &one); /* 0: this thread; a refusal costs only steadiness */
    }
    start->body(start->context);
    return NULL;
}

/* The processors this process may use, as main left them. */
static unsigned processors_read(cpu_set_t *allowed) {
    return sched_getaffinity(getpid(), sizeof *allowed, allowed) == 0 ? (unsigned)CPU_COUNT(allowed) : 0;
}

/* The processor number INDEX of those ALLOWED, or -1 when there is none. */
static int processor_at(const cpu_set_t *allowed, unsigned index) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((unsigned)cpu, allowed) && index-- == 0) return cpu;
    }
    return -1;
}

void workload_threads_run(unsigned count, void (*body)(void *context), void *contexts, size_t context_bytes) {
    pthread_t threads[WORKLOAD_THREADS_MAX];
    struct thread_start starts[WORKLOAD_THREADS_MAX];
    cpu_set_t allowed;
    unsigned processors = processors_read(&allowed);
    crowded = processors < count;
    for (unsigned i = 0; i < count; i++) {
        int cpu = processors == 0 ? -1 : processor_at(&allowed, i % processors);
        starts[i] = (struct thread_start){body, (char *)contexts + i * context_bytes, cpu};
    }
    for (unsigned i = 1; i < count; i++) {
        int error = pthread_create(&threads[i], NULL, thread_enter, &starts[i]);
        if (error != 0) workload_fail("thread %u cannot start: %s", i, strerror(error));
    }
    thread_enter(&starts[0]);
    for (unsigned i = 1; i < count; i++) pthread_join(threads[i], NULL);
}

void workload_spin(unsigned *spins) {
    if (crowded || ++*spins % 1024 == 0) {
        sched_yield();
        return;
    }
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- random numbers -------------------------------------------------------------------------------- */

uint64_t random_log(uint64_t draw, uint64_t minimum, uint64_t maximum) {
    double share = (double)(draw >> 32) / 4294967296.0;
    uint64_t number = (uint64_t)((double)minimum * exp2(share * log2((double)maximum / (double)minimum)));
    return number < maximum ? number : maximum;
}

/* ---- measuring -------------------------------------------------------------------------------------- */

void workload_usage_read(struct workload_usage *usage) {
    struct rusage kernel;
    getrusage(RUSAGE_SELF, &kernel);
    usage->minor_faults = (uint64_t)kernel.ru_minflt;
    usage->major_faults = (uint64_t)kernel.ru_majflt;
    usage->involuntary_switches = (uint64_t)kernel.ru_nivcsw;
    usage->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    usage->wall_ns = turn_clock_ns();
}

static double slowdown_share_read(void) {
    const char *text = getenv("WORKLOAD_SLOWDOWN");
    if (text == NULL) return 0;
    char *end = NULL;
    double percent = strtod(text, &end);
    if (end == text || *end != '\0' || !(percent >= 0 && percent <= 1000)) {
        workload_fail("WORKLOAD_SLOWDOWN is a number of per cent from 0 to 1000, not '%s'", text);
    }
    return percent / 100;
}

/* By the clock that the workload is measured by. */
static uint64_t measured_ns(const struct workload *workload) {
    return workload->paced ? clock_ns(CLOCK_PROCESS_CPUTIME_ID) : turn_clock_ns();
}

void workload_start(struct workload *workload) {
    if (in_latency_twin) latency_start();
    workload_usage_read(&workload->started);
}

void workload_stop(struct workload *workload, uint64_t ops) {
    latency_stop();
    double slowdown = slowdown_share_read();
    if (slowdown > 0) {
        uint64_t started = workload->paced ? workload->started.cpu_ns : workload->started.wall_ns;
        uint64_t end = started + (uint64_t)((double)(measured_ns(workload) - started) * (1 + slowdown));
        while (measured_ns(workload) < end) {}
    }
    workload_usage_read(&workload->stopped);
    workload->ops = ops;
    workload->peak_rss_kib = peak_rss_kib_read();
}

/* ---- the report ------------------------------------------------------------------------------------- */

/* The object whose FUNCTION this process calls: the proof of which allocator served it. */
static void line_add_owner(struct line *line, const char *key, const char *function) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, function);
    line_add(line, ",\"%s\":", key);
    if (address != NULL && dladdr(address, &info) != 0 && info.dli_fname != NULL) {
        line_add_quoted(line, info.dli_fname);
    } else {
        line_add(line, "null");
    }
}

static uint64_t seed_find(const struct workload *workload) {
    for (unsigned i = 0; i < workload->argument_count; i++) {
        if (strcmp(workload->arguments[i].name, "SEED") == 0) return workload->value[i];
    }
    return 0;
}

static void line_add_measured(struct line *line, const struct workload *workload) {
    const struct workload_usage *started = &workload->started;
    const struct workload_usage *stopped = &workload->stopped;
    double seconds = (double)(stopped->wall_ns - started->wall_ns) / (double)NS_PER_SECOND;
    double cpu_seconds = (double)(stopped->cpu_ns - started->cpu_ns) / (double)NS_PER_SECOND;
    line_add(line, ",\"ops\":%" PRIu64 ",\"seconds\":%.9f,\"ops_per_second\":%.1f,\"cpu_seconds\":%.9f",
             workload->ops, seconds, seconds > 0 ? (double)workload->ops / seconds : 0, cpu_seconds);
    line_add(line, ",\"minor_faults\":%" PRIu64 ",\"minor_faults_before\":%" PRIu64,
             stopped->minor_faults - started->minor_faults, started->minor_faults);
    line_add(line, ",\"major_faults\":%" PRIu64 ",\"involuntary_switches\":%" PRIu64 ",\"peak_rss_kib\":%" PRIu64,
             stopped->major_faults - started->major_faults,
             stopped->involuntary_switches - started->involuntary_switches, workload->peak_rss_kib);
}

static void line_add_checksum(struct line *line, bool comparable, uint64_t checksum) {
    if (!comparable) {
        line_add(line, ",\"checksum\":null,\"checksum_of_this_run\":\"%016" PRIx64 "\"", checksum);
    } else {
        line_add(line, ",\"checksum\":\"%016" PRIx64 "\"", checksum);
    }
}

static void line_add_series(struct line *line, const struct workload_series *series) {
    line_add(line, ",\"%s\":[", series->name);
    for (unsigned i = 0; i < series->count; i++) line_add(line, "%s%" PRIu64, i == 0 ? "" : ",", series->values[i]);
    line_add(line, "]");
}

void workload_figure_add(struct workload *workload, const char *name, uint64_t value) {
    if (workload->figure_count == WORKLOAD_FIGURES_MAX) workload_fail("too many figures");
    workload->figures[workload->figure_count++] = (struct workload_figure){name, value};
}

void workload_series_add(struct workload *workload, const char *name, const uint64_t *values, unsigned count) {
    if (workload->series_count == WORKLOAD_SERIES_MAX) workload_fail("too many series");
    workload->series[workload->series_count++] = (struct workload_series){name, values, count};
}

int workload_finish(struct workload *workload, const struct ledger *ledger) {
    /* Under an allocator that gives several owners the same block, nothing is read back as it was written. */
    bool shared = variable_asks("WORKLOAD_SHARED_BLOCKS");
    if (!shared && ledger->written != ledger->read) {
        workload_fail("blocks were not as they were left: wrote %016" PRIx64 ", read %016" PRIx64, ledger->written,
                      ledger->read);
    }
    static struct line line;
    line_add(&line, "{\"workload\":");
    line_add_quoted(&line, workload->name);
    line_add_measured(&line, workload);
    /* As text: a JSON reader may keep only 53 bits of a number. */
    line_add_checksum(&line, !workload->by_clock && !shared, ledger->read);
    line_add(&line, ",\"seed\":\"%" PRIu64 "\"", seed_find(workload));
    line_add(&line, ",\"arguments\":{");
    for (unsigned i = 0; i < workload->argument_count; i++) {
        line_add(&line, "%s", i == 0 ? "" : ",");
        line_add_lower(&line, workload->arguments[i].name);
        line_add(&line, ":%" PRIu64, workload->value[i]);
    }
    line_add(&line, "}");
    for (unsigned i = 0; i < workload->figure_count; i++) {
        line_add(&line, ",\"%s\":%" PRIu64, workload->figures[i].name, workload->figures[i].value);
    }
    for (unsigned i = 0; i < workload->series_count; i++) line_add_series(&line, &workload->series[i]);
    if (in_latency_twin) latency_line_add(&line);
    line_add_owner(&line, "malloc_from", "malloc");
    line_add_owner(&line, "free_from", "free");
    line_add(&line, "}\n");
    line_print(&line);
    return 0;
}
