/* purge.h - returning what is not needed, of all heaps: blocks freed for sleeping threads, holes in slabs, free
 * spans. */
#ifndef HAK_HEAP_PURGE_H
#define HAK_HEAP_PURGE_H

#include <stdbool.h>

/* Milliseconds between two visits of all heaps. */
enum { VISIT_MS = 400 };

enum purge_pace {
    PURGE_DUE,    /* what is due */
    PURGE_ALL,    /* everything, due or not: from the beginning */
    PURGE_ALL_ON, /* the same, continued where the last step stopped */
};

enum purge_result {
    PURGE_DONE,  /* nothing is left */
    PURGE_LATER, /* something is left, but not due */
    PURGE_MORE,  /* the step stopped because it did enough */
};

/* One step: a few milliseconds. The purging lock is held and no other. */
enum purge_result purge_step(enum purge_pace pace);

/* Takes steps until there is no more, and the lock for each. No lock held. */
enum purge_result purge_steps(enum purge_pace pace);

/* Whether, at the last visit, a thread had worked since the one before, by slow paths or by fast ones. */
bool purge_saw_work(void);

#endif
