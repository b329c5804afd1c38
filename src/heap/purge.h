/* purge.h - giving back what nobody needs, of all heaps: blocks on their way to sleepers, holes in slabs, free spans. */
#ifndef HAK_HEAP_PURGE_H
#define HAK_HEAP_PURGE_H

#include <stdbool.h>

/* Between two looks at all heaps. */
enum { VISIT_MS = 400 };

enum purge_pace {
    PURGE_DUE,    /* what is due */
    PURGE_ALL,    /* everything, due or not: from the beginning */
    PURGE_ALL_ON, /* and on, from where the last step stopped */
};

enum purge_result {
    PURGE_DONE,  /* nothing is left */
    PURGE_LATER, /* something is, but not due */
    PURGE_MORE,  /* the step stopped because it did enough */
};

/* One step: a few milliseconds. The purging lock is held and no other. */
enum purge_result purge_step(enum purge_pace pace);

/* Steps until there is no more, the lock taken for each. No lock held. */
enum purge_result purge_steps(enum purge_pace pace);

/* Whether, when heaps were last looked at, a thread had worked since the time before, by slow paths or by fast ones. */
bool purge_saw_work(void);

#endif
