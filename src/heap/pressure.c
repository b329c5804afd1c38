/* pressure.c - what is known of the control group, and who asks for it. */
#include "heap/pressure.h"

#include "ace/pressure.h"
#include "base/bits.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/purger.h"
#include "heap/registry.h"
#include "heap/thread.h"
#include "span/span.h"

enum {
    HEAR_MS = 1000,        /* between looks of the purge thread at the memory pressure */
    AROUND_MS = 30 * 1000, /* between looks for limits */
    REST = 8,              /* after a purge that returned little, this many times as long as it took, or AROUND_MS */
    LITTLE_SHARE = 64,     /* less than one part in so many of what is held */
    LEAST_SHARE = 8,       /* of the mark of a thread that is alone: less is not worth a purge */
};

/* What it grows by before it tries again what could not be asked. */
#define AGAIN_BYTES HAK_MIB(1)

static _Atomic bool hears;

counter pressure_counts[ACE_PRESSURE_STALLS + 1];

/* What a thread that is alone goes by. On a cache line of its own: seldom written, and read by slow paths of all threads. */
static struct {
    /* From what it holds on it returns what is free; UINT64_MAX: there is no limit, or it is not known yet. */
    HAK_ALIGNED(HAK_CACHE_LINE) counter mark_bytes;
    /* What the last purge could not return, or the least that was returnable since; 0 in most processes. Where threads change it at the
     * same time one purge is too many, or comes late. */
    counter vain_bytes;
    /* When it looks for limits again, in milliseconds of the monotonic clock; 0: in a forked child, AROUND_MS after its first look;
     * UINT64_MAX: none has asked so far. */
    counter look_around_ms;
} lone = {.mark_bytes = UINT64_MAX, .look_around_ms = UINT64_MAX};

/* What was last heard. */
static struct {
    struct os_lock lock; /* guards it; no other is taken under it, and the kernel is asked */
    struct os_group group;
    bool asked; /* a thread that is alone looked for its limits */
    /* The purge thread's own: */
    uint64_t heard_ms;
    uint64_t rest_ms; /* nothing is asked for so long since then */
    uint64_t around_ms; /* when it, or one before it, looked for limits; 0: never */
    bool looked;        /* this one did */
} heard;

/* relaxed: a setting; a thread that sees an old one sees the new one the next time. */
void pressure_configure(bool on) { atomic_store_explicit(&hears, on, memory_order_relaxed); }

static bool is_on(void) { return atomic_load_explicit(&hears, memory_order_relaxed); }

void pressure_fork_prepare(void) { os_lock_take(&heard.lock); }

void pressure_fork_parent(void) { os_lock_drop(&heard.lock); }

void pressure_begin(void) {
    heard.looked = false;
    heard.rest_ms = 0;
}

/* Reports a change since the last look. */
static void tell(enum ace_pressure_reason pressed_by, const struct ace_pressure_input *input) {
    static enum ace_pressure_reason before;
    static const enum ace_reason reasons[] = {
        [ACE_PRESSURE_NONE] = ACE_REASON_RELIEVED,
        [ACE_PRESSURE_LIMIT] = ACE_REASON_NEAR_LIMIT,
        [ACE_PRESSURE_HIGH] = ACE_REASON_NEAR_HIGH,
        [ACE_PRESSURE_STALLS] = ACE_REASON_STALLS,
    };
    if (pressed_by == before) return;
    struct ace_decision decision = {.reason = reasons[pressed_by], .from = before, .to = pressed_by};
    if (pressed_by == ACE_PRESSURE_STALLS) {
        decision.inputs[0] = input->stalled;
    } else if (pressed_by != ACE_PRESSURE_NONE) {
        decision.inputs[0] = input->used_bytes;
        decision.inputs[1] = pressed_by == ACE_PRESSURE_LIMIT ? input->limit_bytes : input->high_bytes;
    }
    heap_tell(&decision);
    before = pressed_by;
}

