/* heap.h - what a thread owns: its front, the slabs behind it, and blocks that it is about to return to other heaps.
 * Internal to the heap layer and to the statistics; callers use alloc.h.
 *
 * Slow paths hold their heap's lock: one uncontended atomic per batch. Frees of other heaps' blocks mostly need no
 * lock: see front.h. The lock is not held across a system call, except where stacks get memory. Under it the locks of
 * a shared heap, of the commons, and of spans or bitmaps may be taken, in that order, and those of the stack pool and
 * of the books. The heaps of two threads are never locked together.
 *
 * A heap is live while its thread is. Then it is parked as it is until the next thread begins with it; of more than
 * REGISTRY_WAITING such heaps, those that have waited longest are emptied. Their slabs go to the commons, a heap
 * that no thread owns and that is never live, and so do slabs of waiting heaps that others lack (salvage.c); threads
 * adopt them from there. When threads are many, new ones have stacks, but no slabs of their own: they use those of a
 * heap that they share (home.c). The memory of heaps is never unmapped: a late freer may still look at one. */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "ace/budget.h"
#include "ace/decision.h"
#include "ace/objective.h"
#include "base/counter.h"
#include "heap/alloc.h"
#include "os/os.h"
#include "slab/slab.h"

/* A bin's slabs by how many of their blocks are free: the fullest are used first. */
enum bucket { BUCKET_FULL, BUCKET_QUARTER, BUCKET_HALF, BUCKET_MORE, BUCKETS };

/* What the slow paths know of one size class of one heap. Guarded by the heap's lock. */
struct bin {
    uint32_t slabs[BUCKETS]; /* first page of the first slab of each bucket; 0 when empty */
    void **stack;            /* bottom, front.lo and front.hi lie in stack[0 .. capacity] */
    void **bottom;           /* the oldest block lies here; front.lo is the same, or higher while bounds are raised */
    uint32_t capacity;
    uint32_t depth;          /* blocks the stack may hold now */
    uint32_t most;           /* upper bound of depth */
    uint32_t recent_refills; /* since depth last changed, halved now and then: input of ace_depth_next */
    uint32_t recent_spills;
    uint32_t recent_refilled_blocks;
    uint32_t recent_spilled_blocks;
    uint32_t seen_top;    /* where stack_give_idle found the top at its last look, in slots of the stack */
    bool streams; /* enough of other heaps' blocks come that they are kept: see free.c. Owner only */
    bool counted; /* its depth is part of small_depth or medium_depth */
    uint8_t returning;    /* fills that still prefer blocks returned by other threads; set when some are */
    uint8_t asked; /* how often other bins asked it for depth since its last miss */
    uint8_t asked_usually; /* the same between two misses, of late */
    bool refused; /* a greater depth was refused, and that reported, since the depth last changed */
    /* Its slabs, and those of their blocks that are out: in use, in a stack or in a buffer. */
    counter slab_count, taken_blocks;
    counter refills, refilled_blocks, spills, spilled_blocks, remote_blocks, adopted_slabs;
};
_Static_assert(ACE_BUDGET_IDLE_MEDIUM <= ACE_BUDGET_ASKED_MOST, "asked counts so far");

/* The sum of the depths of a heap's bins, of small or of medium blocks: each has a budget. Guarded by the heap's
 * lock. */
struct depth_sum {
    counter bytes;      /* of all bins that were used */
    size_t extra_bytes; /* of these, beyond the first depths: what can be taken back */
    uint32_t hand;      /* next bin to be asked for depth */
};

enum heap_state { HEAP_DEAD, HEAP_LIVE, HEAP_SHARED };

/* Slabs with returned blocks that one refill takes in at most, and slabs of an ended thread that one operation takes in and hands over. */
enum { DRAIN_SLABS = 64, HAND_OVER_SLABS = 256 };

/* Blocks of a class that a thread frees for other heaps, and returns, before they are taken for a stream, whose
 * blocks are kept; and how many of a stream are freed before it is checked again. */
enum { STREAM_PROOF = 2048, STREAM_TRUST = 16 * STREAM_PROOF };

struct heap {
    struct front front; /* first: thread_front() leads here */

