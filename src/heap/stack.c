/* stack.c - the stacks behind a front: their memory, spilling, and how deep they are. The heap's lock is held
 * everywhere.
 *
 * A stack of pointers fills part of stack[0 .. capacity]:
 *
 *     stack      bottom          top           stack + depth = hi     stack + capacity
 *       |  unused   |   blocks    |   room          |                      |
 *
 * A refill stores downward, so bottom may lie above stack; a spill moves what stays to the start.
 *
 * Blocks of a thread that sleeps are taken from below. Whoever wants them raises lo to the top, lets every running
 * thread pass a barrier, and then looks at the top again. From the barrier on the owner finds his stack empty, and comes by
 * the slow path, which waits for the lock and lowers lo; only an operation that had read the old bound before
 * may still be about to take one block, the uppermost. So all below that one can be taken. */
#include "ace/batch.h"
#include "ace/depth.h"
#include "base/bits.h"
#include "heap/footprint.h"
#include "heap/heap.h"
#include "heap/registry.h"
#include "region/books.h"

#include <string.h>

/* Stacks that outgrew the first ones, by powers of two; they come from the books and come back here. */
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

/* Makes a system call when the pool and the books are used up: the one place where a heap's lock is held
 * across it, a few times in a thread's life. */
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
        heap->bins[class].stream_left = STREAM_PROOF;
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
    counter_set(&heap->depth_bytes, 0);
    heap->extra_bytes = 0;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) {
        struct bin *bin = &heap->bins[class];
        uint32_t slots = first_depth(class);
        if (bin->capacity > slots) pool_give(bin->stack, bin->capacity);
        bin->stack = stack;
        bin->capacity = bin->depth = slots;
        bin->most = heap_settings.most_depths[class];
        forget_misses(bin);
        bin->asked = 0;
        bin->counted = bin->refused = false;
        stack_set(heap, class, stack, stack);
        stack += slots;
    }
}

/* ---- other heaps' blocks -------------------------------------------------------------------------- */

