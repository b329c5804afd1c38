/* stack.c - the stacks behind a front: their memory, spilling, and how deep they are. The heap's lock is held
 * everywhere, unless said otherwise.
 *
 * A stack of pointers fills part of stack[0 .. capacity]:
 *
 *     stack      bottom          top           stack + depth = hi     stack + capacity
 *       |  unused   |   blocks    |   room          |                      |
 *
 * A refill stores downward, so bottom may lie above stack; a spill moves what stays to the start. What others take
 * from the bottom: reclaim.c. */
#include "ace/batch.h"
#include "ace/depth.h"
#include "base/bits.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/home.h"
#include "heap/registry.h"
#include "heap/stack.h"
#include "region/books.h"

#include <string.h>

/* Free stacks that are larger than the first ones, by powers of two; they come from the books and return here. */
enum { POOL_LEAST_LOG = 5, POOL_SIZES = 9 };

static struct {
    struct os_lock lock;
    void **given[POOL_SIZES]; /* linked through their first slot */
} pool;

void stack_pool_lock(void) { os_lock_take(&pool.lock); }
void stack_pool_unlock(void) { os_lock_drop(&pool.lock); }
void stack_pool_lock_reset(void) { os_lock_reset(&pool.lock); }

static unsigned pool_size_of(uint32_t slots) {
    return slots <= 1u << POOL_LEAST_LOG ? 0 : highest_bit(slots - 1) + 1 - POOL_LEAST_LOG;
}

/* Makes a system call when the pool and the books are used up: the one place where a heap's lock is held across one,
 * a few times in a thread's life. */
static void **pool_take(uint32_t slots) {
    unsigned size = pool_size_of(slots);
    stack_pool_lock();
    void **stack = pool.given[size];
    if (stack != NULL) pool.given[size] = *stack;
    stack_pool_unlock();
    return stack != NULL ? stack : books_take(sizeof(void *) << (POOL_LEAST_LOG + size));
}

static void pool_give(void **stack, uint32_t slots) {
    unsigned size = pool_size_of(slots);
    stack_pool_lock();
    *stack = pool.given[size];
    pool.given[size] = stack;
    stack_pool_unlock();
}

/* ---- memory of the stacks -------------------------------------------------------------------------- */

/* A fixed depth is bounded like any other: a stack must not hold memory without limit. */
void stack_set_depths(const uint16_t *set, bool fixed) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        const size_t bytes = slab_classes[class].block_bytes;
        const uint32_t most = ace_depth_most(bytes, heap_settings.objective);
        const bool is_set = set != NULL && set[class] != 0;
        const uint32_t first = is_set ? min_u32(set[class], most) : ace_depth_first(bytes, heap_settings.objective);
        heap_settings.first_depths[class] = (uint16_t)first;
        heap_settings.most_depths[class] = (uint16_t)(is_set || fixed ? first : most);
    }
}

static uint32_t first_depth(unsigned class) { return heap_settings.first_depths[class]; }

size_t stack_first_slots(void) {
    size_t slots = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) slots += first_depth(class);
    return slots;
}

void stack_forget_streams(struct heap *heap) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        heap->bins[class].streams = false;
        heap->front.stream_left[class] = STREAM_PROOF;
        stack_set_keeping(heap, class, false);
    }
}

static void forget_misses(struct bin *bin) {
    bin->recent_refills = bin->recent_spills = 0;
    bin->recent_refilled_blocks = bin->recent_spilled_blocks = 0;
}

void stack_reset_all(struct heap *heap) {
    void **stack = heap->first_stacks;
    stack_forget_streams(heap);
    heap->small_depth = heap->medium_depth = (struct depth_sum){0};
    kept_forget(heap);
    /* relaxed: no thread has the heap. A thread that did not survive a fork may have left it set. */
    atomic_store_explicit(&heap->front.popping, false, memory_order_relaxed);
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct bin *bin = &heap->bins[class];
        uint32_t slots = first_depth(class);
        if (bin->capacity > slots) pool_give(bin->stack, bin->capacity);
        bin->stack = stack;
        bin->capacity = bin->depth = slots;
        bin->most = heap_settings.most_depths[class];
        forget_misses(bin);
        bin->asked = bin->asked_usually = 0;
        bin->counted = bin->refused = false;
        stack_set(heap, class, stack, stack);
        stack += slots;
    }
}

/* ---- other heaps' blocks -------------------------------------------------------------------------- */