    struct os_lock lock;
    struct heap *home;        /* whose slabs its stacks are filled from: its own, or those of a shared heap. Guarded by
                               * the lock; while there is an owner, only it writes */
    bool shares;              /* its thread is counted in home->sharers */
    uint32_t sharers;         /* threads that use the slabs of this, a shared heap */
    _Atomic uint32_t slab_total; /* of all bins; written under the lock */
    bool forsaken;            /* its thread did not survive a fork: its slabs are yet to go to the commons */
    bool parked;              /* its thread has ended: what it holds waits for the next one. Guarded by the lock */
    _Atomic bool seems_parked; /* the same, without the lock: a hint */
    _Atomic uint32_t ticks;   /* slow paths taken: only the owner writes it */
    uint32_t ticks_seen;      /* this and the next three: purge.c's, guarded by the purging lock */
    uintptr_t tops_seen;
    bool visited;
    uint8_t asleep_visits;    /* consecutive visits that found it asleep, at most SLEEPER_VISITS */
    bool robbed;              /* private to stack_reclaim */
    _Atomic uint32_t undrained_slabs; /* first slab that was taken from the inbox but not drained yet; written under the lock */
    bool raised;              /* stack_raise raised the bounds of its stacks */
    int64_t in_use_change;    /* not yet reported to footprint.c */
    uint64_t first_mask;      /* signals that the owner had blocked at first; private to purger.c, like the next two */
    uint64_t last_mask;       /* and at the last look */
    uint64_t last_mask_ms;    /* since when it had these blocked */
    uint32_t idle_hand;       /* next bin that stack_give_idle looks at */
    uint32_t medium_idle_hand; /* next medium one */
    uint32_t unlooked_pages;  /* kept.c's, owner only, like the next three: growth that the last look still covers */
    bool growth_spared;       /* the result of that look */
    uint8_t medium_times;     /* factor of the budget of medium blocks, by medium_touched */
    uint16_t medium_touched;  /* share of these that kept_look saw touched, of ACE_TOUCHED_ALL; or ACE_TOUCHED_UNKNOWN */
    struct depth_sum small_depth, medium_depth;
    counter thread_id;        /* kernel thread id of its thread, or its last one */
    struct heap *next;        /* of all heaps; guarded by the registry's lock */
    struct heap *next_idle;   /* of heaps that wait; guarded by the same lock, like the next two */
    uint32_t given_on;        /* the processor where its last thread ended */
    bool idle;                /* it waits for a thread */
    struct bin bins[SIZE_CLASSES];

    /* Written by other threads, on cache lines of their own. */
    HAK_ALIGNED(128) _Atomic uint32_t inbox; /* first page of a slab with remote bits; linked by inbox_next */
    _Atomic uint32_t state;
    _Atomic bool undrained; /* dead, and the inbox may not be empty: in remote.c's list, or about to be */
    struct heap *next_undrained; /* written by the thread that set undrained */

    /* Blocks of other heaps, returned together: see buffer.c. Written under the lock. */
    void **buffer; /* room for REMOTE_BLOCKS of them, behind the stacks */
    _Atomic(void **) buffer_bottom;
    _Atomic uint32_t buffer_given_bytes; /* returned, of those pushed since the buffer was begun */

    void *first_stacks[]; /* stacks of the first depths */
} HAK_ALIGNED(256);

/* The heap that no thread owns. It never begins where the lower half of an address is 0: that half would be no word. */
extern HAK_HIDDEN struct commons_place {
    char before[256];
    struct heap heap;
} HAK_ALIGNED(512) commons_place;
#define commons (commons_place.heap)

HAK_INLINE uint32_t heap_word(const struct heap *heap, unsigned class) {
    return (uint32_t)(uintptr_t)heap | class;
}

/* Lock held. */
HAK_INLINE void heap_set_parked(struct heap *heap, bool parked) {
    heap->parked = parked;
    atomic_store_explicit(&heap->seems_parked, parked, memory_order_relaxed); /* a hint */
}

/* Whether HEAP has no stacks: it is for threads to share, or the commons. */
HAK_INLINE bool heap_is_shared(const struct heap *heap) { return heap->buffer == NULL; }

