/* failures.c - what caused a failure, and the ring of the last ones. */
#include "watch/failures.h"

#include "heap/footprint.h"
#include "heap/front.h"
#include "os/os.h"
#include "region/outside.h"
#include "span/span.h"

#include <errno.h>

struct ring_slot failure_slots[FAILURES_KEPT];
counter failure_counts[FAILURE_CAUSE_COUNT];

static counter last_number;
_Static_assert(sizeof(struct failure) <= RING_VALUES * sizeof(uint64_t), "a slot holds it");
static const struct ring ring = {failure_slots, &last_number, FAILURES_KEPT,
                                 sizeof(struct failure) / sizeof(uint64_t)};

static _Atomic bool traced;

#define NAME(id, name, ...) name,
static const char *const cause_names[] = {FAILURE_CAUSES(NAME)};
#undef NAME
#define TEXT(id, name, text) text,
static const char *const cause_texts[] = {FAILURE_CAUSES(TEXT)};
#undef TEXT

const char *failure_cause_name(enum failure_cause cause) { return cause_names[cause]; }

uint64_t failures_made(void) { return counter_read(&last_number); }

bool failure_read(uint64_t number, struct failure *failure) { return ring_read(&ring, number, failure); }

/* relaxed: a setting. */
void failures_configure(bool trace) { atomic_store_explicit(&traced, trace, memory_order_relaxed); }

static enum failure_cause find_cause(size_t bytes, size_t alignment) {
    if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) return FAILURE_THRESHOLD;
    return os_refusal.error != 0 ? FAILURE_MAP : FAILURE_EXHAUSTION;
}

/* What the kernel allows is known only where it is a limit of address space. */
static uint64_t limit_of(enum failure_cause cause) {
    if (cause == FAILURE_THRESHOLD) return PTRDIFF_MAX;
    return cause == FAILURE_MAP ? os_address_limit() : span_limit_bytes();
}

static void trace(const struct failure *failure) {
    char number[12] = "";
    bool refused = failure->cause == FAILURE_MAP;
    const char *call = refused ? os_call_name((enum os_call)failure->call) : "";
    const char *error = refused ? os_error_name((int)failure->error, number) : "";
    os_message("no memory for %zu bytes aligned to %zu: %s: %s%s%s%s%s%s; %llu bytes in use, failure %llu",
               (size_t)failure->bytes, (size_t)failure->alignment, cause_names[failure->cause],
               cause_texts[failure->cause], refused ? " (" : "", call, refused ? ": " : "", error, refused ? ")" : "",
               (unsigned long long)failure->in_use, (unsigned long long)failure->number);
}

HAK_COLD void failure_note(size_t bytes, size_t alignment) {
    const struct os_refusal refusal = os_refusal;
    const enum failure_cause cause = find_cause(bytes, alignment);
    int saved = errno;
    const bool refused = cause == FAILURE_MAP;
    struct failure failure = {
        .time_ms = os_clock_ms(),
        .bytes = bytes,
        .alignment = alignment,
        .limit = limit_of(cause),
        .in_use = footprint_in_use() + counter_read(&outside_totals.bytes),
        .cause = cause,
        .class = bytes <= MEDIUM_MAX_BYTES ? size_class_of(bytes) : SIZE_CLASSES,
        .call = refused ? refusal.call : 0,
        .error = refused ? refusal.error : 0,
        .thread_id = os_thread_id(),
    };
    atomic_fetch_add_explicit(&failure_counts[cause], 1, memory_order_relaxed); /* a statistic */
    failure.number = ring_add(&ring, &failure);
    if (atomic_load_explicit(&traced, memory_order_relaxed)) trace(&failure);
    errno = saved;
}
