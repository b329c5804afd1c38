/* stack.h - the stacks of a front: pushing, popping and emptying them in slow paths, how deep they are, and taking
 * from those of threads that sleep. The heap's lock is held, by the owner, unless said otherwise. Internal to the
 * heap layer. */
#ifndef HAK_HEAP_STACK_H
#define HAK_HEAP_STACK_H

#include "ace/batch.h"
#include "heap/heap.h"

/* relaxed throughout: top is the owner's own, and the owner may read its bounds at any time; see front.h. */
HAK_INLINE void **stack_top(const struct heap *heap, unsigned class) {
    return atomic_load_explicit(&heap->front.top[class], memory_order_relaxed);
}

HAK_INLINE size_t stack_held(const struct heap *heap, unsigned class) {
    return (size_t)(stack_top(heap, class) - heap->bins[class].bottom);
}

/* Whether one more block fits. */
HAK_INLINE bool stack_has_room(const struct heap *heap, unsigned class) {
    return stack_top(heap, class) < heap->bins[class].stack + heap->bins[class].depth;
}

/* Sets whether blocks of other heaps are kept in the stack: only while there is a stream of them, and until it holds
 * ace_kept. */
HAK_INLINE void stack_set_keeping(struct heap *heap, unsigned class, bool keep) {
    const struct bin *bin = &heap->bins[class];
    heap->front.keep[class] = keep && bin->streams ? bin->stack + ace_kept(bin->depth) : NULL;
}

/* A lower bound above every top, as NULL is an upper one below every top. */
#define STACK_LO_CLOSED ((void **)(INTPTR_MAX & -(intptr_t)sizeof(void *)))

/* Signal handlers of the owner neither pop nor push from here to stack_set: they would not know what is being done
 * with the blocks. What they did before is in the top, which must be read after this. */