void stack_count_foreign(struct heap *heap, unsigned class, uint32_t count) {
    struct bin *bin = &heap->bins[class];
    uint32_t *const left = &heap->front.stream_left[class];
    if (HAK_LIKELY(*left > count)) {
        *left -= count;
        return;
    }
    bin->streams = !bin->streams;
    *left = bin->streams ? STREAM_TRUST : STREAM_PROOF;
    stack_set_keeping(heap, class, true);
}

/* ---- spilling ----------------------------------------------------------------------------------- */

/* Moves COUNT pointers down, in pieces for which memmove uses vector moves: its string instruction for more starts
 * slowly, and the pieces stay in the first-level cache. */
static void move_down(void **to, void **from, size_t count) {
    enum { PIECE = 128 };
    for (; count > PIECE; count -= PIECE, to += PIECE, from += PIECE) memmove(to, from, PIECE * sizeof *to);
    memmove(to, from, count * sizeof *to);
}

/* Puts the COUNT oldest blocks back, or all if a signal handler popped some since they were counted, and moves the
 * others to the start. */
static void give_oldest(struct heap *heap, unsigned class, size_t count) {
    struct bin *bin = &heap->bins[class];
    stack_close(heap, class);
    void **lo = bin->bottom;
    const size_t held = stack_held(heap, class), given = min_size(count, held), left = held - given;
    home_put(heap, lo, given);
    move_down(bin->stack, lo + given, left);
    stack_set(heap, class, bin->stack, bin->stack + left);
}

/* Makes room for one more, except in a stack that may hold none. */
static void spill(struct heap *heap, unsigned class) {
    const size_t held = stack_held(heap, class), given = class_is_medium(class) ? min_size(held, 1) : ace_spill(held);
    give_oldest(heap, class, given);
    heap->bins[class].recent_spilled_blocks += (uint32_t)given;
    counter_add(&heap->bins[class].spills, 1);
}

void stack_empty(struct heap *heap, unsigned class) {
    give_oldest(heap, class, stack_held(heap, class));
}

void stack_empty_all(struct heap *heap) {
    for (unsigned class = 0; class < SIZE_CLASSES; class++) stack_empty(heap, class);
}

/* ---- depth -------------------------------------------------------------------------------------- */

static bool deepen(struct heap *heap, unsigned class, uint32_t depth) {
    struct bin *bin = &heap->bins[class];
    stack_close(heap, class);
    void **lo = bin->bottom;
    size_t held = stack_held(heap, class);
    if (depth > bin->capacity) {
        void **stack = pool_take(depth);
        if (stack == NULL) {
            stack_set(heap, class, lo, lo + held);
            return false;
        }
        memcpy(stack, lo, held * sizeof *lo);
        if (bin->capacity > first_depth(class)) pool_give(bin->stack, bin->capacity);
        bin->stack = lo = stack;
        bin->capacity = 1u << (POOL_LEAST_LOG + pool_size_of(depth));
    }
    bin->depth = depth;
    stack_set(heap, class, lo, lo + held);
    return true;
}

static struct depth_sum *depth_sum_of(struct heap *heap, bool medium) {
    return medium ? &heap->medium_depth : &heap->small_depth;
}

/* What the stacks of one thread may be sized for. */
static struct ace_budget_decision budget_of(const struct heap *heap, bool medium) {
    const struct ace_budget_input input = {
        .in_use_bytes = footprint_in_use(),
        .most_bytes = counter_read(&heap_settings.thread_cache_bytes),
        .threads = registry_sharing(),
        .objective = heap_settings.objective,
        .times = heap->medium_times,
        .alone = registry_is_alone(),
    };
    if (medium && atomic_load_explicit(&os_counters.refusals[OS_CALL_MEMBARRIER], memory_order_relaxed) != 0) /* a hint */
        return (struct ace_budget_decision){0, ACE_BUDGET_MOST}; /* without the barrier they could not be taken from a sleeper */
    return medium ? ace_medium_budget(input) : ace_budget(input);
}
static size_t budget_bytes(const struct heap *heap, bool medium) { return budget_of(heap, medium).bytes; }

/* By how much a bin is deeper than at first. */
static size_t extra_bytes_of(const struct heap *heap, unsigned class) {
    const uint32_t depth = heap->bins[class].depth, first = first_depth(class);
    return depth > first ? (depth - first) * (size_t)slab_classes[class].block_bytes : 0;
}

