/* interpreter.c - what the operations of a program do: see program.h and interpreter.h. */
#define CHECK_NO_MAIN
#include "../clock.h" /* first: it says _GNU_SOURCE */

#include "../faults/fail_calls.h"
#include "../spec/calls.h"
#include "interpreter.h"
#include "lanes.h"
#include "program.h"

#include "watch/stats.h"

#include <fcntl.h>
#include <hakmem/hakmem.h>
#include <sys/wait.h>

/* So much may be in use, and so often is forked: both take longer than all the rest. */
#define BUDGET_BYTES ((size_t)32 << 20)
enum { MOST_FORKS = 1, CHILD_SECONDS = 30 };

bool interpreter_traces;

static struct model model;
static const uint8_t *program;
static size_t length, next;
static unsigned forks_left;
static struct operation late, handled; /* what a thread does while it ends, and a signal handler does */

/* ---- single blocks ---------------------------------------------------------------------------------- */

static bool is_affordable(struct request request) {
    struct due due = spec_due(request);
    return due.error != 0 || due.much || model.asked_bytes + due.bytes <= BUDGET_BYTES;
}

/* Nobody has a use for what is more than all memory. */
static void drop_if_much(unsigned slot) {
    if (model.asked_bytes > 2 * BUDGET_BYTES) spec_free(&model, slot, FREE_PLAIN);
}

static void allocate(unsigned slot, struct request request) {
    spec_free(&model, slot, FREE_PLAIN);
    if (!is_affordable(request)) return;
    spec_allocate(&model, slot, request);
    drop_if_much(slot);
}

static void resize(unsigned slot, struct request request) {
    if (!is_affordable(request)) return;
    spec_resize(&model, slot, request);
    drop_if_much(slot);
}

static size_t count_of(unsigned variant) {
    static const size_t counts[VARIANTS] = {1, 2, 3, 7, 64, 0, SIZE_MAX, SIZE_MAX / 64};
    return counts[variant];
}

/* Powers of two mostly. The last kind has what is refused, and what only some accept. */
static size_t alignment_of(struct operation operation) {
    static const size_t usual[VARIANTS - 1] = {32, 64, 256, 4096, 65536, (size_t)1 << 18, (size_t)1 << 22};
    static const size_t odd[] = {0, 1, 2, 8, 3, 24, 48, 100, 65535, (size_t)1 << 62, (size_t)1 << 63, SIZE_MAX};
    return operation.variant < VARIANTS - 1 ? usual[operation.variant]
                                            : odd[operation.slot / 2 % (sizeof odd / sizeof odd[0])];
}

static struct request request_of(struct operation operation, enum spec_call call) {
    return (struct request){.call = call, .count = 1, .bytes = operation.bytes, .alignment = alignment_of(operation)};
}

static struct request counted_request_of(struct operation operation, enum spec_call call) {
    return (struct request){.call = call, .count = count_of(operation.variant), .bytes = operation.bytes};
}

static void expand(struct operation operation) {
    size_t usable = model.blocks[operation.slot].usable, bytes = operation.bytes;
    if (operation.variant % 2 == 1 && bytes <= BUDGET_BYTES) bytes += usable;
    bool is_huge = bytes > BUDGET_BYTES && bytes <= PTRDIFF_MAX;
    if (!is_huge) spec_expand(&model, operation.slot, bytes);
}

/* ---- many blocks ------------------------------------------------------------------------------------ */

/* As many as fill a stack or a buffer, of one small size; or a few of any size. */
static void allocate_many(struct operation operation) {
    bool any_size = operation.variant >= VARIANTS - 2;
    unsigned count = any_size ? 1 + operation.number % 8 : 1 + operation.number % 256;
    size_t bytes = any_size ? operation.bytes : (operation.number >> 8) * (size_t)(operation.variant < 4 ? 4 : 64);
    for (unsigned i = 0; i < count; i++) {
        unsigned slot = (operation.slot + i) % MODEL_SLOTS;
        if (model.blocks[slot].start == NULL)
            allocate(slot, (struct request){.call = CALL_MALLOC, .count = 1, .bytes = bytes});
    }
}

/* In either order, all or some of them. */
static void free_many(struct operation operation) {
    unsigned count = 1 + operation.number % 256, stride = 1 + operation.variant % 4;
    for (unsigned i = 0; i < count; i += stride) {
        unsigned place = operation.variant < 4 ? i : count - 1 - i;
        spec_free(&model, (operation.slot + place) % MODEL_SLOTS, FREE_PLAIN);
    }
}

static void free_all(void) {
    for (unsigned slot = 0; slot < MODEL_SLOTS; slot++) spec_free(&model, slot, FREE_PLAIN);
}

/* ---- threads, forks, signals ------------------------------------------------------------------------ */

static struct request small_request(size_t bytes) {
    return (struct request){.call = CALL_MALLOC, .count = 1, .bytes = bytes % 2048};
}

/* In a thread whose heap is gone already. */
static void say_farewell(void) {
    if (late.variant % 2 == 0) return;
    spec_free(&model, late.slot, FREE_PLAIN);
    allocate((late.slot + 1) % MODEL_SLOTS, small_request(late.number));
}

