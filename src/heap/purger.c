/* purger.c - the regular look from slow paths, and the life of the purge thread. */
#include "heap/purger.h"

#include "ace/decay.h"
#include "base/bits.h"
#include "heap/enter.h"
#include "heap/footprint.h"
#include "heap/pressure.h"
#include "heap/purge.h"
#include "heap/registry.h"
#include "heap/stack.h"

#include <errno.h>

#define NAME "hakmem-purge"

enum {
    LOOK_MS = 50,          /* between looks that do something */
    TICK_MS = 50,          /* minimum between steps of the thread */
    CLOCK_MS = 10,         /* granularity of the coarse clock; sleeping that much longer keeps a step from running just
                            * before something is due */
    QUIET_MS = 600,        /* with nothing left: then the thread ends */
    CALM_MS = 300,         /* with the same signal mask at every look: no signal handler */
    ASLEEP_MS = 1000,      /* without a look: the process slept */
    GONE_HALF_LIVES = 4,   /* after these a sixteenth is left */
    RETRY_MS = 10 * 1000,  /* after a thread was refused */
    SOFT_MS = 100,         /* between purges above the soft limit, at least */
    SOFT_REST = 32,        /* and this many times as long as the last one took, */
    SOFT_TOOK_MS = 1000,   /* at most that: the clock may have jumped */
    LOOKS_AT_MEDIUM = 16,  /* one in this many looks of a thread includes a stack of medium blocks */
    TICKS_PER_LOOK_AT_KEPT = 256 * TICKS_PER_LOOK, /* slow paths of a thread between looks at how much was touched of what it keeps */
};

/* How much must be worth returning before the purge thread is started. It makes a process of one thread
 * multi-threaded, so there more must be at stake. */
#define MARK_BYTES HAK_MIB(1)
#define MARK_ALONE_BYTES HAK_MIB(32)

static struct {
    _Atomic bool off; /* no memory is ever returned by itself */
    _Atomic bool allowed;
    _Atomic uint64_t look_ms, retry_ms;
} purger;

_Atomic bool purger_running;
_Atomic uint64_t purger_started;

counter purger_start_ms;

/* relaxed: settings; a thread that sees an old one sees the new one the next time. */
void purger_configure(uint64_t half_life_ms, bool allowed) {
    atomic_store_explicit(&purger.off, half_life_ms == ACE_NEVER, memory_order_relaxed);
    atomic_store_explicit(&purger.allowed, allowed, memory_order_relaxed);
}

bool purger_is_off(void) { return atomic_load_explicit(&purger.off, memory_order_relaxed); }

bool purger_is_allowed(void) { return !purger_is_off() && atomic_load_explicit(&purger.allowed, memory_order_relaxed); }

void purger_start(void) {
    const uint64_t now_ms = os_clock_ms();
    atomic_store_explicit(&purger.look_ms, now_ms, memory_order_relaxed);
    counter_set(&purger_start_ms, now_ms);
}

/* release: pairs with the exchange of the next thread that starts one. */
void purger_forget(void) { atomic_store_explicit(&purger_running, false, memory_order_release); }

/* seq_cst: see footprint.c. */
bool purger_is_running(void) { return atomic_load_explicit(&purger_running, memory_order_seq_cst); }

uint64_t purger_starts(void) { return atomic_load_explicit(&purger_started, memory_order_relaxed); }

static uint64_t mark_bytes(void) { return registry_is_alone() ? MARK_ALONE_BYTES : MARK_BYTES; }

/* ---- the thread -------------------------------------------------------------------------------------- */

/* In a process of one thread the purge thread does not stay for a small amount: slow paths return that, or it is
 * returned immediately. But while MARK_ALONE_BYTES are dirty it stays, so that it does not come and go with what is in use. */
static bool is_too_little(void) {
    if (!registry_is_alone() || footprint_returnable() >= MARK_ALONE_BYTES) return false;
    if (span_dirty_left() * PAGE_BYTES >= MARK_ALONE_BYTES) return false;
    if (!purge_saw_work()) purge_steps(PURGE_ALL);
    return true;
}

static void tell_thread(bool runs) {
    if (heap_settings.keeper == NULL) return; /* what is looked up for it would be for nothing */
    heap_tell(&(struct ace_decision){
        .reason = runs ? ACE_REASON_WORTH_IT : ACE_REASON_NOTHING_LEFT,
        .from = !runs,
        .to = runs,
        .inputs = {footprint_returnable(), mark_bytes()},
    });
}