void stack_count_foreign(struct heap *heap, unsigned class, uint32_t count) {
    struct bin *bin = &heap->bins[class];
    if (HAK_LIKELY(bin->stream_left > count)) {
        bin->stream_left -= count;
        return;
    }
    bin->streams = !bin->streams;
    bin->stream_left = bin->streams ? STREAM_TRUST : STREAM_PROOF;
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

/* Gives the COUNT oldest blocks back and moves the others to the start. */
static void give_oldest(struct heap *heap, unsigned class, size_t count) {
    struct bin *bin = &heap->bins[class];
    void **lo = bin->bottom, **top = stack_top(heap, class);
    bin_put(heap, lo, count);
    size_t left = (size_t)(top - lo) - count;
    move_down(bin->stack, lo + count, left);
    stack_set(heap, class, bin->stack, bin->stack + left);
}

void stack_spill(struct heap *heap, unsigned class) {
    const size_t given = ace_spill(stack_held(heap, class));
    counter_add(&heap->bins[class].spills, 1);
    heap->bins[class].recent_spilled_blocks += (uint32_t)given;
    give_oldest(heap, class, given);
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
    void **lo = bin->bottom;
    size_t held = stack_held(heap, class);
    if (depth > bin->capacity) {
        void **stack = pool_take(depth);
        if (stack == NULL) return false;
        memcpy(stack, lo, held * sizeof *lo);
        if (bin->capacity > first_depth(class)) pool_give(bin->stack, bin->capacity);
        bin->stack = lo = stack;
        bin->capacity = max_u32(depth, 1u << POOL_LEAST_LOG);
    }
    bin->depth = depth;
    stack_set(heap, class, lo, lo + held);
    return true;
}

struct ace_budget_input stack_budget_input(void) {
    return (struct ace_budget_input){
        .in_use_bytes = footprint_in_use(),
        .most_bytes = counter_read(&heap_settings.thread_cache_bytes),
        .threads = registry_live(),
        .objective = heap_settings.objective,
    };
}

/* What the stacks of one thread may be sized for. */
static size_t budget_bytes(void) { return ace_budget(stack_budget_input()).bytes; }

/* Halves the depth of bins that did not miss for a while, until WANTED bytes are found. Each is asked once. */
static bool find_budget(struct heap *heap, unsigned for_class, size_t wanted) {
    const size_t budget = budget_bytes(), needed = counter_read(&heap->depth_bytes) + wanted;
    if (needed > budget && needed - budget > heap->extra_bytes) return false;
    for (unsigned asked = 0; asked < SIZE_CLASSES; asked++) {
        if (counter_read(&heap->depth_bytes) + wanted <= budget) return true;
        unsigned class = heap->budget_hand++ % SIZE_CLASSES;
        struct bin *bin = &heap->bins[class];
        if (class == for_class || !bin->counted || bin->depth <= first_depth(class)) continue;
        if (!ace_budget_may_take(bin->asked)) {
            bin->asked++;
            continue;
        }
        const uint32_t before = bin->depth, depth = max_u32(before / 2, first_depth(class));
        size_t held = stack_held(heap, class);
        size_t less = (bin->depth - depth) * (size_t)slab_classes[class].block_bytes;
        counter_sub(&heap->depth_bytes, less);
        heap->extra_bytes -= less;
        bin->depth = depth;
        decided_depth(heap, class, wanted != 0 ? ACE_REASON_MADE_ROOM : ACE_REASON_OVER_BUDGET, before,
                      counter_read(&heap->depth_bytes) + less, budget, wanted);
        give_oldest(heap, class, held > depth ? held - depth : 0);
    }
    return false;
}

void stack_fit_budget(struct heap *heap) {
    if (HAK_UNLIKELY(counter_read(&heap->depth_bytes) > budget_bytes())) find_budget(heap, SIZE_CLASSES, 0);
}

void stack_adapt(struct heap *heap, unsigned class) {
    struct bin *bin = &heap->bins[class];
    size_t block_bytes = slab_classes[class].block_bytes;
    if (!bin->counted) {
        bin->counted = true;
        counter_add(&heap->depth_bytes, bin->depth * block_bytes);
    }
    const struct ace_depth_input input = {
        .depth = bin->depth,
        .most = bin->most,
        .refills = bin->recent_refills,
        .spills = bin->recent_spills,
        .refilled_blocks = bin->recent_refilled_blocks,
        .spilled_blocks = bin->recent_spilled_blocks,
        .objective = heap_settings.objective,
    };
    struct ace_depth_decision next = ace_depth_next(input);
    if (next.depth == input.depth) return;
    size_t wanted = (next.depth - input.depth) * block_bytes;
    forget_misses(bin); /* a refusal, too, stands for a while */
    if (!find_budget(heap, class, wanted)) {
        decided_depth(heap, class, ACE_REASON_NO_BUDGET, input.depth, counter_read(&heap->depth_bytes), budget_bytes(),
                      wanted);
        return;
    }
    if (!deepen(heap, class, next.depth)) {
        decided_depth(heap, class, ACE_REASON_NO_MEMORY, input.depth, wanted, 0, 0);
        return;
    }
    counter_add(&heap->depth_bytes, wanted);
    heap->extra_bytes += wanted;
    if (next.reason == ACE_DEPTH_SWING)
        decided_depth(heap, class, ACE_REASON_SWING, input.depth, input.refilled_blocks, input.spilled_blocks, 0);
    else
        decided_depth(heap, class, ACE_REASON_BATCH, input.depth, input.refills, input.spills, 0);
}

/* ---- idle stacks ---------------------------------------------------------------------------------- */

static uint32_t top_slot(const struct heap *heap, unsigned class) {
    return (uint32_t)(stack_top(heap, class) - heap->bins[class].stack);
}

/* One that is popped as often as pushed looks idle, too: it pays for that with a refill, no more often than the heap lacks memory. */
void stack_give_idle(struct heap *heap, unsigned for_class) {
    enum { LOOKED_AT = 4, GIVEN_MOST = 1024 };
    heap->bins[for_class].seen_top = UINT32_MAX; /* it is in use */
    for (unsigned i = 0; i < LOOKED_AT; i++) {
        const unsigned class = heap->idle_hand++ % SIZE_CLASSES;
        const size_t held = stack_held(heap, class);
        if (held != 0 && top_slot(heap, class) == heap->bins[class].seen_top)
            give_oldest(heap, class, min_size(held, GIVEN_MOST));
        heap->bins[class].seen_top = top_slot(heap, class);
    }
}

/* ---- taking from sleepers ------------------------------------------------------------------------- */

void stack_raise(struct heap *heap) {
    os_lock_take(&heap->lock);
    heap->raised = true;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) /* relaxed: a barrier follows */
        atomic_store_explicit(&heap->front.lo[class], stack_top(heap, class), memory_order_relaxed);
    os_lock_drop(&heap->lock);
}

void stack_lower(struct heap *heap) {
    heap->raised = false;
    for (unsigned class = 0; class < SIZE_CLASSES; class++) /* relaxed: as in stack_set */
        atomic_store_explicit(&heap->front.lo[class], heap->bins[class].bottom, memory_order_relaxed);
}

/* Gives the blocks from the bottom to END back; in pieces, since bin_put reads them as they are. */
static void take_below(struct heap *heap, unsigned class, void **end) {
    enum { PIECE = 128 };
    void *blocks[PIECE];
    struct bin *bin = &heap->bins[class];
    while (bin->bottom < end) {
        size_t count = min_size((size_t)(end - bin->bottom), PIECE);
        for (size_t i = 0; i < count; i++) blocks[i] = front_block(bin->bottom + i);
        bin->bottom += count;
        bin_put(heap, blocks, count);
    }
}

void stack_take(struct heap *heap, bool barrier_passed) {
    os_lock_take(&heap->lock);
    for (unsigned class = 0; heap->raised && barrier_passed && class < SIZE_CLASSES; class++) {
        /* relaxed: the lock is held. acquire: pairs with front_push. */
        void **raised_to = atomic_load_explicit(&heap->front.lo[class], memory_order_relaxed);
        void **top = atomic_load_explicit(&heap->front.top[class], memory_order_acquire);
        if (top > heap->bins[class].bottom) take_below(heap, class, top - 1 < raised_to ? top - 1 : raised_to);
    }
    if (heap->raised) stack_lower(heap);
    os_lock_drop(&heap->lock);
}