static struct ace_pressure_input what_was_heard(void) {
    return (struct ace_pressure_input){
        .limit_bytes = heard.group.memory_limit_bytes,
        .high_bytes = heard.group.memory_high_bytes,
        .used_bytes = heard.group.memory_used_bytes,
        .stalled = heard.group.stalled,
        .objective = heap_settings.objective,
    };
}

/* Takes note of what was found: true if all that is free is to be returned. */
static bool presses(enum ace_pressure_reason reason, const struct ace_pressure_input *input) {
    tell(reason, input);
    if (reason != ACE_PRESSURE_NONE) counter_add(&pressure_counts[reason], 1);
    return reason != ACE_PRESSURE_NONE;
}

/* ---- the purge thread ---------------------------------------------------------------------------------- */

/* For limits many files are opened and closed again. A program of one thread may count on the numbers that they get, so beside one that is
 * done at most once in this thread's life; and of lives that follow each other within AROUND_MS one does it for all. */
static void hear(uint64_t now_ms) {
    const bool due = heard.around_ms == 0 || now_ms - heard.around_ms >= AROUND_MS;
    heard.heard_ms = now_ms;
    if (!due || (heard.looked && registry_is_alone())) {
        os_group_read_again(&heard.group);
        return;
    }
    heard.around_ms = now_ms;
    heard.looked = true;
    os_group_read("", &heard.group);
}

enum purge_pace pressure_pace(void) {
    const uint64_t now_ms = os_clock_ms();
    if (!is_on() || now_ms - heard.heard_ms < max_size(HEAR_MS, heard.rest_ms)) return PURGE_DUE;
    if (os_has_own_filter()) return PURGE_DUE; /* which may end the process for opening a file, or reading one */
    heard.rest_ms = 0;
    os_lock_take(&heard.lock);
    hear(now_ms);
    const struct ace_pressure_input input = what_was_heard();
    const bool pressed = presses(ace_pressure(input), &input);
    os_lock_drop(&heard.lock);
    return pressed ? PURGE_ALL : PURGE_DUE;
}

void pressure_rest(uint64_t took_ms, uint64_t returned_bytes) {
    const bool little = returned_bytes < span_held_bytes() / LITTLE_SHARE;
    heard.rest_ms = little ? min_size(REST * min_size(took_ms, AROUND_MS), AROUND_MS) : 0;
}

/* ---- a thread that is alone ------------------------------------------------------------------------------ */

/* A thread of several leaves it to the purge thread; and when the others have ended, this one asks as it grows the next time. */
static bool asks(void) { return registry_is_alone() && is_on() && purger_is_allowed(); }

/* Whether USED_BYTES, which will be used, are too much. */
static bool is_too_much(uint64_t used_bytes) {
    struct ace_pressure_input input = what_was_heard();
    const enum ace_pressure_reason limit = input.limit_bytes <= input.high_bytes ? ACE_PRESSURE_LIMIT : ACE_PRESSURE_HIGH;
    input.used_bytes = used_bytes;
    return presses(used_bytes < ace_pressure_mark_bytes(input) ? ACE_PRESSURE_NONE : limit, &input);
}

/* Asks what is used, and for limits where they are not known, or were for long. False if nothing could be asked. Opens files only where that
 * hardly disturbs anybody: the numbers that they get are free again before this thread's next instruction, and threads that never allocated
 * are rare. */
static bool ask(struct heap *heap) {
    if (os_has_own_filter()) return false;
    const uint64_t now_ms = os_clock_ms();
    os_group_read_again(&heard.group);
    const bool known = heard.asked && heard.group.memory_used_bytes != OS_UNLIMITED;
    if (known && now_ms < counter_read(&lone.look_around_ms)) return true;
    if (!purger_is_undisturbed(heap)) return known;
    os_group_read_limits("", &heard.group);
    heard.asked = true;
    counter_set(&lone.look_around_ms, now_ms + AROUND_MS);
    return true;
}

