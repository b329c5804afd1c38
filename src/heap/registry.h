/* registry.h - all heaps there ever were. No heap's lock is held by a caller, unless said otherwise. */
#ifndef HAK_HEAP_REGISTRY_H
#define HAK_HEAP_REGISTRY_H

#include "heap/heap.h"

/* A heap without a thread, as the last one that had it left it, or a new one. One whose stacks hold blocks of KNOWN_WORD, the word of a page less
 * its class, comes before others, then one whose thread ended on this processor. NULL when there is no memory for a new one. */
struct heap *registry_take(uint32_t known_word);

/* So many heaps wait for a thread as the last one left them: as many as a thread that begins looks at. */
enum { REGISTRY_WAITING = 16 };

/* Keeps such a heap for the next thread. Returns the one that is then the first to wait beyond those, or NULL. */
struct heap *registry_give(struct heap *heap);

/* Stores up to MOST heaps that wait for a thread, the last to come first; returns how many. Each may find one meanwhile. */
unsigned registry_idle(struct heap **heaps, unsigned most);

/* Of COUNT heaps that threads share the next, each in turn: made when it is first asked for. NULL when there is no memory for it. No lock
 * held. */
struct heap *registry_shared(uint32_t count);

/* How many heaps have a living thread. */
uint32_t registry_live(void);

/* How many of these share what may be kept: those whose thread did not sleep for long, by the last visit; at least 1. */
uint32_t registry_sharing(void);
void registry_note_sleepers(uint32_t sleepers);

/* The head of the list of all heaps, which only grows there: written under the registry's lock, followed without. */
extern HAK_HIDDEN _Atomic(struct heap *) all_heaps;

/* The newest heap; the others follow by next. The list only grows at this end. No lock is taken. */
struct heap *registry_first(void);

/* The commons first, then all others. */
HAK_INLINE struct heap *registry_next(const struct heap *heap) { return heap == &commons ? registry_first() : heap->next; }

/* For fork: every heap locked, those that are shared after those that share them; and unlocked in the parent. */
void registry_lock_all(void);
void registry_unlock_all(void);

/* In the child: unlocks all, and marks the heaps of the threads that are gone, all but SURVIVOR's, dead and forsaken. Dead heaps
 * that were given something are found by remote_settle, whoever was at it. */
void registry_forsake_others(const struct front *survivor);

/* A forsaken heap, no longer marked; NULL when there is none. */
struct heap *registry_take_forsaken(void);

#endif
