/* heap.h - what a thread owns: its front, the slabs behind it, and what it is about to give back to other
 * threads. Internal to the heap floor and to the statistics; callers use alloc.h.
 *
 * Slow paths hold their heap's lock: one uncontended atomic a batch. Frees of others' blocks do without, mostly: see front.h.
 * It is not held across a system call, but where stacks get memory. Under it the locks of a shared heap, of the commons, and of spans
 * or bitmaps may be taken, in that order, and those of the pool of stacks and of the books; two threads' heaps are never locked
 * together.
 *
 * A heap is live while its thread is. Then it is parked as it is until the next thread begins with it; of more than
 * REGISTRY_WAITING those that wait for longer hold nothing. Their slabs go to the commons, a heap that no thread owns and that is
 * never live, and so do those that others lack meanwhile (salvage.c); threads adopt them from there. Where threads are many, those that
 * begin have stacks, but no slabs of their own: they use those of a heap that they share (home.c). The memory of heaps is never
 * unmapped: a late freer may still look at one. */
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
    uint32_t most;           /* bound of depth */
    uint32_t recent_refills; /* since depth last changed, halved now and then: what ace_depth_next goes by */
    uint32_t recent_spills;
    uint32_t recent_refilled_blocks;
    uint32_t recent_spilled_blocks;
    uint32_t seen_top;    /* where stack_give_idle found the top at its last look, in slots of the stack */
    bool streams; /* so many of other heaps' blocks come that they are kept: see free.c. The owner's own */
    bool counted; /* its depth is part of the heap's depth_bytes */
    uint8_t returning;    /* blocks came back from other threads of late: so many fills still prefer them */
    uint8_t asked; /* for depth, by others, since it last missed */
    uint8_t asked_usually; /* between two misses */
    bool refused; /* a greater depth was, and that was told, since the depth last changed */
    /* Of its slabs, and of them the blocks that are out: in use, in a stack or in a buffer. */
    counter slab_count, taken_blocks;
    counter refills, refilled_blocks, spills, spilled_blocks, remote_blocks, adopted_slabs;
};
_Static_assert(ACE_BUDGET_IDLE_MEDIUM <= ACE_BUDGET_ASKED_MOST, "asked counts so far");

/* The depths of a heap's bins together, of small blocks or of medium ones: each has a budget. Guarded by the heap's lock. */
struct depth_sum {
    counter bytes;      /* of all bins that were used */
    size_t extra_bytes; /* of these, beyond the first depths: what could be had back */
    uint32_t hand;      /* next bin to be asked for depth */
};

enum heap_state { HEAP_DEAD, HEAP_LIVE, HEAP_SHARED };

/* Slabs whose blocks came back: so many of them one refill takes in. */
enum { DRAIN_SLABS = 64 };

/* Blocks of a class that are freed for others, and sent home, before it is taken for a stream whose blocks are kept; and how
 * many then are before that is looked at anew. */
enum { STREAM_PROOF = 2048, STREAM_TRUST = 16 * STREAM_PROOF };

struct heap {
    struct front front; /* first: thread_front() leads here */

    struct os_lock lock;
    struct heap *home;        /* whose slabs its stacks are filled from: its own, or those of a shared heap. Guarded by the lock, and
                               * the owner's own while there is one */
    bool shares;              /* its thread counts among the sharers there */
    uint32_t sharers;         /* threads that use the slabs of this, a shared heap */
    _Atomic uint32_t slab_total; /* of all bins; written under the lock */
    bool forsaken;            /* its thread did not survive a fork: slabs wait for the commons */
    bool parked;              /* its thread has ended: what it holds waits for the next one. Guarded by the lock */
    _Atomic uint32_t ticks;   /* slow paths taken: only the owner writes it */
    uint32_t ticks_seen;      /* this and the next three: purge.c's, guarded by the purging lock */
    uintptr_t tops_seen;
    bool visited;
    uint8_t asleep_visits;    /* so many found it asleep, one after the other; more are not counted */
    bool robbed;              /* stack_reclaim's */
    _Atomic uint32_t undrained_slabs; /* the first of those that hung in the inbox when it was taken, and were not drained;
                                       * written under the lock */
    bool raised;              /* the bounds of its stacks are: by stack_raise */
    int64_t in_use_change;    /* not yet told to footprint.c */
    uint64_t first_mask;      /* signals that the owner had blocked at first; purger.c's, like the next two */
    uint64_t last_mask;       /* and later */
    uint64_t last_mask_ms;    /* since when */
    uint32_t idle_hand;       /* next bin that is looked at */
    uint32_t medium_idle_hand; /* and next medium one */
    uint32_t unlooked_pages;  /* kept.c's, the owner's own, like the next three: so many are asked for before it looks again */
    bool growth_spared;       /* by what it saw then */
    uint8_t medium_times;     /* the budget of medium blocks is so many times as large, by the next */
    uint16_t medium_touched;  /* what kept_look saw of them, of ACE_TOUCHED_ALL; or ACE_TOUCHED_UNKNOWN */
    struct depth_sum small_depth, medium_depth;
    counter thread_id;        /* the kernel's number of the thread that has it, or had it last */
    struct heap *next;        /* of all heaps; guarded by the registry's lock */
    struct heap *next_idle;   /* like the next two */
    uint32_t given_on;        /* the processor where its last thread ended */
    bool idle;                /* it waits for a thread */
    struct bin bins[SIZE_CLASSES];