/* No thread that has used memory is left: the process ends with this thread, unless others live on that never did. */
static bool is_last(void) { return registry_live() == 0; }

/* False when there is more to do, after all. */
static bool end(void) {
    atomic_store_explicit(&purger_running, false, memory_order_seq_cst);
    if (is_last() || footprint_returnable() < mark_bytes()) {
        tell_thread(false);
        return true;
    }
    return atomic_exchange_explicit(&purger_running, true, memory_order_seq_cst); /* another was started */
}

/* Milliseconds until something may be due: free spans, or a visit. */
static uint64_t tick_ms(void) { return min_size(max_size(span_decay_tick_ms(), TICK_MS), VISIT_MS) + CLOCK_MS; }

static uint64_t purged_bytes(void) { return atomic_load_explicit(&os_counters.purged_bytes, memory_order_relaxed); }

/* A step, after MS of sleep. True when the thread is not needed any more, as far as it can see. */
static bool work(uint64_t ms, uint64_t *quiet_ms) {
    if (is_last()) {
        purge_steps(PURGE_ALL); /* for threads that live on: none will look again */
        return true;
    }
    const enum purge_pace pace = pressure_pace();
    const uint64_t began_ms = os_clock_ms(), before = purged_bytes();
    *quiet_ms = purge_steps(pace) == PURGE_DONE ? *quiet_ms + ms : 0;
    if (pace == PURGE_ALL) pressure_rest(os_clock_ms() - began_ms, purged_bytes() - before);
    return *quiet_ms >= QUIET_MS || is_too_little();
}

/* As a slow path, so a signal handler here enters none: that of the SIGABRT of hakmem's own messages, or of a fault. True when the thread
 * is to end. */
static bool work_inside(uint64_t ms, uint64_t *quiet_ms) {
    slow_enter();
    const bool ends = work(ms, quiet_ms) && end();
    slow_leave();
    return ends;
}

/* If sleeping is refused, as in a sandbox, the thread would spin: from then on only slow paths return memory. */
static void give_up(void) {
    atomic_store_explicit(&purger.retry_ms, UINT64_MAX, memory_order_relaxed);
    tell_thread(false);
    purger_forget();
}

/* True when it ends as the last thread: it must not keep a process alive whose other threads have ended. */
static bool run(void) {
    thread_forgo_heap();
    pressure_begin();
    uint64_t quiet_ms = 0, ms = tick_ms();
    while (os_sleep_ms(ms)) {
        if (work_inside(ms, &quiet_ms)) return is_last();
        ms = tick_ms();
    }
    give_up();
    return is_last();
}

void purger_meet(struct heap *heap) { heap->first_mask = heap->last_mask = os_signal_mask(); }

/* No purge thread may be started, for now or ever. */
static bool is_refused(uint64_t now_ms) {
    return !atomic_load_explicit(&purger.allowed, memory_order_relaxed) || now_ms < atomic_load_explicit(&purger.retry_ms, memory_order_relaxed);
}

/* False in most signal handlers, which run with more signals blocked than the thread has otherwise: libc may be in
 * the middle of something then. A mask that stays for a while is not that of a handler. */
static bool is_calm(struct heap *heap, uint64_t now_ms) {
    uint64_t mask = os_signal_mask();
    if (mask == heap->last_mask) return mask == heap->first_mask || now_ms - heap->last_mask_ms >= CALM_MS;
    heap->last_mask = mask;
    heap->last_mask_ms = now_ms;
    return mask == heap->first_mask;
}

/* False in a child that shares this memory (vfork): a thread would be the child's, and end with it without a word. */
static bool is_owner(const struct heap *heap) { return counter_read(&heap->thread_id) == os_thread_id(); }

bool purger_is_undisturbed(struct heap *heap) { return is_calm(heap, os_clock_ms()) && is_owner(heap); }

/* Starts the purge thread if none runs; false when that failed, or may not be done here because libc may be in the
 * middle of something. HEAP: NULL at a thread's end. */
