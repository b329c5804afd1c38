/* span_cache.h - large blocks that a thread freed and keeps, by their length. The record of such a span is as it was; its
 * page's word is none. No heap's lock is held, unless said otherwise. */
#ifndef HAK_HEAP_SPAN_CACHE_H
#define HAK_HEAP_SPAN_CACHE_H

#include "heap/heap.h"

/* The first page of a span of PAGES pages, at most KEPT_SIZES, that HEAP, whose owner calls, kept; 0 when it has none. */
uint32_t span_cache_take(struct heap *heap, size_t pages);

/* Keeps the used span at FIRST, which nobody knows any more; false when HEAP, whose owner calls, wants no more of its length. */
bool span_cache_put(struct heap *heap, uint32_t first);

/* Gives back what was not wanted for a while, and what is more than the heap may keep. Its lock is held, by its owner. */
void span_cache_settle(struct heap *heap);

/* Gives all back that HEAP keeps. Its lock is held, by anyone; or it is taken. Cheap when there is nothing. */
void span_cache_empty(struct heap *heap);
void span_cache_reclaim(struct heap *heap);

/* The same, and forgets what was learned: of a heap that nobody owns. Its lock is held. */
void span_cache_forget(struct heap *heap);

#endif