    /* Written by other threads, on lines of their own. */
    HAK_ALIGNED(128) _Atomic uint32_t inbox; /* first page of a slab with remote bits; linked by inbox_next */
    _Atomic uint32_t state;
    _Atomic bool undrained; /* dead, and the inbox may not be empty: hangs in remote.c's list, or is about to */
    struct heap *next_undrained; /* written by whoever set undrained */

    /* Blocks of other heaps, given back together: see buffer.c. Written under the lock. */
    void **buffer; /* room for REMOTE_BLOCKS of them, behind the stacks */
    _Atomic(void **) buffer_bottom;
    _Atomic uint32_t buffer_given_bytes; /* of those that were pushed since it was begun */

    void *first_stacks[]; /* stacks of the first depths */
} HAK_ALIGNED(256);

/* The heap of no thread. */
extern HAK_HIDDEN struct heap commons;

HAK_INLINE uint32_t heap_word(const struct heap *heap, unsigned class) {
    return (uint32_t)(uintptr_t)heap | class;
}

/* Nobody's, for threads to share: it has no stacks. */
HAK_INLINE bool heap_is_shared(const struct heap *heap) { return heap->buffer == NULL; }

struct heap_settings {
    counter thread_cache_bytes; /* bound of small_depth; of medium_depth half as much, or twice: ace_medium_budget */
    counter populate;           /* 1: bring in the pages of hot classes before they are touched */
    ace_keeper *keeper;         /* of decisions; NULL before the start */
    enum ace_objective objective; /* set at start, like the others */
    bool fixed;                   /* nothing adapts */
    uint32_t processors;          /* that the process had when it began: its threads may each be kept to one since */
    /* Blocks that the bins of each class hold at first, and the most that they may get. */
    uint16_t first_depths[SIZE_CLASSES], most_depths[SIZE_CLASSES];
};
extern HAK_HIDDEN struct heap_settings heap_settings;

/* Tells what was decided. */
HAK_INLINE void heap_tell(const struct ace_decision *decision) {
    if (heap_settings.keeper != NULL) heap_settings.keeper(decision);
}

/* ---- bin.c: slabs of a heap (its lock held) ----------------------------------------------------- */

/* Locks the heap that owns the slab at FIRST; NULL when none does. No heap's lock held. */
struct heap *bin_lock_owner(uint32_t first);

/* Hangs a slab that the heap owns in the right list. */
void bin_place(struct heap *heap, uint32_t first);

/* Takes it out of its list. */
void bin_unlink(struct heap *heap, uint32_t first);

/* After its count of free blocks changed: moves it to the right list; releases it when all are free. */
void bin_settle(struct heap *heap, uint32_t first);

/* Whether the next block of CLASS from the heap's slabs is known to read as zero. Heap's lock held. */
bool bin_next_is_zero(const struct heap *heap, unsigned class);

/* Whether what other threads gave back is to be taken in before blocks of CLASS are taken. Heap's lock held. */
bool bin_wants_drain(const struct heap *heap, unsigned class);

/* BLOCKS blocks of the bin's slabs came back from other threads. Heap's lock held. */
void bin_note_returned(struct bin *bin, uint32_t blocks);

/* Up to WANT blocks of CLASS from the heap's slabs, stored downward from END; returns how many. *ZERO: the first of
 * them, at END[-1], is known to read as zero; not written when there is none. Of 1 KiB and more, where other threads gave some of CLASS
 * back of late, blocks that were used before come first, and no others with them. */
uint32_t bin_fill(struct heap *heap, unsigned class, void **end, uint32_t want, bool *zero);

/* Puts blocks of the heap's own slabs back. */
void bin_put(struct heap *heap, void *const *blocks, size_t count);

/* Takes the slab at FIRST, of the medium block BLOCK alone, from the heap that owns it, whichever that is: nobody does from now on. FREED: another
 * thread gives it back, which is counted. Ends the process where BLOCK is not in use. No heap's lock held. */