struct heap_settings {
    counter thread_cache_bytes; /* upper bound of small_depth; of medium_depth half to twice as much: ace_medium_budget */
    counter populate;           /* 1: prefault the pages of hot classes */
    ace_keeper *keeper;         /* receives decisions; NULL before the start */
    enum ace_objective objective; /* set at start, like the others */
    bool fixed;                   /* nothing adapts */
    uint32_t processors;          /* of the process when it began: its threads may each have been pinned to one since */
    /* Depths of the bins of each class, in blocks: at first, and at most. */
    uint16_t first_depths[SIZE_CLASSES], most_depths[SIZE_CLASSES];
};
extern HAK_HIDDEN struct heap_settings heap_settings;

/* What a process holds before its own threads ask for limits of its control group or of the machine. With less, a filter of the program's
 * own meets no call for which it would have to know hakmem: compat.md. */
#define LIMITS_FROM_BYTES HAK_MIB(28)

/* Reports a decision. */
HAK_INLINE void heap_tell(const struct ace_decision *decision) {
    if (heap_settings.keeper != NULL) heap_settings.keeper(decision);
}

/* ---- bin.c: slabs of a heap (its lock held) ----------------------------------------------------- */

/* Locks the heap that owns the slab at FIRST; NULL when none does. No heap's lock held. */
struct heap *bin_lock_owner(uint32_t first);

/* Links a slab that the heap owns into the right list. */
void bin_place(struct heap *heap, uint32_t first);

/* Takes it out of its list. */
void bin_unlink(struct heap *heap, uint32_t first);

/* After its count of free blocks changed: moves it to the right list; releases it when all are free. */
void bin_settle(struct heap *heap, uint32_t first);

/* Whether the next block of CLASS from the heap's slabs is known to read as zero. Heap's lock held. */
bool bin_next_is_zero(const struct heap *heap, unsigned class);

/* Whether to take in what other threads returned before blocks of CLASS are taken. Heap's lock held. */
bool bin_wants_drain(const struct heap *heap, unsigned class);

/* BLOCKS blocks of the bin's slabs were returned by other threads. Heap's lock held. */
void bin_note_returned(struct bin *bin, uint32_t blocks);

/* Takes up to WANT blocks of CLASS from the heap's slabs and stores them downward from END; returns how many. *ZERO:
 * the first of them, at END[-1], is known to read as zero; not written when there is none. From 1 KiB on, if other
 * threads returned some of CLASS of late, blocks that were used before come first, and no others with them. */
uint32_t bin_fill(struct heap *heap, unsigned class, void **end, uint32_t want, bool *zero);

/* Puts blocks back into the heap's slabs; kept blocks of other heaps are returned to their owners. */
void bin_put(struct heap *heap, void *const *blocks, size_t count);

/* Takes the slab at FIRST, which is the medium block BLOCK alone, from whichever heap owns it: it has no owner from
 * now on. FREED: another thread frees the block, which is counted. Ends the process if BLOCK is not in use. No heap's
 * lock held. */
void bin_take_out(void *block, uint32_t first, bool freed);

/* Hands MOST_SLABS slabs of HEAP at most to the commons, whose lock is taken for each; false when some are left. */
bool bin_hand_over(struct heap *heap, uint32_t most_slabs);

/* Hands over the fullest of CLASS in the list LEAST or in one of emptier slabs; false when there is none. */
bool bin_hand_over_fullest(struct heap *heap, unsigned class, enum bucket least);

/* Takes a slab of CLASS from the commons, whose lock is taken; false when there is none. */
bool bin_adopt(struct heap *heap, unsigned class);

/* ---- kept.c: the cost of the medium blocks that a thread keeps (no heap's lock held, unless said otherwise; a few system
 * calls) -------------------------------------------------------------------------------------------------- */

/* HEAP keeps nothing any more, so nothing is known. Its lock is held, or it is new. */
void kept_forget(struct heap *heap);

/* Before the process grows by PAGES pages: frees what the calling thread keeps if the program touched
 * ace_medium_spared_bytes of it, or more, or if a limit does not let the process grow. */