/* Takes depth from small or from medium bins that did not miss for a while, or from all of these if the budget fell,
 * until WANTED bytes fit in. Each is asked once, FOR_CLASS never. */
static bool find_budget(struct heap *heap, bool medium, unsigned for_class, size_t wanted) {
    struct depth_sum *sum = depth_sum_of(heap, medium);
    const size_t budget = budget_bytes(heap, medium), needed = counter_read(&sum->bytes) + wanted;
    const size_t own = for_class < SIZE_CLASSES ? extra_bytes_of(heap, for_class) : 0, others = sum->extra_bytes - own;
    const bool in_vain = needed > budget && needed - budget > others;
    /* No bin gives depth for a request that would not fit even then. If the budget fell, each gives what it has. */
    if (in_vain && (wanted != 0 || others == 0)) return false;
    const unsigned first_class = medium ? SMALL_CLASSES : 0, classes = medium ? SIZE_CLASSES - SMALL_CLASSES : SMALL_CLASSES;
    for (unsigned asked = 0; asked < classes; asked++) {
        if (counter_read(&sum->bytes) + wanted <= budget) return true;
        unsigned class = first_class + sum->hand++ % classes;
        struct bin *bin = &heap->bins[class];
        if (class == for_class || !bin->counted || bin->depth <= first_depth(class)) continue;
        const uint32_t patience = wanted != 0 ? ace_budget_patience(medium, bin->asked_usually) : ACE_BUDGET_IDLE;
        if (!ace_budget_may_take(bin->asked, patience, counter_read(&sum->bytes) + wanted, budget)) {
            bin->asked++;
            continue;
        }
        const uint32_t before = bin->depth, depth = ace_depth_given(before, first_depth(class), medium);
        size_t held = stack_held(heap, class);
        size_t less = (bin->depth - depth) * (size_t)slab_classes[class].block_bytes;
        counter_sub(&sum->bytes, less);
        sum->extra_bytes -= less;
        bin->depth = depth;
        forget_misses(bin); /* misses at the greater depth are no reason to grow back at the next one */
        decided_depth(heap, class, wanted != 0 ? ACE_REASON_MADE_ROOM : ACE_REASON_OVER_BUDGET, before,
                      counter_read(&sum->bytes) + less, budget, wanted);
        give_oldest(heap, class, held > depth ? held - depth : 0);
    }
    return counter_read(&sum->bytes) + wanted <= budget;
}

static void fit_budget(struct heap *heap, bool medium) {
    const uint64_t sized_bytes = counter_read(&depth_sum_of(heap, medium)->bytes);
    if (HAK_UNLIKELY(ace_budget_is_exceeded(budget_of(heap, medium), medium, sized_bytes)))
        find_budget(heap, medium, SIZE_CLASSES, 0);
}

void stack_fit_budget(struct heap *heap) {
    fit_budget(heap, false);
    if (counter_read(&heap->medium_depth.bytes) != 0) fit_budget(heap, true);
}

/* Adapts the depth of a bin that may get deeper, after a miss. */
static void adapt(struct heap *heap, unsigned class) {
    struct bin *bin = &heap->bins[class];
    const size_t block_bytes = slab_classes[class].block_bytes;
    const bool medium = class_is_medium(class);
    struct depth_sum *sum = depth_sum_of(heap, medium);
    const struct ace_depth_input input = {
        .depth = bin->depth,
        .most = bin->most,
        .batch = ace_depth_batch(block_bytes, heap_settings.objective),
        .refills = bin->recent_refills,
        .spills = bin->recent_spills,
        .refilled_blocks = bin->recent_refilled_blocks,
        .spilled_blocks = bin->recent_spilled_blocks,
        .one_by_one = medium,
    };
    struct ace_depth_decision next = ace_depth_next(input);
    if (next.depth == input.depth) return;
    size_t wanted = (next.depth - input.depth) * block_bytes;
    forget_misses(bin); /* a refusal, too, stands for a while */
    if (!find_budget(heap, medium, class, wanted)) {
        decided_depth(heap, class, ACE_REASON_NO_BUDGET, input.depth, counter_read(&sum->bytes), budget_bytes(heap, medium), wanted);
        return;
    }
    if (!deepen(heap, class, next.depth)) {
        decided_depth(heap, class, ACE_REASON_NO_MEMORY, input.depth, wanted, 0, 0);
        return;
    }
    counter_add(&sum->bytes, wanted);
    sum->extra_bytes += wanted;
    if (next.reason == ACE_DEPTH_SWING)
        decided_depth(heap, class, ACE_REASON_SWING, input.depth, input.refilled_blocks, input.spilled_blocks, 0);
    else
        decided_depth(heap, class, ACE_REASON_BATCH, input.depth, input.refills, input.spills, 0);
}