void bin_take_out(void *block, uint32_t first, bool freed);

/* Hands every slab of HEAP to the commons, whose lock is taken for one after the other; or the fullest of CLASS in the list LEAST or
 * those of emptier ones, false when there is none. */
void bin_hand_over(struct heap *heap);
bool bin_hand_over_fullest(struct heap *heap, unsigned class, enum bucket least);

/* Takes a slab of CLASS from the commons, whose lock is taken; false when there is none. */
bool bin_adopt(struct heap *heap, unsigned class);

/* ---- kept.c: what it costs that a thread keeps medium blocks (no heap's lock held, unless said otherwise; a few system
 * calls) -------------------------------------------------------------------------------------------------- */

/* HEAP keeps nothing any more, so nothing is known. Its lock is held. */
void kept_forget(struct heap *heap);

/* Before the process grows by so many pages: what the calling thread keeps goes back if the program touched
 * ace_medium_spared_bytes of it, or more, or where a limit does not let the process grow. */
void kept_spare_growth(size_t pages);

/* Looks how much of it the program touched, for the budget. By HEAP's owner. */
void kept_look(struct heap *heap);

/* ---- decided.c (heap's lock held, or by the owner) ----------------------------------------------------- */

/* Tells that the depth of a bin was FROM and is another now, or, where it is the same, that a greater one was refused: once,
 * until the depth changes. */
void decided_depth(struct heap *heap, unsigned class, enum ace_reason reason, uint32_t from, uint64_t input0,
                   uint64_t input1, uint64_t input2);

/* Tells that the budget of medium blocks was FROM times as large and is medium_times as large now. */
void decided_kept(struct heap *heap, uint32_t from, uint64_t held_bytes, uint64_t touched_bytes);

/* ---- remote.c: blocks that cross threads -------------------------------------------------------- */

/* Gives at most REMOTE_BLOCKS blocks of other heaps' slabs back to their owners, and returns how many bytes they have. FREER, whose
 * owner calls, counts them; or NULL. Takes no lock: safe in signal handlers. Whoever may take locks calls remote_settle
 * afterwards. */
size_t remote_give(struct heap *freer, void *const *blocks, size_t count);

/* Whether there is something to take in. relaxed: what comes in a moment later is seen the next time. */
HAK_INLINE bool remote_has_some(const struct heap *heap) {
    return atomic_load_explicit(&heap->inbox, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&heap->undrained_slabs, memory_order_relaxed) != 0;
}

/* Takes in what other threads gave back. Heap's lock held; returns how many blocks. Slabs that went to another
 * owner are passed on: call remote_settle once the lock is dropped. */
uint32_t remote_drain(struct heap *heap);

/* The same of at most so many slabs. The others wait for the next time, so that no operation has to look at more than that. */
uint32_t remote_drain_some(struct heap *heap, uint32_t most_slabs);

/* Takes in what was given back to HEAP, whoever has it; false when that is nothing. No lock held; call remote_settle afterwards. */
bool remote_drain_unlocked(struct heap *heap);

/* Drains dead heaps that were given something. No lock held. Cheap when there is nothing to do. */
void remote_settle(void);

/* In the child after a fork: a thread that is gone may have been about to drain some. Those to whom something was given are
 * marked, and no others. */
void remote_mark_anew(void);

/* ---- reveal.c: before an allocation fails (no lock held) --------------------------------------------- */

/* What this thread's stacks and buffer, parked heaps and inboxes hide goes back. */
void reveal_own(void);

/* One of BYTES has failed, for all that was looked through without others: what their stacks and buffers hide goes back, too, if it may help, and others that
 * fail meanwhile wait for it. Who then gets what it wants says so. */
void reveal_others(size_t bytes);
void reveal_helped(void);

/* ---- thread.c ----------------------------------------------------------------------------------- */

/* Does with a pointer that is none of ours what was set at start. */
size_t heap_foreign(void *block, enum heap_foreign_use use);

/* Slabs of heaps whose threads did not survive a fork go to the commons. No lock held. */
void thread_reap_forsaken(void);

/* All that HEAP holds goes where others find it, if it is parked. No lock held; call remote_settle afterwards. */
void thread_retire_parked(struct heap *heap);

/* All that HEAP, which no thread has, holds goes where others find it. Its lock is held. */
void thread_hand_over(struct heap *heap);

/* ---- salvage.c ---------------------------------------------------------------------------------- */

/* What a heap that was parked lately holds of CLASS goes where the calling thread finds it; where that shares slabs, or one that is more
 * than half free of a thread that does not. False when nothing was found. No lock held. */
bool salvage_slab(unsigned class);

#endif
