/* registry.h - all heaps that ever existed. The caller holds no heap's lock, unless said otherwise. */
#ifndef HAK_HEAP_REGISTRY_H
#define HAK_HEAP_REGISTRY_H

#include "heap/heap.h"

/* A heap without a thread, as its last thread left it, or a new one. Preferred is one whose blocks have KNOWN_WORD,
 * the word of a page less its class, then one whose thread ended on this processor. NULL when there is no memory for
 * a new one. */
struct heap *registry_take(uint32_t known_word);

/* How many heaps wait for a thread as their last one left them, and how many a thread that begins looks at. */
enum { REGISTRY_WAITING = 16 };

/* Keeps HEAP for the next thread. Returns the first of those that wait beyond REGISTRY_WAITING, or NULL. */
struct heap *registry_give(struct heap *heap);

/* Stores up to MOST heaps that wait for a thread, most recent first; returns how many. A thread may take any of them
 * meanwhile. */
unsigned registry_idle(struct heap **heaps, unsigned most);

/* The next, in turn, of COUNT heaps that threads share, each made when first asked for. NULL when there is no memory
 * for it. No lock held. */
struct heap *registry_shared(uint32_t count);

/* How many heaps have a living thread. */
uint32_t registry_live(void);

/* Whether it is at most one: a process of one thread, as it is called. It may have others that have not allocated yet, or have ended but for
 * their last destructors: the allocator does not see them. */
HAK_INLINE bool registry_is_alone(void) { return registry_live() <= 1; }

/* How many of the living have a share of what threads may keep: those whose thread did not sleep for long at the last
 * visit; at least 1. */
uint32_t registry_sharing(void);
void registry_note_sleepers(uint32_t sleepers);

/* The head of the list of all heaps, which only grows there: written under the registry's lock, followed without it. */
extern HAK_HIDDEN _Atomic(struct heap *) all_heaps;

/* The newest heap; the others follow by next. The list only grows at this end. No lock is taken. */
struct heap *registry_first(void);

/* The commons first, then all others. */
HAK_INLINE struct heap *registry_next(const struct heap *heap) { return heap == &commons ? registry_first() : heap->next; }

/* For fork: locks every heap, shared ones after those that share them; and unlocks them in the parent. */
void registry_lock_all(void);
void registry_unlock_all(void);

/* In the child: unlocks all, and marks the heaps of the threads that are gone, all but SURVIVOR's, dead and forsaken.
 * remote_settle then finds the dead heaps to which blocks were returned, even those that a lost thread was about to
 * drain. */
void registry_forsake_others(const struct front *survivor);

/* A forsaken heap, no longer marked; NULL when there is none. */
struct heap *registry_take_forsaken(void);

#endif