static bool try_to_start(struct heap *heap, const void *caller, uint64_t now_ms) {
    if (is_refused(now_ms) || (caller != NULL && os_is_libc(caller))) return false;
    if (heap != NULL && (!is_calm(heap, now_ms) || !is_owner(heap))) return false;
    if (os_may_be_loader_callback()) return false;
    if (atomic_exchange_explicit(&purger_running, true, memory_order_seq_cst)) return true;
    if (os_thread_start(run, NAME)) {
        atomic_fetch_add_explicit(&purger_started, 1, memory_order_relaxed); /* a statistic */
        tell_thread(true);
        return true;
    }
    atomic_store_explicit(&purger.retry_ms, now_ms + RETRY_MS, memory_order_relaxed);
    purger_forget();
    return false;
}

/* ---- the soft limit ------------------------------------------------------------------------------------- */

static struct {
    counter version; /* odd while the next two are changed */
    _Atomic(heap_callback *) callback;
    _Atomic(void *) context;
    _Atomic uint64_t purged_ms, took_ms; /* relaxed, both: two threads may both purge */
    _Atomic bool told; /* since more than the limit is in use */
} soft;

void heap_on_soft_limit(heap_callback *callback, void *context) {
    const uint64_t changing = counter_read(&soft.version) | 1; /* odd already in a child whose parent forked beside a change */
    counter_set(&soft.version, changing);
    /* release, all: a thread that sees something new sees the version that goes with it, or a later one. */
    atomic_store_explicit(&soft.callback, callback, memory_order_release);
    atomic_store_explicit(&soft.context, context, memory_order_release);
    atomic_store_explicit(&soft.version, changing + 1, memory_order_release);
    atomic_store_explicit(&soft.told, false, memory_order_release); /* this one was not called yet: pairs with keep_to_soft_limit */
}

/* Runs inside malloc and free, whose errno must not be what CALLBACK leaves. */
static HAK_NOINLINE void call(heap_callback *callback, void *context) {
    const int saved = errno;
    thread_state.telling = true;
    callback(context);
    thread_state.telling = false;
    errno = saved;
}

/* No callback is called with the context of another. False while both are being changed. */
static bool tell(void) {
    /* acquire: pairs with heap_on_soft_limit. */
    uint64_t version = atomic_load_explicit(&soft.version, memory_order_acquire);
    heap_callback *callback = atomic_load_explicit(&soft.callback, memory_order_acquire);
    void *context = atomic_load_explicit(&soft.context, memory_order_acquire);
    if (version % 2 != 0 || counter_read(&soft.version) != version) return false;
    if (callback != NULL) call(callback, context);
    return true;
}

/* A purge looks at all memory, and one thread waits for it: in large processes rarely. */
static bool may_purge(uint64_t now_ms) {
    const uint64_t took_ms = atomic_load_explicit(&soft.took_ms, memory_order_relaxed);
    return now_ms - atomic_load_explicit(&soft.purged_ms, memory_order_relaxed) >= max_size(SOFT_MS, SOFT_REST * took_ms);
}

/* Above the soft limit, returns all that is free to the kernel and tells the program once, until less is in use
 * again. Outside the slow paths: the callback may allocate and free, below the limit and beyond it again. */
static void keep_to_soft_limit(void) {
    if (HAK_UNLIKELY(thread_state.telling)) return;
    if (HAK_LIKELY(!span_is_over_soft())) {
        if (atomic_load_explicit(&soft.told, memory_order_relaxed) && /* a hint */
            atomic_exchange_explicit(&soft.told, false, memory_order_relaxed))
            heap_tell(&(struct ace_decision){.reason = ACE_REASON_BELOW, .from = 1, .to = 0});
        return;
    }
    const uint64_t now_ms = os_clock_ms();
    if (may_purge(now_ms) && slow_enter()) {
        atomic_store_explicit(&soft.purged_ms, now_ms, memory_order_relaxed);
        purge_steps(PURGE_ALL);
        atomic_store_explicit(&soft.took_ms, min_size(os_clock_ms() - now_ms, SOFT_TOOK_MS), memory_order_relaxed);
        slow_leave();
        if (!span_is_over_soft()) return; /* the excess was what threads had kept */
    }
    /* acquire: a thread that finds that a new callback is to be called finds the callback, too. */
    if (atomic_exchange_explicit(&soft.told, true, memory_order_acquire)) return;
    if (!tell()) {
        atomic_store_explicit(&soft.told, false, memory_order_relaxed); /* at the next look */
        return;
    }
    heap_tell(&(struct ace_decision){
        .reason = ACE_REASON_ABOVE,
        .from = 0,
        .to = 1,
        .inputs = {span_in_use_bytes(), span_soft_bytes()},
    });
}