static void end_lane(struct operation operation) {
    late = operation;
    lanes_end(operation.number % LANES, say_farewell);
}

/* The child has this thread only, and the blocks of all. */
static void live_as_child(void) {
    signal(SIGALRM, SIG_DFL);
    alarm(CHILD_SECONDS);
    lanes_forget();
    spec_check_all(&model);
    for (unsigned slot = 0; slot < MODEL_SLOTS; slot += 3) spec_free(&model, slot, FREE_PLAIN);
    for (unsigned slot = 0; slot < MODEL_SLOTS; slot += 16) allocate(slot, small_request(slot * 8));
    spec_collect();
    spec_check_all(&model);
    free_all();
    _exit(0);
}

static void fork_child(void) {
    int status = 0;
    if (forks_left == 0) return;
    forks_left--;
    pid_t child = fork();
    if (child == 0) live_as_child();
    if (child < 0) return;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) abort();
    SPEC(child, status == 0, "it ended with status %#x", (unsigned)status);
}

/* What a signal handler does in the middle of an operation. It knows nothing of what that is about: of a block that is being
 * resized a part, or all of where it was, may be free already. */
static void handle_signal(void) {
    unsigned busy = spec_busy_slot;
    struct model_block resized = {0};
    if (busy != MODEL_SLOTS) {
        resized = model.blocks[busy];
        model.blocks[busy].start = NULL;
    }
    bool may_refuse = model.may_refuse;
    model.may_refuse = true; /* what it gets is of another kind */
    for (unsigned i = 0; i < 3; i++) {
        unsigned slot = (handled.slot + i) % MODEL_SLOTS;
        struct request request = small_request(handled.number);
        if (handled.variant & 1) request.bytes = handled.number * (size_t)8;
        if (slot == busy) continue;
        spec_free(&model, slot, FREE_PLAIN);
        if (i < 2) allocate(slot, request);
    }
    if (busy != MODEL_SLOTS) model.blocks[busy] = resized;
    model.may_refuse = may_refuse;
    spec_busy_slot = busy;
}

/* ---- the world around ------------------------------------------------------------------------------- */

static void fail_calls(struct operation operation) {
    static const int errors[] = {0, EPERM, EINVAL, ENOSYS};
    /* What the kept programs mean by their numbers. */
    static const enum fail_kind kinds[] = {FAIL_MMAP,   FAIL_MUNMAP,         FAIL_MPROTECT, FAIL_MADVISE,
                                           FAIL_MREMAP, FAIL_PTHREAD_CREATE, FAIL_ANY};
    enum fail_kind kind = kinds[(operation.number >> 8) % (sizeof kinds / sizeof kinds[0])];
    /* Of three bits that mean nothing else, with kinds that no kept program has beside them. */
    if ((operation.number >> 5) % 8 == 3 && kind < FAIL_MADVISE) kind = FAIL_MEMBARRIER;
    model.may_refuse = true;
    fail_arm(kind, 1 + operation.number % 32, operation.variant & 1, errors[operation.variant / 2]);
}

/* What no rule is about. */
static void demand(bool condition, const char *what) {
    if (condition) return;
    check_say("FAIL interpreter: %s", what);
    abort();
}

/* Options with values to choose from, and what they were before the program: "", where it did not set them. */
enum { OPTION_VALUES = 3, HARD_LIMIT = 0, VALUE_BYTES = 40 };
static struct {
    const char *name, *values[OPTION_VALUES];
    char before[VALUE_BYTES];
} options[] = {
    [HARD_LIMIT] = {"hard_limit", {"16MiB", "24MiB", "64MiB"}, ""},
    {"soft_limit", {"1MiB", "8MiB", "none"}, ""},
    {"decay", {"10ms", "2s", "never"}, ""},
    {"thread_cache", {"64KiB", "1MiB", "16MiB"}, ""},
    {"populate", {"on", "off", "on"}, ""},
    {"huge_pages", {"always", "never", "auto"}, ""},
};
enum { OPTIONS = sizeof options / sizeof options[0] };

/* It is told in the middle of a call, and may do what it likes. */
static void soft_limit_passed(void *context) {
    (void)context;
    hak_free(hak_malloc(100));
    errno = EIO;
}

static void set_option(struct operation operation) {
    char now[VALUE_BYTES];
    const unsigned option = operation.number % OPTIONS;
    const char *name = options[option].name, *value = options[option].values[(operation.number >> 8) % OPTION_VALUES];
    if (options[option].before[0] == '\0')
        demand(hak_option_get(name, options[option].before, VALUE_BYTES) == 0, "an option has no value");
    if (option == HARD_LIMIT) model.may_refuse = true;
    hak_on_soft_limit(soft_limit_passed, NULL);
    demand(hak_option_set(name, value) == 0, "an option cannot be set");
    demand(hak_option_get(name, now, sizeof now) == 0 && strcmp(now, value) == 0, "an option was not set");
}