/* As the process grows by PAGES pages. The result is how much it may grow before the next time. */
static uint64_t ask_for_growth(struct heap *heap, size_t pages, bool *pressed) {
    if (!ask(heap)) return AGAIN_BYTES;
    struct ace_pressure_input input = what_was_heard();
    /* The program may touch all that is held before it grows again. */
    const uint64_t held = span_held_bytes(), used = input.used_bytes == OS_UNLIMITED ? held : max_size(input.used_bytes, held);
    input.used_bytes = used + pages * PAGE_BYTES;
    counter_set(&lone.mark_bytes, ace_pressure_mark_bytes(input));
    *pressed = is_too_much(input.used_bytes);
    return ace_pressure_unasked_bytes(input);
}

static void return_all(void) {
    purge_steps(PURGE_ALL);
    counter_set(&lone.vain_bytes, footprint_returnable());
}

static void note_growth(size_t pages) {
    struct heap *heap = thread_heap();
    if (heap == NULL || !asks() || !os_lock_try(&heard.lock)) return;
    bool pressed = false;
    const uint64_t unasked_bytes = ask_for_growth(heap, pages, &pressed);
    os_lock_drop(&heard.lock);
    if (pressed) return_all();
    const uint64_t held_bytes = span_held_bytes() + pages * PAGE_BYTES;
    span_on_growth_beyond(unasked_bytes == OS_UNLIMITED ? unasked_bytes : held_bytes + unasked_bytes, note_growth);
}

void pressure_start(void) { span_on_growth_beyond(LIMITS_FROM_BYTES, note_growth); }

void pressure_fork_child(void) {
    os_lock_reset(&heard.lock);
    counter_set(&lone.vain_bytes, 0); /* the child counts from what is in use now */
    heard.around_ms = 0; /* it may be put into another group */
    if (counter_read(&lone.look_around_ms) == UINT64_MAX) return;
    heard.asked = false; /* most children end before they grow */
    counter_set(&lone.look_around_ms, 0); /* not by the clock: a library that wraps it may hold a lock of its own now */
    span_on_growth_beyond(span_held_bytes() + AGAIN_BYTES, note_growth);
}

/* How much has become returnable since the last purge. What that one left behind is pinned, mostly by blocks between: a look at all memory
 * for its sake would be in vain each time. The soft limit rests instead (purger.c); here a rest is long enough to reach the limit. */
static uint64_t newly_returnable(uint64_t vain) {
    const uint64_t returnable = footprint_returnable();
    if (returnable >= vain) return returnable - vain;
    counter_set(&lone.vain_bytes, returnable); /* some of it is in use again, or was returned after all */
    return 0;
}

HAK_NOINLINE static void look_again(uint64_t mark, uint64_t held, uint64_t vain) {
    if (newly_returnable(vain) < mark / LEAST_SHARE || held < mark || !asks() || !slow_enter()) return;
    bool pressed = false;
    if (os_lock_try(&heard.lock)) {
        pressed = is_too_much(held);
        os_lock_drop(&heard.lock);
    }
    if (pressed) return_all();
    slow_leave();
}

/* Limits change, and a process that works without growing is to see it. What cannot be asked is tried again a second later. */
HAK_NOINLINE static void look_around(void) {
    static counter retry_ms;
    const uint64_t due_ms = counter_read(&lone.look_around_ms), now_ms = os_clock_ms();
    if (now_ms < due_ms || now_ms < counter_read(&retry_ms) || !slow_enter()) return;
    counter_set(&retry_ms, now_ms + HEAR_MS);
    if (due_ms == 0)
        counter_set(&lone.look_around_ms, now_ms + AROUND_MS);
    else
        note_growth(0);
    slow_leave();
}

/* Blocks that take the place of others of another size grow into pages that the others had not touched: near the limit what is free is
 * returned before that. */
void pressure_look(void) {
    if (HAK_UNLIKELY(counter_read(&lone.look_around_ms) != UINT64_MAX)) look_around();
    const uint64_t mark = counter_read(&lone.mark_bytes), vain = counter_read(&lone.vain_bytes);
    if (HAK_LIKELY(mark == UINT64_MAX && vain == 0)) return; /* what is held is written by all threads */
    const uint64_t held = span_held_bytes();
    if (HAK_UNLIKELY(held >= mark || vain != 0)) look_again(mark, held, vain);
}
