/* failures.c - the last failures in a ring, and what caused each. */
#include "watch/failures.h"

#include "heap/footprint.h"
#include "heap/front.h"
#include "os/os.h"
#include "span/span.h"

#include <errno.h>

struct failure_slot failure_ring[FAILURES_KEPT];
counter failure_counts[FAILURE_CAUSE_COUNT];

static counter last_number;
static _Atomic bool traced;

#define NAME(id, name, ...) name,
static const char *const cause_names[] = {FAILURE_CAUSES(NAME)};
#undef NAME
#define TEXT(id, name, text) text,
static const char *const cause_texts[] = {FAILURE_CAUSES(TEXT)};
#undef TEXT

const char *failure_cause_name(enum failure_cause cause) { return cause_names[cause]; }

/* relaxed: a setting. */
void failures_configure(bool trace) { atomic_store_explicit(&traced, trace, memory_order_relaxed); }

/* ---- the ring -------------------------------------------------------------------------------------- */

/* A slot whose number is 0 is empty, or being written. Two threads write to one only when one of them was overtaken by
 * all others. */
static void keep(const struct failure *failure) {
    struct failure_slot *slot = &failure_ring[(failure->number - 1) % FAILURES_KEPT];
    counter_set(&slot->number, 0);
    /* release, each: whoever sees something new finds no number. */
#define KEEP(name, ...)                                                                                       \
    if (&slot->name != &slot->number) atomic_store_explicit(&slot->name, failure->name, memory_order_release);
    FAILURE_FIELDS(KEEP)
#undef KEEP
    atomic_store_explicit(&slot->number, failure->number, memory_order_release); /* pairs with failure_read */
}

bool failure_read(int place, struct failure *failure) {
    const struct failure_slot *slot = &failure_ring[place];
    uint64_t number = atomic_load_explicit(&slot->number, memory_order_acquire); /* pairs with keep */
    /* acquire, each: what was read comes before the second look. */
#define READ(name, ...) failure->name = atomic_load_explicit(&slot->name, memory_order_acquire);
    FAILURE_FIELDS(READ)
#undef READ
    failure->number = counter_read(&slot->number);
    return number != 0 && failure->number == number;
}

/* ---- what happened --------------------------------------------------------------------------------- */

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

void failure_note(size_t bytes, size_t alignment) {
    const struct os_refusal refusal = os_refusal;
    const enum failure_cause cause = find_cause(bytes, alignment);
    int saved = errno;
    const bool refused = cause == FAILURE_MAP;
    const struct failure failure = {
        .number = atomic_fetch_add_explicit(&last_number, 1, memory_order_relaxed) + 1, /* each its own */
        .time_ms = os_clock_ms(),
        .bytes = bytes,
        .alignment = alignment,
        .limit = limit_of(cause),
        .in_use = footprint_in_use(),
        .cause = cause,
        .class = bytes <= MEDIUM_MAX_BYTES ? size_class_of(bytes) : SIZE_CLASSES,
        .call = refused ? refusal.call : 0,
        .error = refused ? refusal.error : 0,
        .thread_id = os_thread_id(),
    };
    atomic_fetch_add_explicit(&failure_counts[cause], 1, memory_order_relaxed); /* a statistic */
    keep(&failure);
    if (atomic_load_explicit(&traced, memory_order_relaxed)) trace(&failure);
    errno = saved;
}