static void restore_option(unsigned option) {
    char *before = options[option].before;
    if (before[0] != '\0') demand(hak_option_set(options[option].name, before) == 0, "an option cannot be set as it was");
    before[0] = '\0';
}

static void restore_options(void) {
    for (unsigned option = 0; option < OPTIONS; option++) restore_option(option);
    hak_on_soft_limit(NULL, NULL);
}

static void lift_failures(void) {
    fail_disarm();
    restore_option(HARD_LIMIT);
    model.may_refuse = false;
}

static void pass_time(unsigned number) {
    static const unsigned some_ms[] = {1, 20, 50, 100, 400, 1000, 4000, 60000};
    clock_pass(some_ms[number % 8]);
}

static void ask_sizes(struct operation operation) {
    spec_good_size(operation.bytes);
    spec_null();
    spec_memalignment((void *)(operation.bytes | (uintptr_t)1 << operation.number % 48));
}

/* The last variant is what all programs had at first. */
static void write_statistics(unsigned variant) {
    static const enum hak_stats_form forms[] = {HAK_STATS_TEXT, HAK_STATS_JSON, HAK_STATS_OPENMETRICS};
    int file = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    if (variant == 1) hak_stats_reset_peaks();
    const int result = variant == VARIANTS - 1 ? hak_stats_print(file) : hak_stats_write(file, forms[variant % 3]);
    demand(result == 0, "statistics are not written");
    close(file);
}

/* ---- programs --------------------------------------------------------------------------------------- */

static void trace(struct operation operation) {
    dprintf(STDERR_FILENO, "%4zu  lane %u  %-14s variant %u  slot %3u  bytes %zu (number %u)\n", next, lanes_current(),
            operation_names[operation.kind], operation.variant, operation.slot, operation.bytes, operation.number);
}

static void perform(struct operation operation) {
    unsigned slot = operation.slot, variant = operation.variant;
    switch (operation.kind) {
    case OP_MALLOC: allocate(slot, request_of(operation, CALL_MALLOC)); break;
    case OP_CALLOC: allocate(slot, counted_request_of(operation, CALL_CALLOC)); break;
    case OP_REALLOC: resize(slot, request_of(operation, CALL_REALLOC)); break;
    case OP_REALLOCARRAY: resize(slot, counted_request_of(operation, CALL_REALLOCARRAY)); break;
    case OP_ALIGNED_ALLOC: allocate(slot, request_of(operation, CALL_ALIGNED_ALLOC)); break;
    case OP_MEMALIGN: allocate(slot, request_of(operation, CALL_MEMALIGN)); break;
    case OP_POSIX_MEMALIGN: allocate(slot, request_of(operation, CALL_POSIX_MEMALIGN)); break;
    case OP_VALLOC: allocate(slot, request_of(operation, variant < 4 ? CALL_VALLOC : CALL_PVALLOC)); break;
    case OP_FREE: spec_free(&model, slot, (enum spec_free)(variant % SPEC_FREES)); break;
    case OP_EXPAND: expand(operation); break;
    case OP_MALLOC_MANY: allocate_many(operation); break;
    case OP_FREE_MANY: free_many(operation); break;
    case OP_SIZES: ask_sizes(operation); break;
    case OP_CHECK_ALL: spec_check_all(&model); break;
    case OP_SWITCH: lanes_switch(operation.number % LANES); break;
    case OP_END: end_lane(operation); break;
    case OP_FORK: variant < 2 ? fork_child() : spec_check_all(&model); break;
    case OP_FAIL: fail_calls(operation); break;
    case OP_LIFT: lift_failures(); break;
    case OP_INTERRUPT:
        handled = operation;
        fail_interrupt(1 + operation.number % 8, handle_signal);
        break;
    case OP_PASS_TIME: pass_time(operation.number); break;
    case OP_COLLECT: variant < 4 ? spec_collect() : spec_trim(); break;
    case OP_SET: set_option(operation); break;
    default: write_statistics(variant); break;
    }
}

static bool step(void) {
    if (next == length) return false;
    struct operation operation = program_operation(program, next);
    if (interpreter_traces) trace(operation);
    next++;
    perform(operation);
    return true;
}

/* A process whose own malloc is hakmem has blocks in use that the model does not know of. */
static void check_conserved(void) {
#ifdef HAK_NO_LIBC_NAMES
    struct stats_totals totals;
    stats_read_totals(&totals);
    SPEC(conserved, totals.in_use_bytes == 0, "%zu bytes are, %zu of them in large blocks", totals.in_use_bytes,
         totals.large_bytes);
#endif
}

void interpret(const uint8_t *bytes, size_t size) {
    program = bytes;
    length = program_length(size < PROGRAM_MOST_BYTES ? size : PROGRAM_MOST_BYTES);
    next = 0;
    forks_left = MOST_FORKS;
    late = handled = (struct operation){.kind = OP_CHECK_ALL};
    lanes_run(step);
    fail_interrupt(0, NULL);
    lift_failures();
    restore_options();
    spec_check_all(&model);
    for (unsigned lane = 1; lane < LANES; lane++) lanes_end(lane, NULL);
    free_all();
    spec_collect();
    check_conserved();
}