HAK_INLINE void stack_close(struct heap *heap, unsigned class) {
    atomic_store_explicit(&heap->front.lo[class], STACK_LO_CLOSED, memory_order_relaxed);
    atomic_store_explicit(&heap->front.hi[class], NULL, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
}

/* The blocks of a stack that is closed, or that no thread has, now lie in bottom .. top - 1; opens it. Others may
 * have raised and lowered its bounds meanwhile, which opens it: it is closed again until the top fits them. */
HAK_INLINE void stack_set(struct heap *heap, unsigned class, void **bottom, void **top) {
    struct bin *bin = &heap->bins[class];
    bin->bottom = bottom;
    stack_set_keeping(heap, class, heap->front.keep[class] != NULL);
    stack_close(heap, class);
    atomic_store_explicit(&heap->front.top[class], top, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&heap->front.lo[class], bottom, memory_order_relaxed);
    atomic_store_explicit(&heap->front.hi[class], bin->stack + bin->depth, memory_order_relaxed);
}

/* Pushes BLOCK if there is room. Closed meanwhile: what a signal handler does before or after it is not undone. */
HAK_INLINE bool stack_push(struct heap *heap, unsigned class, void *block) {
    if (!stack_has_room(heap, class)) return false;
    stack_close(heap, class);
    const bool has_room = stack_has_room(heap, class);
    void **top = stack_top(heap, class);
    if (has_room) front_block_set(top++, block);
    stack_set(heap, class, heap->bins[class].bottom, top);
    return has_room;
}

/* Pops a block of a stack that is closed and holds some; opens it. */
HAK_INLINE void *stack_pop(struct heap *heap, unsigned class) {
    void **top = stack_top(heap, class) - 1, *block = front_block(top);
    stack_set(heap, class, heap->bins[class].bottom, top);
    return block;
}

/* Forgets the streams of all classes: another thread's blocks may be none. Owner's own, or no thread's. */
void stack_forget_streams(struct heap *heap);

/* COUNT blocks of other heaps were freed: they may now be a stream, or a stream is due for a check. Owner's own. */
void stack_count_foreign(struct heap *heap, unsigned class, uint32_t count);

/* At start, before there is a heap: how deep the bins of each class are. SET: depths that are not 0 are fixed; NULL:
 * none is. The others adapt or, if FIXED, stay as they are at first. */
void stack_set_depths(const uint16_t *set, bool fixed);

/* Gives each bin of a new or retired heap its first stack, empty. */
void stack_reset_all(struct heap *heap);

/* Slots that first_stacks must have. */
size_t stack_first_slots(void);

/* Frees BLOCK, of the heap's own, into a stack that has no room: it gets deeper, or puts its older half back, or of
 * medium blocks the oldest. A stack that may hold none passes BLOCK on. */
void stack_push_beyond(struct heap *heap, unsigned class, void *block);

/* Puts all blocks back. */
void stack_empty(struct heap *heap, unsigned class);
void stack_empty_all(struct heap *heap);

/* A stack that ran empty is about to be refilled: adapts its depth. */
void stack_note_refill(struct heap *heap, unsigned class);

/* There is no room for another block: adapts the depth, but puts none back. False if there is still no room. */
bool stack_make_room(struct heap *heap, unsigned class);

/* Makes bins shallower while the heap's stacks are deeper than its share allows. */
void stack_fit_budget(struct heap *heap);

/* Looks at some stacks other than that of CLASS, in turn at each call. A stack whose top has not moved since, or from
 * which no medium block was taken, passes for idle, and some of its blocks are put back. */
void stack_give_idle(struct heap *heap, unsigned class);

/* The same for one stack of medium blocks: called now and then, otherwise a thread that needs no slabs any more would
 * keep them. */
void stack_give_idle_medium(struct heap *heap);

/* For fork. */
void stack_pool_lock(void);
void stack_pool_unlock(void);
void stack_pool_lock_reset(void);

/* ---- reclaim.c: taking from the stacks of threads that sleep --------------------------------------- */

/* Sends a heap's owner to its slow paths for whatever it holds. After os_barrier_others, stack_take then puts back
 * what its stacks hold, except for the newest small block of each. By other threads than the owner; each takes the
 * heap's lock. */
void stack_raise(struct heap *heap);
void stack_take(struct heap *heap, bool barrier_passed);

/* Both, for all heaps that OF selects. Two system calls, however many heaps there are; none if they hold nothing.
 * False when nothing was taken. Between stack_reclaim_lock and stack_reclaim_unlock; no heap's lock held. */
bool stack_reclaim(bool (*of)(const struct heap *heap));

/* Deeper than any stack: a difference of this much comes from two reads at different moments. */
enum { STACK_IMPOSSIBLE_DEPTH = 1 << 16 };

/* Blocks that the owner may pop, seen without the lock: a hint. None while the stack is closed. */
HAK_INLINE size_t stack_seen_held(const struct heap *heap, unsigned class) {
    void **lo = atomic_load_explicit(&heap->front.lo[class], memory_order_relaxed); /* relaxed: the owner moves both ends meanwhile */
    const size_t held = ((uintptr_t)stack_top(heap, class) - (uintptr_t)lo) / sizeof(void *);
    return held < STACK_IMPOSSIBLE_DEPTH ? held : 0;
}

/* How many bytes of such blocks the stacks of a heap hold, and those of all heaps. No lock held. */
uint64_t stack_seen_bytes(const struct heap *heap);
uint64_t stack_hidden_bytes(void);

/* Lowers the bounds again: the owner may pop all that it holds. In the owner's slow paths, and in stack_take. */
void stack_lower(struct heap *heap);

/* One thread at a time takes, from the raise to the take: a second raise meanwhile would need another barrier. For
 * fork, too: before the heaps' locks are taken, and after they were dropped or reset. */
void stack_reclaim_lock(void);
void stack_reclaim_unlock(void);
void stack_reclaim_lock_reset(void);

#endif