/* Where no purge may show whether it is what threads keep, a look tells later. */
void purger_note_crossing(void) {
    const bool told = atomic_load_explicit(&soft.told, memory_order_relaxed); /* a hint */
    if (!told && may_purge(os_clock_ms())) keep_to_soft_limit();
}

/* ---- the looks of slow paths --------------------------------------------------------------------------- */

/* relaxed: the owner's own. */
static uint32_t ticks_of(const struct heap *heap) { return atomic_load_explicit(&heap->ticks, memory_order_relaxed); }

/* Reports what this thread has not reported yet, and fits its stacks to their budget. */
static void settle_heap(struct heap *heap) {
    os_lock_take(&heap->lock);
    footprint_tell(&heap->in_use_change);
    stack_fit_budget(heap);
    if (ticks_of(heap) / TICKS_PER_LOOK % LOOKS_AT_MEDIUM == 0) stack_give_idle_medium(heap);
    os_lock_drop(&heap->lock);
    remote_settle();
}

/* Milliseconds since the last look that did something; 0: too soon for another. Another thread may have
 * looked since NOW_MS. If the clock went back further, nobody knows how long that was: for long. */
static uint64_t ms_since_look(uint64_t now_ms) {
    /* relaxed: two threads may both look. */
    uint64_t last_ms = atomic_load_explicit(&purger.look_ms, memory_order_relaxed);
    if (last_ms == 0) purger_start();
    if (last_ms == 0 || now_ms - last_ms < LOOK_MS || last_ms - now_ms < LOOK_MS) return 0;
    atomic_store_explicit(&purger.look_ms, now_ms, memory_order_relaxed);
    return now_ms - last_ms;
}

/* Whether nearly all that is free would be gone by now if a purge thread had run. A program whose peaks come sooner keeps
 * the memory of one for the next; where they come later ACE lengthens the half-life. */
static bool slept_long(uint64_t asleep_ms) {
    struct span_counts counts;
    span_counts_read(&counts);
    return asleep_ms + CLOCK_MS >= GONE_HALF_LIVES * counts.half_life_ms;
}

/* A step, unless another thread takes one. If no purge thread can be started, a process that slept makes up for it, all
 * of it: there may be few looks. */
static void give_in_passing(uint64_t asleep_ms, uint64_t now_ms) {
    if (is_refused(now_ms) && asleep_ms >= ASLEEP_MS && footprint_returnable() >= mark_bytes()) {
        purge_steps(slept_long(asleep_ms) ? PURGE_ALL : PURGE_DUE);
    } else if (span_purging_try()) {
        purge_step(PURGE_DUE);
        span_purging_unlock();
    }
}

HAK_NOINLINE void purger_look(struct heap *heap, const void *caller) {
    if (!slow_enter()) return;
    if (HAK_UNLIKELY(ticks_of(heap) % TICKS_PER_LOOK_AT_KEPT == 0)) kept_look(heap);
    settle_heap(heap);
    slow_leave();
    keep_to_soft_limit();
    pressure_look();
    if (purger_is_off() || purger_is_running()) return;
    uint64_t now_ms = os_clock_ms();
    /* Outside the slow paths: starting a thread allocates. Whenever the last look was: there may be no later one. */
    if (footprint_returnable() >= mark_bytes() && try_to_start(heap, caller, now_ms)) return;
    uint64_t since_ms = ms_since_look(now_ms);
    if (since_ms == 0) return;
    is_calm(heap, now_ms); /* remembers the mask */
    if (!slow_enter()) return;
    give_in_passing(since_ms, now_ms);
    slow_leave();
}

/* After the last thread, a purge thread would only keep the process alive: what is worth one is returned now. */
void purger_farewell(void) {
    if (purger_is_off() || purger_is_running() || footprint_returnable() < mark_bytes()) return;
    if (!is_last()) {
        try_to_start(NULL, NULL, os_clock_ms());
    } else if (slow_enter()) {
        purge_steps(PURGE_ALL);
        slow_leave();
    }
}