void kept_spare_growth(size_t pages);

/* Estimates how much of what HEAP keeps the program touched, for the budget. By HEAP's owner. */
void kept_look(struct heap *heap);

/* ---- decided.c (heap's lock held, or by the owner) ----------------------------------------------------- */

/* Reports that the depth of a bin changed from FROM or, if it is the same, that a greater one was refused: the latter
 * once, until the depth changes. */
void decided_depth(struct heap *heap, unsigned class, enum ace_reason reason, uint32_t from, uint64_t input0,
                   uint64_t input1, uint64_t input2);

/* Reports that the factor of the budget of medium blocks changed from FROM to medium_times. */
void decided_kept(struct heap *heap, uint32_t from, uint64_t held_bytes, uint64_t touched_bytes);

/* ---- remote.c: cross-thread frees --------------------------------------------------------------- */

/* Returns at most REMOTE_BLOCKS blocks of other heaps to their owners; the result is how many bytes they have. FREER
 * counts them: its owner calls, or it has none; or NULL. Takes no lock: safe in signal handlers. A caller that may
 * take locks calls remote_settle afterwards. */
size_t remote_give(struct heap *freer, void *const *blocks, size_t count);

/* Whether there is something to drain. relaxed: what arrives a moment later is seen the next time. */
HAK_INLINE bool remote_has_some(const struct heap *heap) {
    return atomic_load_explicit(&heap->inbox, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&heap->undrained_slabs, memory_order_relaxed) != 0;
}

/* Drains what other threads returned; returns how many blocks. Heap's lock held. Slabs that have another owner by now
 * are passed on: call remote_settle once the lock is dropped. */
uint32_t remote_drain(struct heap *heap);

/* The same for at most MOST_SLABS slabs. The others wait for the next time, so that no operation looks at more than
 * that. */
uint32_t remote_drain_some(struct heap *heap, uint32_t most_slabs);

/* Drains HEAP, whichever thread has it; false when there is nothing to drain. Its owner never waits for more than
 * DRAIN_SLABS slabs. No lock held; call remote_settle afterwards. */
bool remote_drain_unlocked(struct heap *heap);

/* Drains dead heaps to which blocks were returned. No lock held. Cheap when there is nothing to do. */
void remote_settle(void);

/* In the child after a fork: a thread that is gone may have been about to drain some. Marks the dead heaps that have
 * something to drain, and no others. */
void remote_mark_anew(void);

/* ---- reveal.c: before an allocation fails (no lock held) --------------------------------------------- */

/* Frees what this thread's stacks and buffer, parked heaps and inboxes hide. */
void reveal_own(void);

/* An allocation of BYTES failed despite reveal_own: frees what the stacks and buffers of other threads hide, too, if
 * that may help. Threads that fail meanwhile wait for it. A caller that then gets what it wants calls reveal_helped. */
void reveal_others(size_t bytes);
void reveal_helped(void);

/* ---- thread.c ----------------------------------------------------------------------------------- */

/* Passes a pointer that is not hakmem's to the handler set at start. */
size_t heap_foreign(void *block, enum heap_foreign_use use);

/* Hands over HAND_OVER_SLABS slabs at most of a heap whose thread did not survive a fork. It waits for a thread from then on, parked if
 * some are left. False when there is no such heap. No lock held. */
bool thread_reap_forsaken(void);

/* Hands over all that HEAP holds, if it is parked. No lock held; call remote_settle afterwards. */
void thread_retire_parked(struct heap *heap);

/* The same for HAND_OVER_SLABS slabs at most, so that it takes no operation long: false when some are left, and HEAP stays parked. */
bool thread_retire_some(struct heap *heap);

/* Makes all that HEAP, which no thread has, holds available to others: blocks to their slabs, slabs to the commons.
 * Its lock is held. */
void thread_hand_over(struct heap *heap);

/* ---- salvage.c ---------------------------------------------------------------------------------- */

/* Makes available to the calling thread what a recently parked heap holds of CLASS; or, if that thread shares slabs,
 * a slab that is more than half free of a thread that does not. False when nothing was found. No lock held. */
bool salvage_slab(unsigned class);

#endif