enum { RECENT_MISSES = 64 };

/* Halves what is known of recent misses, so that a program that loaded much data and then takes and gives in turn is judged by what
 * it does now. */
HAK_NOINLINE static void fade_misses(struct bin *bin) {
    bin->recent_refills /= 2, bin->recent_spills /= 2;
    bin->recent_refilled_blocks /= 2, bin->recent_spilled_blocks /= 2;
}

/* Counts a miss in *COUNT, the recent misses of its kind. */
static void note_miss(struct heap *heap, unsigned class, uint32_t *count) {
    struct bin *bin = &heap->bins[class];
    (*count)++;
    if (HAK_UNLIKELY(bin->recent_refills + bin->recent_spills >= RECENT_MISSES)) fade_misses(bin);
    bin->asked_usually = (uint8_t)ace_budget_asked_usually(bin->asked_usually, bin->asked);
    bin->asked = 0;
    /* Of a few sizes whose depth is fixed the others' budget knows nothing. */
    if (HAK_UNLIKELY(!bin->counted && (bin->depth != bin->most || heap_settings.fixed))) {
        bin->counted = true;
        counter_add(&depth_sum_of(heap, class_is_medium(class))->bytes, bin->depth * (uint64_t)slab_classes[class].block_bytes);
    }
    if (bin->depth != bin->most) adapt(heap, class);
}

void stack_note_refill(struct heap *heap, unsigned class) { note_miss(heap, class, &heap->bins[class].recent_refills); }

/* An empty stack lacks room only if it was taken from below: it starts at its beginning again. */
bool stack_make_room(struct heap *heap, unsigned class) {
    struct bin *bin = &heap->bins[class];
    if (stack_held(heap, class) == 0) give_oldest(heap, class, 0);
    if (!stack_has_room(heap, class)) note_miss(heap, class, &bin->recent_spills);
    return stack_has_room(heap, class);
}

void stack_push_beyond(struct heap *heap, unsigned class, void *block) {
    struct bin *bin = &heap->bins[class];
    if (!stack_make_room(heap, class)) spill(heap, class);
    if (stack_push(heap, class, block)) return;
    bin->recent_spilled_blocks++;
    home_put(heap, &block, 1);
}

/* ---- idle stacks ---------------------------------------------------------------------------------- */

static uint32_t top_slot(const struct heap *heap, unsigned class) {
    return (uint32_t)(stack_top(heap, class) - heap->bins[class].stack);
}

static void mark_in_use(struct heap *heap, unsigned class) {
    if (class_is_medium(class))
        heap->front.wanted[class - SMALL_CLASSES] = true;
    else
        heap->bins[class].seen_top = UINT32_MAX;
}

/* A stack of small blocks that is popped as often as pushed looks idle, too: that costs it a refill, but no more
 * often than the heap lacks memory. */
static bool is_idle(struct heap *heap, unsigned class) {
    if (!class_is_medium(class)) return top_slot(heap, class) == heap->bins[class].seen_top;
    const bool wanted = heap->front.wanted[class - SMALL_CLASSES];
    heap->front.wanted[class - SMALL_CLASSES] = false;
    return !wanted;
}

HAK_INLINE void look_for_idle(struct heap *heap, unsigned class) {
    enum { GIVEN_MOST = 1024 };
    const size_t held = stack_held(heap, class);
    if (held != 0 && is_idle(heap, class)) give_oldest(heap, class, min_size(held, GIVEN_MOST));
    heap->bins[class].seen_top = top_slot(heap, class);
}

void stack_give_idle_medium(struct heap *heap) {
    look_for_idle(heap, SMALL_CLASSES + heap->medium_idle_hand++ % (SIZE_CLASSES - SMALL_CLASSES));
}

/* A new slab for one medium block is no reason to look at small ones. */
void stack_give_idle(struct heap *heap, unsigned for_class) {
    enum { LOOKED_AT = 4 };
    mark_in_use(heap, for_class);
    if (class_is_medium(for_class))
        stack_give_idle_medium(heap);
    else
        for (unsigned i = 0; i < LOOKED_AT; i++) look_for_idle(heap, heap->idle_hand++ % SIZE_CLASSES);
}
